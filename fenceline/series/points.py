"""Which figures are kept of what, and when another point is worth keeping.

A point has the figures of one poll. It holds until the next one, so what does not change costs nothing. A
ramp, the age of something, grows by itself meanwhile: polls that find it so write no point, and the last of
them becomes one when it grows no more. A point without any figure means that from then on the subject could
not be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

#: By column; None where it is not known.
Values = tuple[int | None, ...]

#: An age that is off by no more than this, or by a tenth, is no news.
_AGE_NEWS_MS = 1_000
#: Younger things come and go: their age is a figure like others.
_GROWS_FROM_MS = 5_000


class Resolution(IntEnum):
    """How fine figures are kept: each change, the extents of minutes, or those of hours."""

    DETAIL = 0
    MINUTE = 1
    HOUR = 2

    @property
    def span_ms(self) -> int:
        """Return how long one of them is; a change has an instant."""
        return _SPANS_MS[self]


_SPANS_MS = (0, 60_000, 3_600_000)


class SeriesColumn(NamedTuple):
    """One figure of a series; a ramp is an age in ms, which grows with time."""

    name: str
    ramp: bool = False


@dataclass(frozen=True, slots=True)
class SeriesKind:
    """What a series is about, and which figures it has."""

    name: str
    #: What stands for it in the database; never used for another one again.
    code: int
    columns: tuple[SeriesColumn, ...]
    #: The figure by which the worst subjects are found.
    lead: int

    @property
    def hole(self) -> Values:
        """Return the figures of a subject that cannot be seen."""
        return (None,) * len(self.columns)

    @property
    def has_ramps(self) -> bool:
        """Return whether any of its figures grows by itself."""
        return any(column.ramp for column in self.columns)


#: `uncommitted` is high watermark minus LSO.
PARTITION = SeriesKind("partition", 1, (SeriesColumn("lso"), SeriesColumn("uncommitted")), lead=1)
#: Lag to the LSO and to the high watermark, age of the oldest unread record, partitions that are BLOCKED.
GROUP = SeriesKind(
    "group",
    2,
    (
        SeriesColumn("lag_lso"),
        SeriesColumn("lag_hw"),
        SeriesColumn("lag_ms", ramp=True),
        SeriesColumn("blocked"),
    ),
    lead=1,
)
#: An application's figures, "" for the whole cluster: open transactions, the age of the oldest, the offsets
#: between LSO and high watermark of the partitions that they block.
APPLICATION = SeriesKind(
    "application",
    3,
    (SeriesColumn("open"), SeriesColumn("oldest_ms", ramp=True), SeriesColumn("blocked")),
    lead=2,
)
KINDS = (PARTITION, GROUP, APPLICATION)


class SeriesPoint(NamedTuple):
    """The figures of one poll."""

    at_ms: int
    values: Values


class Extent(NamedTuple):
    """The least, the greatest and the last of a figure in some time; None where none was known."""

    low: int | None
    high: int | None
    last: int | None


class SeriesBucket(NamedTuple):
    """The extents of a series in a minute or an hour, by column; the last ones are those at its end."""

    at_ms: int
    extents: tuple[Extent, ...]


NOTHING = Extent(None, None, None)


def extents_of(values: Values) -> tuple[Extent, ...]:
    """Return figures as the extents of their instant."""
    return tuple([Extent(value, value, value) for value in values])


def join_extents(one: Extent, later: Extent) -> Extent:
    """Return the extent of two times together, the second of which is the later one."""
    # Written out: a day of the worst groups widens tens of thousands of times.
    low, high, _ = one
    if low is None or (later.low is not None and later.low < low):
        low = later.low
    if high is None or (later.high is not None and later.high > high):
        high = later.high
    return Extent(low, high, later.last)


def values_at(
    kind: SeriesKind, known: SeriesPoint, at_ms: int, following: SeriesBucket | None = None
) -> Values:
    """Return what figures have become by an instant without another point.

    An age has grown with time, unless what was found next shows that it has not.
    """
    elapsed_ms = at_ms - known.at_ms
    if elapsed_ms <= 0 or not kind.has_ramps:
        return known.values
    ages = [column.ramp and _is_growing(known, n, following) for n, column in enumerate(kind.columns)]
    return tuple(
        value + elapsed_ms if grows and value is not None else value
        for value, grows in zip(known.values, ages, strict=True)
    )


def _is_growing(known: SeriesPoint, column: int, following: SeriesBucket | None) -> bool:
    value = known.values[column]
    if value is None or value < _GROWS_FROM_MS:
        return False
    high = None if following is None else following.extents[column].high
    if following is None or high is None:
        return True
    expected = value + following.at_ms - known.at_ms
    return high >= expected - max(_AGE_NEWS_MS, expected // 10)


def end_of_growth(
    kind: SeriesKind, before: SeriesPoint, now: SeriesPoint, polled_ms: int
) -> SeriesPoint | None:
    """Return what the poll before found of ages that grow no more; None where there is nothing to add.

    `polled_ms` is when that was: it wrote no point, since all had grown as expected.
    """
    if not before.at_ms < polled_ms < now.at_ms:
        return None
    values = values_at(kind, before, polled_ms)
    on = values_at(kind, before, now.at_ms, SeriesBucket(now.at_ms, extents_of(now.values)))
    ended = any(
        column.ramp and at_poll != value and at_now == value
        for column, value, at_poll, at_now in zip(kind.columns, before.values, values, on, strict=True)
    )
    return SeriesPoint(polled_ms, values) if ended else None


def is_news(kind: SeriesKind, before: SeriesPoint, now: SeriesPoint) -> bool:
    """Return whether figures differ from what the point before has of this instant."""
    if not kind.has_ramps:
        return before.values != now.values
    expected = values_at(kind, before, now.at_ms)
    return any(map(_differs, kind.columns, expected, now.values))


def _differs(column: SeriesColumn, expected: int | None, value: int | None) -> bool:
    if not column.ramp or not value or not expected:
        return expected != value
    return abs(value - expected) > max(_AGE_NEWS_MS, expected // 10)


def known_values(values: Sequence[int | None]) -> bool:
    """Return whether any figure is known."""
    return any(value is not None for value in values)
