"""One series as its store keeps it, and polls at random to fill it."""

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from fenceline.series import rollup
from fenceline.series.points import Resolution, SeriesKind, SeriesPoint
from fenceline.series.rollup import ClosedChunk, SeriesTile, add_point, roll_up

NOW_MS = 1_795_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class Kept:
    """One series as its store keeps it."""

    def __init__(self, kind: SeriesKind, most: int) -> None:
        self.kind, self.most = kind, most
        self.points = self.minutes = self.hours = b""
        self.open_ms = 0
        self.chunks: list[ClosedChunk] = []
        self.polled_ms = 0

    def add(self, point: SeriesPoint) -> bool:
        added = add_point(self.kind, self.points, point, most=self.most, polled_ms=self.polled_ms)
        self.polled_ms = point.at_ms
        if added is None:
            return False
        points, closed = added
        if closed is not None:
            parts = closed, self.minutes, self.hours
            chunks, (self.minutes, _), (self.hours, _), _ = roll_up(
                self.kind, *parts, start_ms=self.open_ms, following=point
            )
            self.chunks += chunks
        if closed is not None or not self.points:
            self.open_ms = point.at_ms
        self.points = points
        return True

    def tiles(self, resolution: Resolution, now_ms: int) -> list[SeriesTile]:
        tiles = [
            rollup.closed_tile(
                self.kind, each.packed, resolution, start_ms=each.start_ms, until_ms=each.until_ms
            )
            for each in self.chunks
            if each.resolution is resolution
        ]
        opened = rollup.OpenParts(self.open_ms, self.points, self.minutes, self.hours)
        return [*tiles, *rollup.open_tiles(self.kind, opened, resolution, until_ms=now_ms)]


CHANGES = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 5_000), st.integers(1, 20 * MINUTE_MS), st.integers(1, 30 * HOUR_MS)),
        st.one_of(st.none(), st.integers(0, 50)),
    ),
    min_size=1,
    max_size=150,
)


def polled(kind: SeriesKind, changes: Sequence[tuple[int, int | None]], start_ms: int) -> list[SeriesPoint]:
    at_ms, found = start_ms, []
    for pause_ms, value in changes:
        at_ms += pause_ms
        found.append(SeriesPoint(at_ms, (value,) * len(kind.columns)))
    return found


def kept_of(kind: SeriesKind, points: Iterable[SeriesPoint], most: int = 5) -> tuple[Kept, list[SeriesPoint]]:
    kept = Kept(kind, most)
    return kept, [point for point in points if kept.add(point)]


def least(*values: int | None) -> int | None:
    return min((each for each in values if each is not None), default=None)


def most_of(*values: int | None) -> int | None:
    return max((each for each in values if each is not None), default=None)
