"""Markdown of our own documentation as HTML for a page.

By markdown-it-py, which follows CommonMark, escapes HTML and refuses addresses that run code; the lock file
has it anyway.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fenceline.limits import Limits

RULES: Path = settings.ROOT / "docs" / "rules"
_BESIDE = re.compile(r"\A(\w+)\.md(?:#.*)?\Z")
_OTHER_FILE = re.compile(r"\A\.\./([\w/-]+\.md)(?:#.*)?\Z")
#: A row of a table of limits: "| `late_grace_s` | 15 | seconds after its timeout |".
_LIMIT_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)
_LIMIT_HEAD = "| limit | default | |"
#: A row of the index: "| [{rule}]({rule}.md) | transaction | critical | what is open |".
_INDEX_ROW = re.compile(r"^\| \[(\w+)\]\(\1\.md\) \| (.+?) \| (.+?) \| .+? \|$", re.MULTILINE)
_READER = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule in the documentation's index."""

    name: str
    #: Kinds of subjects: "transaction, application".
    about: str
    #: The possible severities of its findings, the mildest first.
    severities: Sequence[str]
    means: str


def render_rule(name: str, limits: Limits) -> SafeString | None:
    """Return a rule's page without its title, with the limits in effect; None for a rule without one.

    `name` must not contain a path.
    """
    path = RULES / f"{name}.md"
    return _rendered(path, path.stat().st_mtime_ns, limits) if path.is_file() else None


def rule_index() -> Sequence[RuleEntry]:
    """Return every rule in the order of the documentation's index; empty without an index."""
    path = RULES / "README.md"
    return _index(path, path.stat().st_mtime_ns) if path.is_file() else ()


@lru_cache(maxsize=8)
def _index(path: Path, _: int) -> Sequence[RuleEntry]:
    rows = _INDEX_ROW.findall(path.read_text())
    return tuple(
        RuleEntry(name, about, severities.split(", "), _meaning(path.with_name(f"{name}.md")))
        for name, about, severities in rows
    )


def _meaning(page: Path) -> str:
    """Return the sentence below the title of a rule's page."""
    return page.read_text().split("\n", 2)[1]


@lru_cache(maxsize=128)
def _rendered(path: Path, _: int, limits: Limits) -> SafeString:
    text = _with_limits(path.read_text(), limits)
    title, rest = text.split("\n", 1) if "\n" in text else (text, "")
    tokens = _READER.parse(rest if title.startswith("# ") else text)
    # Links lead to pages of this dashboard where a page exists.
    for token in tokens:
        if token.children:
            token.children = list(_linked(token.children))
    for opens, inside, closes in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opens.type == "th_open" and not inside.content:
            # A screen reader announces an empty heading as none.
            opens.tag = closes.tag = "td"
    html: str = _READER.renderer.render(tokens, _READER.options, {})
    return mark_safe(html)  # noqa: S308 - HTML in it was escaped


def _with_limits(text: str, limits: Limits) -> str:
    """Replace each default in tables of limits by the value in effect, with the default if it differs."""
    values = asdict(limits)

    def effective(row: re.Match[str]) -> str:
        name, default = row.groups()
        value = values.get(name, float(default))
        was = "" if value == float(default) else f" (default {default})"
        return f"| `{name}` | {plain_number(value)}{was} |"

    return _LIMIT_ROW.sub(effective, text).replace(_LIMIT_HEAD, "| limit | value | |")


def plain_number(value: float) -> str:
    """Return a limit as the configuration file spells it: 60, 1.5."""
    return str(int(value)) if value == int(value) else str(value)


def _linked(children: Sequence[Token]) -> Iterator[Token]:
    file = ""
    for token in children:
        if token.type == "link_open":
            href = str(token.attrGet("href"))
            beside, other = _BESIDE.match(href), _OTHER_FILE.match(href)
            if beside:
                token.attrSet("href", "../rules" if beside[1] == "README" else beside[1])
            elif other:
                file = f"docs/{other[1]}"
                continue
        elif token.type == "link_close" and file:
            yield Token("text", "", 0, content=f" ({file})")
            file = ""
            continue
        yield token
