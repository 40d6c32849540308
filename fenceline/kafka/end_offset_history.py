"""A thin history of a partition's end offsets, for lag in seconds and the age of records.

It has points at least five seconds apart for the last five minutes, and fewer for the hour before. An end
that stood still leaves two points: when it began to stand, and when it was last seen to stand. So the time of
a record after a silence is not spread over the silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: (up to this age, minimum distance of points), in milliseconds; older points are dropped.
STEPS = ((300_000, 5_000), (900_000, 30_000), (3_600_000, 120_000))
_OLDEST_MS = STEPS[-1][0]
_NEAREST_MS = STEPS[0][1]
#: A history is thinned when its newest point is the first in another span of this length.
_THIN_MS = 60_000


class EndOffset(NamedTuple):
    """A partition's LSO and high watermark at an instant of our clock."""

    at_ms: int
    lso: int
    high_watermark: int


class Passed(NamedTuple):
    """When an end passed an offset: interpolated between two points, with its bounds."""

    at_ms: int
    #: None if the end was past the offset before the history begins.
    earliest_ms: int | None
    latest_ms: int


def pack_ends(ends: Sequence[EndOffset]) -> str:
    """Pack ends, oldest first, as compact JSON text: [[at_ms, lso, high watermark], …]."""
    return json.dumps(ends, separators=(",", ":")) if ends else ""


def unpack_ends(text: str) -> tuple[EndOffset, ...]:
    """Unpack the ends of `pack_ends`."""
    return tuple(EndOffset(*row) for row in json.loads(text or "[]"))


def newest_end(text: str) -> EndOffset | None:
    """Return the newest end of a packed history, without unpacking all of it."""
    if not text:
        return None
    return EndOffset(*map(int, text[text.rindex("[") + 1 : -2].split(",")))


def add_end(text: str, end: EndOffset, stood_ms: int | None) -> str:
    """Append an end to a packed history if the last point is old enough; else return the same text.

    `stood_ms` is when the previous end was last seen to stand; None if unknown.
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
    """Thin the ends; the oldest is dropped only if the next one is too old as well."""
    recent = [end for end in ends if now_ms - end.at_ms <= _OLDEST_MS]
    older = ends[: len(ends) - len(recent)]
    return [*older[-1:], *_spaced(recent, now_ms)]


def _spaced(ends: Sequence[EndOffset], now_ms: int) -> Iterator[EndOffset]:
    """Yield the newest end, and the oldest end of each span."""
    last: tuple[int, int] | None = None
    for number, end in enumerate(ends):
        space = next(space for age, space in STEPS if now_ms - end.at_ms <= age)
        span = space, end.at_ms // space
        if span != last or number == len(ends) - 1:
            last = span
            yield end


def passed_ms(ends: Sequence[EndOffset], offset: int, *, committed: bool) -> Passed | None:
    """Return when the end passed an offset, so that its record became readable; None if it has not.

    The end is the LSO if `committed`, else the high watermark. `ends` are in order of time.
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
