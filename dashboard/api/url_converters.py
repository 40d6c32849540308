"""A path converter for ids: any text, also the line breaks that Django's own `path` does not match."""

from django.urls import register_converter


class AnyText:
    """An id in a path, percent-decoded."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        """Return the text unchanged."""
        return value

    def to_url(self, value: str) -> str:
        """Return the text unchanged."""
        return value


register_converter(AnyText, "text")
