"""Markdown of our own documentation as HTML that a page may hold.

By markdown-it-py, which follows CommonMark, escapes HTML and refuses addresses that run code; the lock file
has it anyway.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

RULES: Path = settings.ROOT / "docs" / "rules"
_BESIDE = re.compile(r"\A(\w+)\.md\Z")
_READER = MarkdownIt("commonmark", {"html": False}).enable("table")


def rule(name: str) -> SafeString | None:
    """Return a rule's page without its title, None for a rule that has none. `name` holds no path."""
    path = RULES / f"{name}.md"
    return _rendered(path, path.stat().st_mtime_ns) if path.is_file() else None


@lru_cache(maxsize=128)
def _rendered(path: Path, _: int) -> SafeString:
    text = path.read_text()
    title, rest = text.split("\n", 1) if "\n" in text else (text, "")
    tokens = _READER.parse(rest if title.startswith("# ") else text)
    for link in (each for token in tokens for each in token.children or () if each.type == "link_open"):
        # Pages of other rules lie beside this one, in the documentation as here.
        link.attrSet("href", _BESIDE.sub(r"\1", str(link.attrGet("href"))))
    for opens, inside, closes in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opens.type == "th_open" and not inside.content:
            # A heading that says nothing is none to a screen reader.
            opens.tag = closes.tag = "td"
    html: str = _READER.renderer.render(tokens, _READER.options, {})
    return mark_safe(html)  # noqa: S308 - HTML in it was escaped
