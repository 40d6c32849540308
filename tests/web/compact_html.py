"""Pages without the white space that their templates are laid out with, as a browser shows them."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponseBase
from django.test import Client

_BLOCKS = (
    "article|aside|body|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|g|h[1-6]|head|"
    "header|hr|html|legend|li|line|link|main|meta|nav|ol|option|p|pre|rect|script|section|select|summary|svg|"
    "table|tbody|td|text|textarea|tfoot|th|thead|title|tr|ul"
)
_KEPT = re.compile(r"(<(pre|textarea)\b.*?</\2>)", re.S)
_TAG = re.compile(r"<[a-zA-Z/][^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>")
_AROUND_BLOCKS = re.compile(rf"\s*(</?(?:{_BLOCKS})\b(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>)\s*")

_HIDDEN = re.compile(r"\s*(<input type=\"hidden\"[^<>]*>)\s*")
_IN_BUTTONS = re.compile(r"(<button\b[^<>]*>)\s*|\s*(</button>)")


def compact(html: str) -> str:
    """Return HTML with one space where there are several, and none beside the tags of blocks."""
    parts = _KEPT.split(html)
    # Split by two groups: text, what is kept as it is, its tag's name, text, …
    shown = [_compact(part) if n % 3 == 0 else part if n % 3 == 1 else "" for n, part in enumerate(parts)]
    return "".join(shown)


def _compact(html: str) -> str:
    html = _TAG.sub(lambda tag: re.sub(r"\s+(/?>)$", r"\1", " ".join(tag[0].split())), html)
    html = _AROUND_BLOCKS.sub(r"\1", re.sub(r"\s+", " ", html))
    return _HIDDEN.sub(r"\1", _IN_BUTTONS.sub(r"\1\2", html))


class CompactClient(Client):
    """A client that gets compact pages."""

    def request(self, **request: Any) -> Any:
        """Answer a request, a page without white space."""
        response: HttpResponseBase = super().request(**request)
        if "html" in response.headers.get("Content-Type", "") and not response.streaming:
            response.content = compact(response.content.decode()).encode()  # type: ignore[attr-defined]
        return response
