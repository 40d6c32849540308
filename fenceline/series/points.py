"""The stored figures of each kind of subject, and when another point is worth storing.

A point has the figures of one poll. It holds until the next one, so unchanged figures cost nothing. A ramp,
such as an age, grows by itself: polls that confirm its growth write no point, and the last of them becomes a
point when the growth ends. A point without any figure means that the subject was unreadable from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

#: By column; None if unknown.
Values = tuple[int | None, ...]

#: Maximum deviation of an age that is no news, beside a tenth of it.
_AGE_NEWS_MS = 1_000
#: Younger subjects come and go: their age is a figure like others.
_GROWS_FROM_MS = 5_000


class Resolution(IntEnum):
    """The resolution of stored figures: each change, the extents of minutes, or those of hours."""

    DETAIL = 0
    MINUTE = 1
    HOUR = 2

    @property
    def span_ms(self) -> int:
        """Return the length of one step; a change has only an instant."""
        return _SPANS_MS[self]


_SPANS_MS = (0, 60_000, 3_600_000)


class SeriesColumn(NamedTuple):
    """One figure of a series; a ramp is an age in ms, which grows with time."""

    name: str
    ramp: bool = False


@dataclass(frozen=True, slots=True)
class SeriesKind:
    name: str
    #: Its number in the database; never reused for another kind.
    code: int
    columns: tuple[SeriesColumn, ...]
    #: The figure that ranks the worst subjects.
    lead: int

    @property
    def hole(self) -> Values:
        """Return the figures of an unreadable subject."""
        return (None,) * len(self.columns)

    @property
    def has_ramps(self) -> bool:
        """Whether any of its figures grows by itself."""
        return any(column.ramp for column in self.columns)


#: `uncommitted` is high watermark minus LSO.
PARTITION = SeriesKind("partition", 1, (SeriesColumn("lso"), SeriesColumn("uncommitted")), lead=1)
#: Lag to the LSO and to the high watermark, age of the oldest unread record, and BLOCKED partitions.
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
#: An application's figures, "" for the whole cluster: open transactions, the age of the oldest, and the
#: offsets between LSO and high watermark of the partitions that they block.
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
    """The minimum, the maximum and the last value of a figure in a period; None if none was known."""

    low: int | None
    high: int | None
    last: int | None


class SeriesBucket(NamedTuple):
    """The extents of a series in a minute, an hour or a step of a reading, by column; the last values are
    those at its end."""

    at_ms: int
    extents: tuple[Extent, ...]


NOTHING = Extent(None, None, None)


def extents_of(values: Values) -> tuple[Extent, ...]:
    """Return figures as extents of their instant."""
    return tuple([Extent(value, value, value) for value in values])


def join_extents(one: Extent, later: Extent) -> Extent:
    """Return the extent of two consecutive periods together."""
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
    """Return the values of figures at a later instant without another point.

    An age has grown with time, unless the next observation shows the opposite.
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
    """Return the previous poll's values of ages that no longer grow; None if there is nothing to add.

    `polled_ms` is the instant of that poll: it wrote no point, since all had grown as expected.
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
    """Return whether figures differ from the values of the point before at this instant."""
    if not kind.has_ramps:
        return before.values != now.values
    expected = values_at(kind, before, now.at_ms)
    return any(map(_differs, kind.columns, expected, now.values))


def _differs(column: SeriesColumn, expected: int | None, value: int | None) -> bool:
    if not column.ramp or not value or not expected:
        return expected != value
    return abs(value - expected) > max(_AGE_NEWS_MS, expected // 10)


def known_values(values: Sequence[int | None]) -> bool:
    return any(value is not None for value in values)
