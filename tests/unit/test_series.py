"""Proves that figures over time keep what was seen: bytes give back what was packed or say that they are
damaged; minutes and hours have the least, greatest and last figure; a range shows what held in it, carried
over where nothing changed, and nothing where nothing was seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.series import packing, rollup
from fenceline.series.packing import DamagedSeries, PackedRow, add_row, pack_rows, unpack_rows
from fenceline.series.points import (
    APPLICATION,
    GROUP,
    KINDS,
    PARTITION,
    Resolution,
    SeriesKind,
    SeriesPoint,
    extents_of,
    is_news,
)
from fenceline.series.reading import (
    MOST_STEPS,
    HoleReason,
    ReadingPlan,
    SeriesHole,
    SeriesReading,
    apart,
    not_observed,
    plan_reading,
    read_tiles,
)
from fenceline.series.rollup import ClosedChunk, SeriesTile, add_point, merge_buckets, roll_up

NOW_MS = 1_795_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[NUMBERS] * width), min_size=1, max_size=40).flatmap(
        lambda numbers: st.lists(
            st.integers(1, 10**7), min_size=len(numbers), max_size=len(numbers)
        ).map(lambda steps: [PackedRow(sum(steps[: n + 1]), row) for n, row in enumerate(numbers)])
    )
)  # fmt: skip


@given(ROWS)
def test_rows_come_back_as_they_were_packed(rows: list[PackedRow]) -> None:
    packed = pack_rows(rows)
    assert unpack_rows(packed, len(rows[0].numbers)) == rows
    assert packing.newest_row(packed, len(rows[0].numbers)) == rows[-1]
    assert packing.count_rows(packed) == len(rows)


@given(ROWS)
def test_rows_added_one_by_one_are_the_same_bytes(rows: list[PackedRow]) -> None:
    packed = b""
    for row in rows:
        packed = add_row(packed, row)
    assert packed == pack_rows(rows)


def test_a_row_that_is_not_newer_is_refused() -> None:
    packed = add_row(b"", PackedRow(7, (1,)))
    with pytest.raises(ValueError, match="not after"):
        add_row(packed, PackedRow(7, (2,)))


@given(ROWS, st.data())
def test_damaged_bytes_are_found_to_be_damaged(rows: list[PackedRow], data: st.DataObject) -> None:
    packed, width = pack_rows(rows), len(rows[0].numbers)
    place = data.draw(st.integers(0, len(packed) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    flipped = packed[:place] + bytes([packed[place] ^ bit]) + packed[place + 1 :]
    for damaged in (flipped, packed[:place] or b"\0", packed + b"\0"):
        with pytest.raises(DamagedSeries):
            unpack_rows(damaged, width)
        with pytest.raises(DamagedSeries):
            add_row(damaged, PackedRow(rows[-1].at + 1, rows[-1].numbers))


@given(st.binary(min_size=1, max_size=60), st.integers(1, 12))
def test_any_bytes_are_rows_or_damaged(content: bytes, width: int) -> None:
    for packed in (content, packing._sealed(content)):
        try:
            rows = unpack_rows(packed, width)
        except DamagedSeries:
            continue
        assert all(len(row.numbers) == width for row in rows)


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
        if added.closed is not None:
            parts = added.closed, self.minutes, self.hours
            rolled = roll_up(self.kind, *parts, start_ms=self.open_ms, following=point)
            self.minutes, self.hours = rolled.minutes, rolled.hours
            self.chunks += rolled.chunks
        if added.closed is not None or not self.points:
            self.open_ms = point.at_ms
        self.points = added.points
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


@given(CHANGES, st.integers(2, 9))
def test_each_change_is_kept_and_chunks_lie_side_by_side(
    changes: list[tuple[int, int | None]], most: int
) -> None:
    kept, points = kept_of(PARTITION, polled(PARTITION, changes, NOW_MS), most)
    until_ms = points[-1].at_ms + 1
    tiles = kept.tiles(Resolution.DETAIL, until_ms)
    assert [(each.at_ms, each.extents) for tile in tiles for each in tile.buckets or ()] == [
        (point.at_ms, extents_of(point.values)) for point in points
    ]
    for resolution in Resolution:
        tiles = kept.tiles(resolution, until_ms)
        assert all(one.until_ms == other.start_ms for one, other in pairwise(tiles))
        assert tiles[0].start_ms <= points[0].at_ms
        assert tiles[-1].until_ms == until_ms


@given(CHANGES, st.integers(2, 9))
@settings(deadline=None)
def test_minutes_and_hours_have_the_least_the_greatest_and_the_last(
    changes: list[tuple[int, int | None]], most: int
) -> None:
    kept, points = kept_of(PARTITION, polled(PARTITION, changes, NOW_MS), most)
    for resolution in Resolution.MINUTE, Resolution.HOUR:
        span_ms = resolution.span_ms
        found: dict[int, list[int | None]] = {}
        for point in points:
            found.setdefault(point.at_ms // span_ms * span_ms, []).append(point.values[0])
        tiles = kept.tiles(resolution, points[-1].at_ms)
        buckets = [each for tile in tiles for each in tile.buckets or ()]
        merged: dict[int, tuple[int | None, int | None, int | None]] = {}
        for each in buckets:
            low, high, last = each.extents[0]
            before = merged.get(each.at_ms, (None, None, None))
            merged[each.at_ms] = least(before[0], low), most_of(before[1], high), last
        assert merged == {
            at_ms: (least(*values), most_of(*values), values[-1]) for at_ms, values in found.items()
        }


def least(*values: int | None) -> int | None:
    return min((each for each in values if each is not None), default=None)


def most_of(*values: int | None) -> int | None:
    return max((each for each in values if each is not None), default=None)


@given(CHANGES)
def test_the_peak_of_a_chunk_is_its_greatest_figure(changes: list[tuple[int, int | None]]) -> None:
    kept, _ = kept_of(GROUP, polled(GROUP, changes, NOW_MS))
    for chunk in kept.chunks:
        if chunk.resolution is Resolution.DETAIL:
            points = packing.unpack_points(chunk.packed, len(GROUP.columns))
            assert chunk.peak == most_of(*(point.values[GROUP.lead] for point in points))
        else:
            buckets = packing.unpack_buckets(chunk.packed, len(GROUP.columns), chunk.resolution)
            assert chunk.peak == most_of(*(each.extents[GROUP.lead].high for each in buckets))


@given(CHANGES, st.data())
@settings(deadline=None)
def test_a_range_shows_what_held_in_each_step(
    changes: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    kept, points = kept_of(PARTITION, polled(PARTITION, changes, NOW_MS))
    span_ms = points[-1].at_ms - NOW_MS
    from_ms = NOW_MS + data.draw(st.integers(0, span_ms))
    to_ms = from_ms + data.draw(st.integers(1, span_ms + 10_000))
    step_ms = plan_reading(from_ms, to_ms, dict.fromkeys(Resolution, 0)).step_ms
    hole = sorted(data.draw(st.tuples(st.integers(from_ms, to_ms), st.integers(from_ms, to_ms))))
    unseen = [SeriesHole(*hole, HoleReason.NOT_OBSERVED)]
    reading = read_tiles(
        PARTITION, kept.tiles(Resolution.DETAIL, to_ms), ReadingPlan(Resolution.DETAIL, step_ms),
        from_ms=from_ms, to_ms=to_ms, unseen=unseen,
    )  # fmt: skip
    assert len(reading.steps) <= MOST_STEPS + 1
    shown = drawn(reading, step_ms)
    for begin in range(from_ms - from_ms % step_ms, to_ms, step_ms):
        start_ms, end_ms = max(begin, from_ms), min(begin + step_ms, to_ms)
        held = held_values(points, reading.holes, start_ms, end_ms)
        assert shown.get(start_ms) == (
            (min(held), max(held), held[-1] if was_known(points, end_ms) else None) if held else None
        )


def held_values(
    points: Sequence[SeriesPoint], holes: Sequence[SeriesHole], start_ms: int, end_ms: int
) -> list[int]:
    """Every figure that held at some instant of a step that was seen, in order."""
    found = []
    ends = [*(point.at_ms for point in points[1:]), end_ms]
    for point, until_ms in zip(points, ends, strict=True):
        begin, end = max(point.at_ms, start_ms), min(until_ms, end_ms)
        seen = end - begin - sum(max(0, min(end, hole.to_ms) - max(begin, hole.from_ms)) for hole in holes)
        # An instant in a hole at which a point was written was seen all the same.
        written = start_ms <= point.at_ms < end_ms
        value = point.values[0]
        if value is not None and (seen > 0 or (written and begin <= end)):
            found.append(value)
    return found if any_seen(holes, start_ms, end_ms) else []


def any_seen(holes: Sequence[SeriesHole], start_ms: int, end_ms: int) -> bool:
    hidden = sum(max(0, min(end_ms, hole.to_ms) - max(start_ms, hole.from_ms)) for hole in holes)
    return hidden < end_ms - start_ms


def was_known(points: Sequence[SeriesPoint], before_ms: int) -> bool:
    last = [point for point in points if point.at_ms < before_ms]
    return bool(last) and last[-1].values[0] is not None


def drawn(reading: SeriesReading, step_ms: int) -> dict[int, tuple[int | None, int | None, int | None]]:
    """Each step of a range, those that were left out as what the one before them says."""
    found: dict[int, tuple[int | None, int | None, int | None]] = {}
    steps = {step.at_ms: tuple(step.extents[0]) for step in reading.steps}
    last = None
    for begin in range(reading.from_ms - reading.from_ms % step_ms, reading.to_ms, step_ms):
        start_ms, end_ms = max(begin, reading.from_ms), min(begin + step_ms, reading.to_ms)
        if start_ms in steps:
            found[start_ms] = steps[start_ms]
            last = steps[start_ms][2]
        elif any_seen(reading.holes, start_ms, end_ms) and last is not None:
            found[start_ms] = (last, last, last)
        else:
            last = None
    return found


def lagging(elapsed_ms: int, behind_ms: int) -> SeriesPoint:
    return SeriesPoint(NOW_MS + elapsed_ms, (0, 5, behind_ms, 1))


def ages(kept: Kept, length_ms: int, step_ms: int = 1_000) -> dict[int, tuple[int | None, ...]]:
    """The age of the oldest unread record in each step that is shown."""
    reading = read_tiles(
        GROUP, kept.tiles(Resolution.DETAIL, NOW_MS + length_ms), ReadingPlan(Resolution.DETAIL, step_ms),
        from_ms=NOW_MS, to_ms=NOW_MS + length_ms,
    )  # fmt: skip
    return {step.at_ms - NOW_MS: step.extents[2] for step in reading.steps}


def test_an_age_that_grows_costs_no_points_and_is_shown_growing() -> None:
    kept = Kept(GROUP, 50)
    polls = [lagging(elapsed, 6_000 + elapsed) for elapsed in range(0, 200_000, 2_000)]
    assert [kept.add(point) for point in polls] == [True] + [False] * 99
    assert kept.add(lagging(200_000, 0))
    assert packing.count_rows(kept.points) == 3, "what the last poll before found is kept with it"
    shown = ages(kept, 300_000)
    assert shown[0] == (6_000, 7_000, 7_000)
    assert shown[198_000][1] == 204_000
    assert shown[200_000] == (0, 0, 0)
    assert max(high or 0 for _, high, _ in shown.values()) == 204_000
    assert shown[299_000] == (0, 0, 0)


def test_an_age_that_stays_is_not_shown_growing() -> None:
    kept = Kept(GROUP, 50)
    for elapsed in range(0, 200_000, 20_000):
        kept.add(lagging(elapsed, 60_000 + elapsed // 20_000 % 2 * 3_000))
    assert max(high or 0 for _, high, _ in ages(kept, 180_000).values()) == 63_000


def test_a_young_age_is_a_figure_like_others() -> None:
    kept = Kept(GROUP, 50)
    assert [kept.add(lagging(elapsed, 400)) for elapsed in range(0, 60_000, 20_000)] == [True, False, False]
    assert ages(kept, 60_000) == {0: (400, 400, 400), 59_000: (400, 400, 400)}


def test_an_age_goes_on_growing_from_the_end_of_its_minute_and_hour() -> None:
    start_ms = NOW_MS // HOUR_MS * HOUR_MS
    (bucket,) = rollup.as_buckets([SeriesPoint(start_ms + 5_000, (1, 40_000, 0))])
    for resolution in Resolution.MINUTE, Resolution.HOUR:
        step = Resolution.DETAIL, resolution
        (open_one,) = merge_buckets(APPLICATION, [bucket], step, until_ms=start_ms + DAY_MS)
        grown_to = 40_000 + resolution.span_ms - 5_000
        assert open_one.extents[1] == (40_000, grown_to, grown_to)
        (short,) = merge_buckets(APPLICATION, [bucket], step, until_ms=start_ms + 7_000)
        assert short.extents[1].high == 42_000
        (ended,) = rollup.as_buckets([SeriesPoint(start_ms + 15_000, (0, 0, 0))])
        (over,) = merge_buckets(APPLICATION, [bucket], step, following=ended)
        assert over.extents[1] == (40_000, 40_000, 40_000)


def test_an_age_over_hours_is_the_same_at_each_resolution() -> None:
    kept, now = Kept(GROUP, 3), NOW_MS // HOUR_MS * HOUR_MS + 1_000
    for n in range(3 * 360):
        grows = n % 360 < 300
        kept.add(SeriesPoint(now + n * 10_000, (0, n % 360 // 30, n % 360 * 10_000 if grows else 0, 0)))
    until_ms = now + 3 * HOUR_MS - 1_000
    for resolution in Resolution:
        reading = read_tiles(
            GROUP, kept.tiles(resolution, until_ms), ReadingPlan(resolution, HOUR_MS),
            from_ms=now, to_ms=until_ms,
        )  # fmt: skip
        highs = [step.extents[2].high for step in reading.steps if step.at_ms >= now + HOUR_MS]
        assert highs
        assert all(high is not None and 2_980_000 <= high <= 3_000_000 for high in highs), resolution


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_a_code_of_its_own_and_a_figure_to_find_the_worst_by(kind: SeriesKind) -> None:
    assert [each.code for each in KINDS].count(kind.code) == 1
    assert not kind.columns[kind.lead].ramp


@pytest.mark.parametrize(
    ("before", "now", "elapsed_ms", "news"),
    [
        ((5, 9, 0, 0), (5, 9, 0, 0), 2_000, False),
        ((5, 9, 0, 0), (5, 8, 0, 0), 2_000, True),
        ((5, 9, 7_000, 0), (5, 9, 9_000, 0), 2_000, False),
        ((5, 9, 7_000, 0), (5, 9, 7_000, 0), 2_000, True),
        ((5, 9, 90_000, 0), (5, 9, 99_000, 0), 2_000, False),
        ((5, 9, 90_000, 0), (5, 9, 60_000, 0), 2_000, True),
        ((5, 9, 700, 0), (5, 9, 0, 0), 2_000, True),
        ((5, 9, 0, 0), (5, 9, 300, 0), 2_000, True),
        ((5, 9, 300, 0), (5, 9, 900, 0), 20_000, False),
        ((5, 9, 4_000, 0), (5, 9, 6_000, 0), 2_000, True),
        ((5, 9, None, 0), (5, 9, None, 0), 2_000, False),
        ((5, 9, None, 0), (5, 9, 4, 0), 2_000, True),
        ((None,) * 4, (None,) * 4, 2_000, False),
    ],
)
def test_only_what_differs_from_what_the_last_point_says_is_news(
    before: tuple[int | None, ...], now: tuple[int | None, ...], elapsed_ms: int, news: bool
) -> None:
    one, other = SeriesPoint(NOW_MS, before), SeriesPoint(NOW_MS + elapsed_ms, now)
    assert is_news(GROUP, one, other) is news


def test_points_of_one_instant_or_of_a_clock_set_back_are_left_out() -> None:
    kept = Kept(PARTITION, 50)
    assert kept.add(SeriesPoint(NOW_MS, (1, 0)))
    assert not kept.add(SeriesPoint(NOW_MS, (2, 0)))
    assert not kept.add(SeriesPoint(NOW_MS - 1, (2, 0)))
    assert kept.add(SeriesPoint(NOW_MS + 1, (2, 0)))


def test_damaged_open_points_are_kept_and_leave_a_hole_in_minutes_and_hours() -> None:
    kept = Kept(PARTITION, 50)
    kept.add(SeriesPoint(NOW_MS, (1, 0)))
    kept.points = kept.points[:-1]
    assert kept.add(SeriesPoint(NOW_MS + 10 * MINUTE_MS, (9, 0)))
    for resolution, seen in ((Resolution.MINUTE, 0), (Resolution.HOUR, 0)):
        tiles = kept.tiles(resolution, NOW_MS + HOUR_MS)
        first = next(each for tile in tiles for each in tile.buckets or ())
        assert first.extents[0].last in (None, 9)
        assert first.at_ms <= NOW_MS, seen
    (chunk,) = kept.chunks
    assert (chunk.start_ms, chunk.until_ms, chunk.peak) == (NOW_MS, NOW_MS + 10 * MINUTE_MS, None)


@pytest.mark.parametrize("part", ["points", "minutes", "hours"])
def test_damaged_open_parts_are_holes_and_no_exception(part: str) -> None:
    kept, points = kept_of(PARTITION, [SeriesPoint(NOW_MS + n * MINUTE_MS, (n, 0)) for n in range(600)])
    setattr(kept, part, b"\1 nothing of the kind")
    until_ms = points[-1].at_ms + 10 * MINUTE_MS
    resolution = {"points": Resolution.DETAIL, "minutes": Resolution.MINUTE, "hours": Resolution.HOUR}[part]
    tiles = kept.tiles(resolution, until_ms)
    reading = read_tiles(PARTITION, tiles, ReadingPlan(resolution, HOUR_MS), from_ms=NOW_MS, to_ms=until_ms)
    assert HoleReason.DAMAGED in {hole.reason for hole in reading.holes}
    assert kept.add(SeriesPoint(until_ms, (9_999, 0))), "what comes later is kept"
    for n in range(400):
        kept.add(SeriesPoint(until_ms + n * MINUTE_MS + 1, (n, 0)))


RANGES = st.tuples(st.integers(0, NOW_MS), st.integers(1, 400 * DAY_MS))


@given(RANGES, st.integers(60, 1_000))
def test_a_range_of_any_length_is_read_in_few_steps(wanted: tuple[int, int], most: int) -> None:
    from_ms, length_ms = wanted
    kept = {Resolution.DETAIL: NOW_MS - DAY_MS, Resolution.MINUTE: NOW_MS - 7 * DAY_MS, Resolution.HOUR: 0}
    plan = plan_reading(from_ms, from_ms + length_ms, kept, most=most)
    assert length_ms / plan.step_ms <= most
    assert plan.step_ms >= plan.resolution.span_ms
    assert kept[plan.resolution] <= from_ms


@pytest.mark.parametrize(
    ("ago_ms", "length_ms", "resolution", "step_ms"),
    [
        (0, 5 * MINUTE_MS, Resolution.DETAIL, 1_000),
        (0, HOUR_MS, Resolution.DETAIL, 10_000),
        (0, DAY_MS, Resolution.MINUTE, 5 * MINUTE_MS),
        (3 * DAY_MS, HOUR_MS, Resolution.MINUTE, MINUTE_MS),
        (0, 10 * DAY_MS, Resolution.HOUR, HOUR_MS),
        (60 * DAY_MS, HOUR_MS, Resolution.HOUR, HOUR_MS),
        (0, 400 * DAY_MS, Resolution.HOUR, DAY_MS),
        (500 * DAY_MS, HOUR_MS, Resolution.HOUR, HOUR_MS),
    ],
)
def test_a_range_is_read_as_finely_as_it_is_kept(
    ago_ms: int, length_ms: int, resolution: Resolution, step_ms: int
) -> None:
    kept = {
        Resolution.DETAIL: NOW_MS - DAY_MS - HOUR_MS,
        Resolution.MINUTE: NOW_MS - 7 * DAY_MS,
        Resolution.HOUR: NOW_MS - 400 * DAY_MS,
    }
    to_ms = NOW_MS - ago_ms
    assert plan_reading(to_ms - length_ms, to_ms, kept) == (resolution, step_ms)


HOLES = st.lists(
    st.builds(
        lambda start, length, reason: SeriesHole(start, start + length, reason),
        st.integers(-20, 120), st.integers(0, 60), st.sampled_from(HoleReason),
    ),
    max_size=6,
)  # fmt: skip


@given(HOLES)
def test_holes_are_cut_so_that_the_first_reason_counts(holes: list[SeriesHole]) -> None:
    cut = list(apart(holes, 0, 100))
    assert all(one.to_ms <= other.from_ms for one, other in pairwise(cut))
    for at_ms in range(100):
        reasons = [each.reason for each in holes if each.from_ms <= at_ms < each.to_ms]
        now = [each.reason for each in cut if each.from_ms <= at_ms < each.to_ms]
        assert now == ([min(reasons)] if reasons else [])


def test_time_between_spans_of_observation_is_a_hole_but_for_the_last_poll() -> None:
    spans = [(10, 20), (40, 90)]
    assert [hole[:2] for hole in not_observed(spans, 0, 100, pause_ms=10)] == [(0, 10), (20, 40)]
    assert [hole[:2] for hole in not_observed(spans, 0, 101, pause_ms=10)] == [(0, 10), (20, 40), (90, 101)]
    assert [hole[:2] for hole in not_observed([], 0, 100, pause_ms=10)] == [(0, 100)]
    assert not list(not_observed(spans[:1], 12, 18, pause_ms=0))


def test_nothing_is_known_before_the_first_tile() -> None:
    kept, _ = kept_of(PARTITION, [SeriesPoint(NOW_MS, (1, 2))])
    reading = read_tiles(
        PARTITION, kept.tiles(Resolution.DETAIL, NOW_MS + 60_000), ReadingPlan(Resolution.DETAIL, 1_000),
        from_ms=NOW_MS - 60_000, to_ms=NOW_MS + 60_000,
        unseen=[SeriesHole(0, NOW_MS, HoleReason.NOT_RECORDED)],
    )  # fmt: skip
    assert reading.holes == [SeriesHole(NOW_MS - 60_000, NOW_MS, HoleReason.NOT_RECORDED)]
    assert [step.at_ms for step in reading.steps] == [NOW_MS, NOW_MS + 59_000]


def test_a_subject_that_could_not_be_seen_is_a_hole_until_it_is_seen_again() -> None:
    points = [
        SeriesPoint(NOW_MS, (1, 0)),
        SeriesPoint(NOW_MS + 10_000, PARTITION.hole),
        SeriesPoint(NOW_MS + 30_000, (1, 0)),
    ]
    kept, _ = kept_of(PARTITION, points)
    reading = read_tiles(
        PARTITION, kept.tiles(Resolution.DETAIL, NOW_MS + 60_000), ReadingPlan(Resolution.DETAIL, 5_000),
        from_ms=NOW_MS, to_ms=NOW_MS + 60_000,
    )  # fmt: skip
    assert reading.holes == [SeriesHole(NOW_MS + 10_000, NOW_MS + 30_000, HoleReason.UNAVAILABLE)]
    assert [step.at_ms - NOW_MS for step in reading.steps] == [0, 5_000, 30_000, 55_000]
