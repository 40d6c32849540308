"""A range of a series as steps on a time axis, few enough for a chart, with the holes between them.

Each step has the extents of the values in it, carried over from the last point before if nothing changed.
Nothing is carried through a hole: values in a hole are unknown, and never interpolated.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from fenceline.series.points import (
    NOTHING,
    Extent,
    Resolution,
    SeriesBucket,
    SeriesKind,
    extents_of,
    join_extents,
    known_values,
    values_at,
)
from fenceline.series.rollup import SeriesTile, as_of_end, greater_known, join_buckets

#: Maximum steps of a range.
MOST_STEPS = 500
_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1_000, 60_000, 3_600_000
#: Lengths of steps that are readable on an axis.
_STEPS_MS = (
    *(n * _SECOND_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR_MS for n in (1, 2, 3, 6, 12, 24, 168)),
)
_DAY_MS = 24 * _HOUR_MS


class HoleReason(IntEnum):
    """Why a period is unknown; of two reasons the first one counts."""

    #: It is before the first record.
    NOT_RECORDED = 0
    #: It is before the start of the stored history.
    NOT_KEPT = 1
    #: The collector did not run, or could not reach the cluster.
    NOT_OBSERVED = 2
    #: Its stored bytes cannot be read.
    DAMAGED = 3
    #: The collector ran, and could not read the subject.
    UNAVAILABLE = 4


class SeriesHole(NamedTuple):
    from_ms: int
    to_ms: int
    reason: HoleReason


class ReadingPlan(NamedTuple):
    """The resolution for reading a range, and the length of its steps."""

    resolution: Resolution
    step_ms: int


class SeriesRun(NamedTuple):
    """Steps without a hole of at least a step between them, and the end of the last one.

    Unchanged steps are omitted: the last figures of the step before held in them.
    """

    steps: Sequence[SeriesBucket]
    until_ms: int


@dataclass(frozen=True, slots=True)
class SeriesReading:
    """A range of a series: its runs, and all holes, oldest first."""

    plan: ReadingPlan
    from_ms: int
    to_ms: int
    runs: Sequence[SeriesRun]
    holes: Sequence[SeriesHole]

    @property
    def steps(self) -> Sequence[SeriesBucket]:
        return [step for run in self.runs for step in run.steps]

    def highs(self, column: int, starts: range) -> Sequence[int | None]:
        """Return the maximum of a column in equal periods; None for an unknown one."""
        highs: list[int | None] = [None] * len(starts)
        for run in self.runs:
            ends = [*(step.at_ms for step in run.steps[1:]), run.until_ms]
            for step, end_ms in zip(run.steps, ends, strict=True):
                first = (step.at_ms - starts.start) // starts.step
                last = (end_ms - 1 - starts.start) // starts.step
                for n in range(max(first, 0), min(last + 1, len(starts))):
                    extent = step.extents[column]
                    highs[n] = greater_known(highs[n], extent.high if n == first else extent.last)
        return highs

    def rows(self, most: int) -> Sequence[SeriesBucket]:
        """Return the steps merged to at most a number, for a table."""
        wanted_ms = -(-(self.to_ms - self.from_ms) // most)
        times = -(-wanted_ms // self.plan.step_ms)
        merged: dict[int, SeriesBucket] = {}
        for step in self.steps:
            key = step.at_ms // (times * self.plan.step_ms)
            merged[key] = join_buckets(merged[key], step) if key in merged else step
        return list(merged.values())


def plan_reading(
    from_ms: int, to_ms: int, kept_since: Mapping[Resolution, int], *, most: int = MOST_STEPS
) -> ReadingPlan:
    """Return how to read a range in at most a number of steps, from the resolutions stored at its begin."""
    wanted = -(-(to_ms - from_ms) // most)
    step_ms = next((step for step in _STEPS_MS if step >= wanted), 0) or -(-wanted // _DAY_MS) * _DAY_MS
    fine = [resolution for resolution in Resolution if resolution.span_ms <= step_ms]
    coarse = [resolution for resolution in Resolution if resolution.span_ms > step_ms]
    # The coarsest sufficient resolution is the fastest to read.
    for resolution in chain(reversed(fine), coarse):
        if kept_since[resolution] <= from_ms:
            return ReadingPlan(resolution, max(step_ms, resolution.span_ms))
    return ReadingPlan(Resolution.HOUR, max(step_ms, Resolution.HOUR.span_ms))


def read_tiles(
    kind: SeriesKind,
    tiles: Sequence[SeriesTile],
    plan: ReadingPlan,
    *,
    from_ms: int,
    to_ms: int,
    unseen: Iterable[SeriesHole] = (),
) -> SeriesReading:
    """Return the content of adjacent tiles, oldest first, in a range; `unseen`: more unknown periods."""
    buckets = [bucket for tile in tiles for bucket in tile.buckets or ()]
    gaps = [*unseen, *_damaged(tiles, from_ms, to_ms), *_unavailable(buckets, plan, to_ms)]
    holes = list(disjoint_holes(gaps, from_ms, to_ms))
    steps = _Steps(kind, plan, from_ms, to_ms, holes)
    return SeriesReading(plan, from_ms, to_ms, steps.read(buckets), holes)


def disjoint_holes(holes: Iterable[SeriesHole], from_ms: int, to_ms: int) -> Iterator[SeriesHole]:
    """Yield holes within a range without overlaps, oldest first; adjacent ones are joined."""
    edges: list[tuple[int, int, int]] = []
    for hole in holes:
        start_ms, end_ms = max(hole.from_ms, from_ms), min(hole.to_ms, to_ms)
        if start_ms < end_ms:
            edges += [(start_ms, hole.reason, 1), (end_ms, hole.reason, -1)]
    number = [0] * len(HoleReason)
    since_ms, current = from_ms, None
    for at_ms, changes in groupby(sorted(edges), key=itemgetter(0)):
        for _, reason, change in changes:
            number[reason] += change
        now = next((reason for reason in HoleReason if number[reason]), None)
        if now is not current:
            if current is not None:
                yield SeriesHole(since_ms, at_ms, current)
            since_ms, current = at_ms, now


def not_observed(
    spans: Iterable[tuple[int, int]], from_ms: int, to_ms: int, *, pause_ms: int
) -> Iterator[SeriesHole]:
    """Yield the parts of a range outside of all observed spans; each span begins before its end.

    The last poll may be `pause_ms` before the end: use more than 0 for a range that ends now.
    """
    begin = from_ms
    for start_ms, end_ms in sorted(spans):
        if begin < start_ms:
            yield SeriesHole(begin, start_ms, HoleReason.NOT_OBSERVED)
        begin = max(begin, end_ms)
    if begin + pause_ms < to_ms:
        yield SeriesHole(begin, to_ms, HoleReason.NOT_OBSERVED)


def _damaged(tiles: Sequence[SeriesTile], from_ms: int, to_ms: int) -> Iterator[SeriesHole]:
    for tile in tiles:
        if tile.buckets is None:
            yield SeriesHole(tile.start_ms, tile.until_ms, HoleReason.DAMAGED)
    for tile, following in pairwise(tiles):
        yield SeriesHole(tile.until_ms, following.start_ms, HoleReason.DAMAGED)
    if tiles:
        yield SeriesHole(from_ms, tiles[0].start_ms, HoleReason.DAMAGED)
        yield SeriesHole(tiles[-1].until_ms, to_ms, HoleReason.DAMAGED)


def _unavailable(buckets: Sequence[SeriesBucket], plan: ReadingPlan, to_ms: int) -> Iterator[SeriesHole]:
    """Yield the periods from buckets with unknown last figures to those with a known one."""
    since_ms: int | None = None
    for bucket in buckets:
        if known_values([extent.last for extent in bucket.extents]):
            if since_ms is not None:
                yield SeriesHole(since_ms, bucket.at_ms, HoleReason.UNAVAILABLE)
            since_ms = None
        elif since_ms is None:
            partly = known_values([extent.high for extent in bucket.extents])
            since_ms = bucket.at_ms + (plan.resolution.span_ms if partly else 0)
    if since_ms is not None:
        yield SeriesHole(since_ms, to_ms, HoleReason.UNAVAILABLE)


class _Read(NamedTuple):
    step: SeriesBucket
    moved: bool


class _Steps:
    """The steps of a range, read one after the other."""

    def __init__(
        self, kind: SeriesKind, plan: ReadingPlan, from_ms: int, to_ms: int, holes: Sequence[SeriesHole]
    ) -> None:
        self._kind, self._resolution, self._step_ms = kind, plan.resolution, plan.step_ms
        self._span_ms = plan.resolution.span_ms
        self._nothing: tuple[Extent, ...] = (NOTHING,) * len(kind.columns)
        self._from_ms, self._to_ms = from_ms, to_ms
        self._holes, self._hole_starts = holes, [hole.from_ms for hole in holes]
        self._newest: SeriesBucket | None = None

    def read(self, buckets: Sequence[SeriesBucket]) -> Sequence[SeriesRun]:
        """Return the readable steps with changes."""
        place = 0
        while place < len(buckets) and buckets[place].at_ms + self._span_ms <= self._from_ms:
            self._newest = buckets[place]
            place += 1
        runs: list[list[_Read]] = [[]]
        for start_ms in self._step_starts(buckets):
            begun, end_ms = place, min(start_ms + self._step_ms, self._to_ms)
            while place < len(buckets) and buckets[place].at_ms < end_ms:
                place += 1
            following = buckets[place] if place < len(buckets) else None
            step = self._step(max(start_ms, self._from_ms), end_ms, buckets[begun:place], following)
            if step is None:
                runs.append([])
            else:
                runs[-1].append(_Read(step, place > begun))
        return [self._run(run) for run in runs if run]

    def _step_starts(self, buckets: Sequence[SeriesBucket]) -> Sequence[int]:
        """Return the steps in which a run can begin, change or end, and the step before each.

        Nothing happens in other steps: an hour has 300 steps, and a quiet group a few buckets.
        """
        step_ms, first_ms = self._step_ms, self._from_ms - self._from_ms % self._step_ms
        last_ms = self._to_ms - 1 - (self._to_ms - 1) % step_ms
        edges = chain.from_iterable((hole.from_ms, hole.to_ms) for hole in self._holes)
        events = {at_ms - at_ms % step_ms for at_ms in chain((bucket.at_ms for bucket in buckets), edges)}
        around = (at_ms + n * step_ms for at_ms in events for n in (-1, 0, 1))
        return sorted({first_ms, last_ms, *(at_ms for at_ms in around if first_ms < at_ms < last_ms)})

    def _step(
        self, begin: int, end: int, inside: Sequence[SeriesBucket], following: SeriesBucket | None
    ) -> SeriesBucket | None:
        """Return one step; None if it is completely in a hole, or unknown."""
        extents = self._nothing
        seen_ms = self._first_seen(begin)
        later = inside[0] if inside else following
        if seen_ms < (inside[0].at_ms if inside else end):
            extents = self._held(extents, seen_ms, later)
        for bucket in inside:
            if (self._span_ms or bucket.at_ms > begin) and self._was_seen_before(bucket.at_ms):
                extents = self._held(extents, bucket.at_ms, bucket)
            extents = tuple(map(join_extents, extents, bucket.extents))
            self._newest = bucket
        if self._was_seen_before(end):
            extents = self._held(extents, end, following)
        known = seen_ms < end and any(extent.high is not None for extent in extents)
        return SeriesBucket(begin, extents) if known else None

    def _held(
        self, extents: tuple[Extent, ...], at_ms: int, following: SeriesBucket | None
    ) -> tuple[Extent, ...]:
        """Return extents with the newest figures' values at an instant."""
        newest, has_any = self._newest, extents is not self._nothing
        # Figures without growth are already in non-empty extents: from their own bucket, or from the start.
        if newest is None or (has_any and at_ms <= newest.at_ms + self._span_ms):
            return extents
        known = as_of_end(newest, self._resolution)
        values = values_at(self._kind, known, at_ms, following)
        if (has_any and values is known.values) or not known_values(values):
            return extents
        return tuple(map(join_extents, extents, extents_of(values)))

    def _was_seen_before(self, at_ms: int) -> bool:
        return self._first_seen(at_ms - 1) == at_ms - 1

    def _first_seen(self, at_ms: int) -> int:
        """Return the first instant from `at_ms` on that is in no hole."""
        place = bisect_right(self._hole_starts, at_ms) - 1
        while 0 <= place < len(self._holes) and at_ms < self._holes[place].to_ms:
            at_ms = self._holes[place].to_ms
            place = bisect_right(self._hole_starts, at_ms) - 1
        return at_ms

    def _run(self, run: Sequence[_Read]) -> SeriesRun:
        last_ms = run[-1].step.at_ms
        end_ms = min(last_ms - last_ms % self._step_ms + self._step_ms, self._to_ms)
        starts = (hole.from_ms for hole in self._holes if last_ms < hole.from_ms < end_ms)
        return SeriesRun(list(self._telling(run)), min(starts, default=end_ms))

    def _telling(self, run: Sequence[_Read]) -> Iterator[SeriesBucket]:
        """Yield the steps that a drawing of the run needs: for a ramp also its end."""
        for n, bucket in enumerate(run):
            at_edge = n in (0, len(run) - 1)
            before_change = self._kind.has_ramps and not at_edge and run[n + 1].moved
            if bucket.moved or at_edge or before_change:
                yield bucket.step
