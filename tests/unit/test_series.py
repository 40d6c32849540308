"""Proves which polls become points of a series, that minutes and hours have the least, greatest and last
figure, and that an age that grows is shown growing at each resolution."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.series import packing, rollup
from fenceline.series.points import (
    APPLICATION,
    GROUP,
    KINDS,
    PARTITION,
    Resolution,
    SeriesPoint,
    extents_of,
    is_news,
)
from fenceline.series.reading import HoleReason, ReadingPlan, read_tiles
from fenceline.series.rollup import merge_buckets
from tests.cases import cases
from tests.unit.series_kept import (
    CHANGES,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    Kept,
    kept_of,
    least,
    most_of,
    polled,
)


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


def test_an_age_that_stays_is_not_shown_growing_and_a_young_one_is_a_figure_like_others() -> None:
    stays, young = Kept(GROUP, 50), Kept(GROUP, 50)
    for elapsed in range(0, 200_000, 20_000):
        stays.add(lagging(elapsed, 60_000 + elapsed // 20_000 % 2 * 3_000))
    assert max(high or 0 for _, high, _ in ages(stays, 180_000).values()) == 63_000
    assert [young.add(lagging(elapsed, 400)) for elapsed in range(0, 60_000, 20_000)] == [True, False, False]
    assert ages(young, 60_000) == {0: (400, 400, 400), 59_000: (400, 400, 400)}


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


@cases(
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
)
def test_only_what_differs_from_what_the_last_point_says_is_news(
    before: tuple[int | None, ...], now: tuple[int | None, ...], elapsed_ms: int, news: bool
) -> None:
    one, other = SeriesPoint(NOW_MS, before), SeriesPoint(NOW_MS + elapsed_ms, now)
    assert is_news(GROUP, one, other) is news


def test_points_of_one_instant_or_of_a_clock_set_back_are_left_out() -> None:
    kept = Kept(PARTITION, 50)
    for number, (after_ms, is_kept) in enumerate(((0, True), (0, False), (-1, False), (1, True))):
        assert kept.add(SeriesPoint(NOW_MS + after_ms, (number, 0))) is is_kept


def test_a_kind_has_a_code_of_its_own_and_a_figure_to_find_the_worst_by() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    assert not any(kind.columns[kind.lead].ramp for kind in KINDS)


def test_damaged_open_points_are_kept_and_leave_a_hole_in_minutes_and_hours() -> None:
    kept = Kept(PARTITION, 50)
    kept.add(SeriesPoint(NOW_MS, (1, 0)))
    kept.points = kept.points[:-1]
    assert kept.add(SeriesPoint(NOW_MS + 10 * MINUTE_MS, (9, 0)))
    for resolution in Resolution.MINUTE, Resolution.HOUR:
        tiles = kept.tiles(resolution, NOW_MS + HOUR_MS)
        first = next(each for tile in tiles for each in tile.buckets or ())
        assert first.extents[0].last in (None, 9)
        assert first.at_ms <= NOW_MS
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
