"""Pages without the white space that their templates are laid out with, as a browser shows them."""

import re
from typing import Any, NoReturn
from unittest.mock import patch

from django.db.models import Model
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.http import HttpResponseBase
from django.test import Client

_BLOCKS = (
    "article|aside|body|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|g|h[1-6]|head|"
    "header|hr|html|legend|li|line|link|main|meta|nav|ol|option|p|pre|rect|script|section|select|summary|svg|"
    "table|tbody|td|text|textarea|tfoot|th|thead|title|tr|ul"
)
_KEPT = re.compile(r"(<(pre|textarea)\b.*?</\2>)", re.S)
_REST_OF_TAG = r"[^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>"
_TAG = re.compile(r"<[a-zA-Z/]" + _REST_OF_TAG)
# What is before a tag has a pattern of its own: one that begins with what may be missing is tried everywhere.
_BEFORE = re.compile(rf" (?=</?(?:{_BLOCKS})\b|</button>|<input type=\"hidden\")")
_BEHIND = re.compile(rf"(</?(?:{_BLOCKS})\b{_REST_OF_TAG}|<button\b[^<>]*>|<input type=\"hidden\"[^<>]*>) ")


def compact(html: str) -> str:
    """Return HTML with one space where there are several, and none beside the tags of blocks."""
    parts = _KEPT.split(html)
    # Split by two groups: text, what is kept as it is, its tag's name, text, …
    shown = [_compact(part) if n % 3 == 0 else part if n % 3 == 1 else "" for n, part in enumerate(parts)]
    return "".join(shown)


def _compact(html: str) -> str:
    html = _TAG.sub(_without_space_at_end, re.sub(r"\s+", " ", html))
    return _BEFORE.sub("", _BEHIND.sub(r"\1", html))


def _without_space_at_end(tag: re.Match[str]) -> str:
    end = "/>" if tag[0].endswith("/>") else ">"
    return tag[0].removesuffix(end).rstrip() + end


def _refuse(descriptor: Any, instance: Model) -> NoReturn:
    name = f"{type(instance).__name__}.{descriptor.field.name}"
    raise AssertionError(f"A page loads {name} by itself, which may be gone by then: use select_related.")


class CompactClient(Client):
    """A client that gets compact pages; none of ours may load the row that a foreign key names by itself."""

    def get(self, path: str, *args: Any, **options: Any) -> Any:
        """Ask for a page."""
        if path.startswith("/admin/"):
            return super().get(path, *args, **options)
        with patch.object(ForwardManyToOneDescriptor, "get_object", _refuse):
            return super().get(path, *args, **options)

    def request(self, **request: Any) -> Any:
        """Answer a request, a page without white space."""
        response: HttpResponseBase = super().request(**request)
        if "html" in response.headers.get("Content-Type", "") and not response.streaming:
            response.content = compact(response.content.decode()).encode()  # type: ignore[attr-defined]
        return response
