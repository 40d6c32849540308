"""Proves that a range shows what held in it and nothing where nothing was seen, as finely as it is kept; and
that bytes give back the figures that were packed or say that they are damaged."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.series import packing
from fenceline.series.packing import DamagedSeries, PackedRow, add_row, pack_rows, unpack_rows
from fenceline.series.points import PARTITION, Resolution, SeriesPoint
from fenceline.series.reading import (
    MOST_STEPS,
    HoleReason,
    ReadingPlan,
    SeriesHole,
    SeriesReading,
    disjoint_holes,
    not_observed,
    plan_reading,
    read_tiles,
)
from tests.cases import cases
from tests.unit.series_kept import CHANGES, DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS, kept_of, polled


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


RANGES = st.tuples(st.integers(0, NOW_MS), st.integers(1, 400 * DAY_MS))


@given(RANGES, st.integers(60, 1_000))
def test_a_range_of_any_length_is_read_in_few_steps(wanted: tuple[int, int], most: int) -> None:
    from_ms, length_ms = wanted
    kept = {Resolution.DETAIL: NOW_MS - DAY_MS, Resolution.MINUTE: NOW_MS - 7 * DAY_MS, Resolution.HOUR: 0}
    plan = plan_reading(from_ms, from_ms + length_ms, kept, most=most)
    assert length_ms / plan.step_ms <= most
    assert plan.step_ms >= plan.resolution.span_ms
    assert kept[plan.resolution] <= from_ms


@cases(
    (0, 5 * MINUTE_MS, Resolution.DETAIL, 1_000),
    (0, HOUR_MS, Resolution.DETAIL, 10_000),
    (0, DAY_MS, Resolution.MINUTE, 5 * MINUTE_MS),
    (3 * DAY_MS, HOUR_MS, Resolution.MINUTE, MINUTE_MS),
    (0, 10 * DAY_MS, Resolution.HOUR, HOUR_MS),
    (60 * DAY_MS, HOUR_MS, Resolution.HOUR, HOUR_MS),
    (0, 400 * DAY_MS, Resolution.HOUR, DAY_MS),
    (500 * DAY_MS, HOUR_MS, Resolution.HOUR, HOUR_MS),
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
    cut = list(disjoint_holes(holes, 0, 100))
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


def read_around(points: list[SeriesPoint], step_ms: int, *unseen: SeriesHole) -> SeriesReading:
    """Read a minute before and after NOW_MS."""
    tiles = kept_of(PARTITION, points)[0].tiles(Resolution.DETAIL, NOW_MS + MINUTE_MS)
    from_ms, to_ms = NOW_MS - MINUTE_MS, NOW_MS + MINUTE_MS
    plan = ReadingPlan(Resolution.DETAIL, step_ms)
    return read_tiles(PARTITION, tiles, plan, from_ms=from_ms, to_ms=to_ms, unseen=unseen)


def test_nothing_is_known_before_the_first_tile_nor_where_a_subject_could_not_be_seen() -> None:
    before = SeriesHole(0, NOW_MS, HoleReason.NOT_RECORDED)
    reading = read_around([SeriesPoint(NOW_MS, (1, 2))], 1_000, before)
    assert reading.holes == [before._replace(from_ms=NOW_MS - MINUTE_MS)]
    assert [step.at_ms for step in reading.steps] == [NOW_MS, NOW_MS + 59_000]
    hidden = SeriesPoint(NOW_MS + 10_000, PARTITION.hole)
    points = [SeriesPoint(NOW_MS, (1, 0)), hidden, SeriesPoint(NOW_MS + 30_000, (1, 0))]
    reading = read_around(points, 5_000, before)
    assert reading.holes[1:] == [SeriesHole(NOW_MS + 10_000, NOW_MS + 30_000, HoleReason.UNAVAILABLE)]
    assert [step.at_ms - NOW_MS for step in reading.steps] == [0, 5_000, 30_000, 55_000]


NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[NUMBERS] * width), min_size=1, max_size=40).flatmap(
        lambda numbers: st.lists(
            st.integers(1, 10**7), min_size=len(numbers), max_size=len(numbers)
        ).map(lambda steps: [PackedRow(sum(steps[: n + 1]), row) for n, row in enumerate(numbers)])
    )
)  # fmt: skip


@given(ROWS)
def test_rows_come_back_as_they_were_packed_at_once_or_one_by_one(rows: list[PackedRow]) -> None:
    packed = pack_rows(rows)
    assert unpack_rows(packed, len(rows[0].numbers)) == rows
    assert packing.newest_row(packed, len(rows[0].numbers)) == rows[-1]
    assert packing.count_rows(packed) == len(rows)
    added = b""
    for row in rows:
        added = add_row(added, row)
    assert added == packed
    with pytest.raises(ValueError, match="not after"):
        add_row(packed, rows[-1])


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
