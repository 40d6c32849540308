"""A thin history of where a partition's log ended: for lag in seconds, and for what was written since when.

One point at least five seconds after the other for the last five minutes, fewer of the hour before. An end
that stood for a while leaves a point where it began to stand and one where it was seen to stand last, so that
the time of a record that came after a silence is not spread over the silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: (up to this age, no two points nearer to each other than this), in milliseconds; older ones go.
STEPS = ((300_000, 5_000), (900_000, 30_000), (3_600_000, 120_000))
_OLDEST_MS = STEPS[-1][0]
_NEAREST_MS = STEPS[0][1]
#: Histories are made thin when the newest point is the first of another one of these.
_THIN_MS = 60_000


class EndOffset(NamedTuple):
    """Where a partition's log was readable to, and where it ended, at an instant of our clock."""

    at_ms: int
    lso: int
    high_watermark: int


class Passed(NamedTuple):
    """When an end passed an offset: as a straight line between two points has it, and its bounds."""

    at_ms: int
    #: None where it was past the offset before the history begins.
    earliest_ms: int | None
    latest_ms: int


def pack_ends(ends: Sequence[EndOffset]) -> str:
    """Return ends, oldest first, as compact JSON text: [[at_ms, lso, high watermark], …]."""
    return json.dumps(ends, separators=(",", ":")) if ends else ""


def unpack_ends(text: str) -> tuple[EndOffset, ...]:
    """Return the ends that `pack_ends` wrote."""
    return tuple(EndOffset(*row) for row in json.loads(text or "[]"))


def newest_end(text: str) -> EndOffset | None:
    """Return the newest end of a packed history, without unpacking all of it."""
    if not text:
        return None
    return EndOffset(*map(int, text[text.rindex("[") + 1 : -2].split(",")))


def add_end(text: str, end: EndOffset, stood_ms: int | None) -> str:
    """Return a packed history with another end, if it is time for one; the same text otherwise.

    `stood_ms` is when the end before it was still seen to stand; None where that is not known.
    """
    before = newest_end(text)
    if before is None:
        return pack_ends([end])
    if end[1:] == before[1:] or end.at_ms - before.at_ms < _NEAREST_MS:
        return text
    more = [end]
    if stood_ms is not None and stood_ms - before.at_ms >= _NEAREST_MS:
        more.insert(0, before._replace(at_ms=stood_ms))
    longer = f"{text[:-1]},{pack_ends(more)[1:]}"
    if end.at_ms // _THIN_MS == before.at_ms // _THIN_MS:
        return longer
    return pack_ends(thin_ends(unpack_ends(longer), end.at_ms))


def thin_ends(ends: Sequence[EndOffset], now_ms: int) -> list[EndOffset]:
    """Return the ends that are worth keeping; the oldest one goes only when the next is too old as well."""
    recent = [end for end in ends if now_ms - end.at_ms <= _OLDEST_MS]
    older = ends[: len(ends) - len(recent)]
    return [*older[-1:], *_spaced(recent, now_ms)]


def _spaced(ends: Sequence[EndOffset], now_ms: int) -> Iterator[EndOffset]:
    """Yield the newest end, and the oldest end of each span of time."""
    last: tuple[int, int] | None = None
    for number, end in enumerate(ends):
        space = next(space for age, space in STEPS if now_ms - end.at_ms <= age)
        span = space, end.at_ms // space
        if span != last or number == len(ends) - 1:
            last = span
            yield end


def passed_ms(ends: Sequence[EndOffset], offset: int, *, committed: bool) -> Passed | None:
    """Return when the end passed an offset: when the record there was readable first; None if it is not yet.

    The end is the LSO where `committed`, else the high watermark. `ends` are in order of time.
    """
    before: tuple[int, int] | None = None
    for at_ms, lso, high_watermark in ends:
        end = lso if committed else high_watermark
        if end > offset:
            return _between(before, (at_ms, end), offset)
        before = at_ms, end
    return None


def _between(before: tuple[int, int] | None, after: tuple[int, int], offset: int) -> Passed:
    latest_ms, end = after
    if before is None:
        return Passed(latest_ms, None, latest_ms)
    earliest_ms, start = before
    share = (offset + 1 - start) / (end - start)
    return Passed(earliest_ms + round((latest_ms - earliest_ms) * share), earliest_ms, latest_ms)
