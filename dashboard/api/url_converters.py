"""What an address may have for an id: any text, with the line breaks that Django's own `path` refuses."""

from __future__ import annotations

from django.urls import register_converter


class AnyText:
    """An id as an address has it, percent-decoded."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        """Return it as it is."""
        return value

    def to_url(self, value: str) -> str:
        """Return it as it is."""
        return value


register_converter(AnyText, "text")
