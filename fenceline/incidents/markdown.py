"""An incident as Markdown (CommonMark), for a ticket or a postmortem. Pure."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

#: Inline markup of CommonMark or a tracker's dialect; names may contain any of it. A date, a range, and an
#: underscore inside of a name are no markup.
_MARKUP = re.compile(
    r"""[`*~]
    | \\(?=[!-/:-@\[-`{-~]|$)      # an escape, or a line break
    | (?<![^\W_])_ | _(?![^\W_])    # emphasis: not between two letters
    | \](?=[(\[:])                 # a link
    | <(?=[A-Za-z/!?])             # HTML
    | &(?=\#?\w+;)                 # a character by its name
    | (?<![^\ ])\#(?=\#*$)          # the end of a heading""",
    re.VERBOSE,
)
#: Block markup at the begin of a line: a heading, a quotation, a list, a rule.
_BLOCK = re.compile(r"^(\d{0,9})([#>+=.)-])")


#: Name and text of each fact.
Facts = Sequence[tuple[str, str]]
#: Title and lines of each section, in their order; empty ones are omitted. A line is an instant in ms since
#: 1970, and a text.
Sections = Sequence[tuple[str, Sequence[tuple[int, str]]]]


def incident_markdown(number: int, headline: str, facts: Facts, sections: Sections) -> str:
    """Return a report as Markdown; users' texts cannot begin markup."""
    lines = [f"# Incident {number}: {_escaped(headline)}", ""]
    # Together: "[1]" before a colon defines a link.
    lines += ["- " + _BLOCK.sub(r"\1\\\2", _escaped(f"{name}: {text}")) for name, text in facts]
    for title, rows in sections:
        if rows:
            lines += ["", f"## {title}", *(f"- {utc_text(at_ms)} {_escaped(text)}" for at_ms, text in rows)]
    return "\n".join([*lines, ""])


def utc_text(ms: int) -> str:
    """Return an instant as `2026-11-21 12:16:07 UTC`."""
    return f"{datetime.fromtimestamp(ms // 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
