"""Figures in words, with the same spelling everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from fenceline.compat import UTC

#: Maximum length of an application's or a family's name, in characters.
LONGEST_NAME = 200


def format_duration(ms: int) -> str:
    """Return a duration in at most two units: `850 ms`, `2.1 s`, `14 min 2 s`, `3 h 5 min`, `2 d 4 h`."""
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    if ms < 10_000:
        return f"{ms / 1_000:.1f} s".replace(".0 s", " s")
    seconds = ms // 1_000
    for unit, name, below, lower in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            rest = seconds % unit // below
            return f"{seconds // unit} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{seconds} s"


def shorten(name: str, most: int) -> str:
    """Return a name of limited length, cut in its middle: its end has the partition or task."""
    head = (most - 1) // 2
    return name if len(name) <= most else f"{name[:head]}…{name[head + 1 - most :]}"


def fit_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Cut a longer name; it then ends in 16 hex digits of its SHA-256, so distinct names stay distinct."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 17]}…{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def upper_first(words: str) -> str:
    """Capitalise the first letter; other letters, such as a query's name, stay unchanged."""
    return words[:1].upper() + words[1:]


def count_noun(number: int, noun: str) -> str:
    """Return `1 partition`, `1,204 batches`: grouped digits, and the noun in singular or plural."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("ch"):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def is_are(number: int) -> str:
    """Return the verb for a number of things."""
    return "is" if number == 1 else "are"


def format_clock(ms: int) -> str:
    """Return an instant as `12:17:31 UTC`."""
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%H:%M:%S} UTC"


def rough_count(number: float) -> str:
    """Return `7`, `40+`, `1,000+`: only the first digit, so that sentences stay while a number grows."""
    whole = int(number)
    if whole < 10:
        return str(whole)
    step: int = 10 ** (len(str(whole)) - 1)
    return f"{whole // step * step:,}+"


def error_line(error: Exception) -> str:
    """Return the text of an error in one line of at most 300 characters: stores raise any error."""
    return " ".join(str(error).split())[:300] or "no reason given"


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`; "" without any."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
