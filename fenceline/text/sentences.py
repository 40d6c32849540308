"""Sentences with instants and ages, which a page keeps ticking and a file writes out. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from fenceline.formatting import format_clock, format_duration


class Instant(NamedTuple):
    """An instant within a sentence, in ms since 1970: `02:27:50 UTC`."""

    at_ms: int


class Age(NamedTuple):
    """The age of an instant: `12 min 2 s`."""

    since_ms: int


#: The parts of a sentence, in order.
Sentence = tuple[str | Instant | Age, ...]


def plain_text(sentence: Sequence[str | Instant | Age], *, now_ms: int) -> str:
    """Return a sentence as text, with its ages at an instant."""
    return "".join(_plain(part, now_ms) for part in sentence)


def as_of(sentence: Sequence[str | Instant | Age], at_ms: int) -> Sentence:
    """Return a sentence with fixed ages, as of an instant."""
    return tuple(_plain(part, at_ms) if isinstance(part, Age) else part for part in sentence)


def _plain(part: str | Instant | Age, now_ms: int) -> str:
    if isinstance(part, Instant):
        return format_clock(part.at_ms)
    if isinstance(part, Age):
        # Fractions of a second would only flicker.
        age_ms = max(0, now_ms - part.since_ms)
        return format_duration(age_ms // 1_000 * 1_000)
    return part
