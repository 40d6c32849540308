"""Histories of a partition's offsets: its ends, for lag in seconds and the age of records, and its log
starts.

The history of ends has points at least five seconds apart for the last five minutes, and fewer for the hour
before. An end that stood still leaves two points: when it began to stand, and when it was last seen to stand.
So the time of a record after a silence is not spread over the silence. Log starts show how fast logs lose
records there, because retention may overtake a reader.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fenceline.facts import TopicPartition

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


def pack_ends(ends: Sequence[EndOffset]) -> str:
    """Pack ends, oldest first, as compact JSON text: [[at_ms, lso, high watermark], …]."""
    return json.dumps(ends, separators=(",", ":")) if ends else ""


def unpack_ends(text: str) -> tuple[EndOffset, ...]:
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


def passed_ms(ends: Sequence[EndOffset], offset: int, *, committed: bool) -> int | None:
    """Return when the end passed an offset, so that its record became readable: interpolated between two
    points; None if it has not, or had before the history begins.

    The end is the LSO if `committed`, else the high watermark. `ends` are in order of time.
    """
    before: tuple[int, int] | None = None
    for at_ms, lso, high_watermark in ends:
        end = lso if committed else high_watermark
        if end > offset:
            if before is None:
                return None
            earliest_ms, start = before
            share = (offset + 1 - start) / (end - start)
            return earliest_ms + round((at_ms - earliest_ms) * share)
        before = at_ms, end
    return None


class LogStarts:
    """The log starts of partitions over the last hour, and the deletion rates that follow."""

    #: Minimum distance of points, their maximum age, and the minimum span of a rate.
    APART_MS, LONGEST_MS, LEAST_MS = 30_000, 3_600_000, 120_000

    def __init__(self) -> None:
        self._points: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def record_starts(self, starts: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Record the current log starts; partitions that are not given are forgotten."""
        self._points = {where: self._points.get(where, deque()) for where in starts}
        for where, start in starts.items():
            points = self._points[where]
            if points and start < points[-1][1]:
                points.clear()
            if len(points) > 1 and points[-1][0] - points[-2][0] < self.APART_MS:
                points.pop()
            points.append((now_ms, start))
            while now_ms - points[0][0] > self.LONGEST_MS:
                points.popleft()

    def deletion_rate(self, where: TopicPartition) -> float | None:
        """Return how many records a second a log loses at its start; None while unknown."""
        points = self._points.get(where)
        if not points:
            return None
        (first_ms, first), (last_ms, last) = points[0], points[-1]
        spent_ms = last_ms - first_ms
        return None if spent_ms < self.LEAST_MS else (last - first) * 1_000 / spent_ms
