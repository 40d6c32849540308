"""Proves minutes and hours of what is full, that the worst subjects of a range are found, and that each
resolution is kept for its own time."""

from itertools import pairwise

import pytest
from django.db import transaction

from dashboard.models import Cluster, ObservedSpan, Series, SeriesChunk
from dashboard.partitions.store import save_partitions
from dashboard.runtime import retention
from dashboard.series.queries import worst_series
from dashboard.series.store import SOURCES, SeriesSample, extend_span, save_samples
from fenceline.history.time_range import TimeRange
from fenceline.limits import Retention
from fenceline.series.points import GROUP, PARTITION, Resolution, SeriesKind
from fenceline.series.reading import HoleReason
from fenceline.series.rollup import FEWEST_POINTS, MORE_POINTS
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.series_polls import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    A,
    B,
    held_at,
    known,
    look,
    polled,
    reading,
)

pytestmark = pytest.mark.sql
KEEP = Retention(series_detail_d=1, series_minutes_d=7, series_hours_d=400)


@pytest.mark.parametrize("kind", [PARTITION, GROUP])
def test_what_is_full_is_closed_and_a_range_reads_the_same(kind: SeriesKind) -> None:
    number = 4 * (FEWEST_POINTS + MORE_POINTS)
    rest = (0,) * (len(kind.columns) - 1)
    polled(kind, "s", *((n * 7_000, (n * n % 89, *rest)) for n in range(number)), span=True)
    details = SeriesChunk.objects.filter(resolution=Resolution.DETAIL.value).order_by("until_ms")
    ends = list(details.values_list("start_ms", "until_ms", "peak"))
    assert len(ends) >= 4
    assert all(one[1] == other[0] for one, other in pairwise(ends)), "side by side"
    assert SeriesChunk.objects.filter(resolution=Resolution.MINUTE.value).exists()
    length_ms = number * 7_000
    for from_ms in (0, length_ms // 3, length_ms - 60_000):
        found = reading(kind, "s", from_ms, min(from_ms + 400_000, length_ms))
        assert found.reading.plan.resolution is Resolution.DETAIL
        assert not found.reading.holes
        for n in range(from_ms // 7_000 + 1, min(from_ms + 400_000, length_ms) // 7_000):
            assert held_at(found, n * 7_000) == n * n % 89
    coarse = reading(kind, "s", 0, length_ms, now_ms=2 * DAY_MS, most=20)
    assert coarse.reading.plan.resolution is Resolution.MINUTE
    step_ms = coarse.reading.plan.step_ms
    for step in coarse.reading.steps:
        begin, end = step.at_ms, step.at_ms - step.at_ms % step_ms + step_ms
        inside = [n * n % 89 for n in range(number) if begin <= NOW_MS + n * 7_000 < end]
        assert inside
        assert (step.extents[0].high or 0) >= max(inside)
        assert (step.extents[0].low or 0) <= min(inside)


def test_a_figure_that_has_held_for_long_is_found_in_the_chunk_that_holds() -> None:
    polled(PARTITION, "s", *((n * 1_000, (n, 0)) for n in range(200)), span=True)
    cluster_id = Cluster.objects.get().pk
    ObservedSpan.objects.update(to_ms=NOW_MS + 9 * HOUR_MS)
    polled(PARTITION, "s", *((9 * HOUR_MS + n * 1_000, (500 + n, 0)) for n in range(200)))
    assert cluster_id
    quiet = reading(PARTITION, "s", 4 * HOUR_MS, 5 * HOUR_MS, now_ms=9 * HOUR_MS + 200_000)
    assert held_at(quiet, 5 * HOUR_MS) == 199
    assert len(quiet.reading.steps) == 2, "the first and the last: nothing changed between"


def test_the_worst_subjects_of_a_range_are_found_among_many() -> None:
    cluster_id = Cluster.objects.get().pk
    with transaction.atomic():
        for n in range(400):
            samples = [
                SeriesSample(f"g{number}", (0, (n * (number + 3)) % 97 + number, 0, 0))
                for number in range(12)
            ]
            # One that was far behind for a moment, long before the others.
            samples.append(SeriesSample("spike", (0, 5_000 if n == 30 else 1, 0, 0)))
            save_samples(cluster_id, GROUP, samples, at_ms=NOW_MS + n * 10_000)
            extend_span(cluster_id, SOURCES[GROUP], at_ms=NOW_MS + n * 10_000)

    def worst(from_ms: int, to_ms: int) -> list[tuple[str, int]]:
        shown = TimeRange(NOW_MS + from_ms, NOW_MS + to_ms)
        found = worst_series(cluster_id, GROUP, shown, now_ms=NOW_MS + 4_000_000, number=3, most=100)
        return [(each.name, each.worst) for each in found]

    def truth(from_ms: int, to_ms: int) -> list[int]:
        peaks = [
            max((n * (number + 3)) % 97 + number for n in range(from_ms // 10_000, to_ms // 10_000))
            for number in range(12)
        ]
        return sorted(peaks, reverse=True)

    assert worst(0, 4_000_000)[0] == ("spike", 5_000)
    late = worst(2_000_000, 4_000_000)
    assert "spike" not in dict(late)
    assert [peak for _, peak in late] == truth(2_000_000, 4_000_000)[:3]
    assert worst(200_000, 400_000)[0] == ("spike", 5_000)


def test_damaged_rows_are_holes_and_no_error() -> None:
    polled(PARTITION, "s", *((n * 7_000, (n, 0)) for n in range(700)), span=True)
    chunk = SeriesChunk.objects.filter(resolution=Resolution.DETAIL.value).order_by("until_ms")[1]
    SeriesChunk.objects.filter(pk=chunk.pk).update(packed=bytes(chunk.packed)[:-3])
    found = reading(PARTITION, "s", 0, 700 * 7_000, most=5_000)
    (hole,) = found.reading.holes
    assert (hole.from_ms, hole.to_ms, hole.reason) == (chunk.start_ms, chunk.until_ms, HoleReason.DAMAGED)
    Series.objects.update(points=b"\1\0\0\0\0nothing", minutes=b"?", hours=b"?")
    found = reading(PARTITION, "s", 0, 700 * 7_000, most=5_000)
    assert [hole.reason for hole in found.reading.holes] == [HoleReason.DAMAGED] * 2
    # What comes later is kept, and what could not be read is still a hole.
    polled(PARTITION, "s", *((6_000_000 + n * 7_000, (n, 0)) for n in range(400)), span=True)
    assert held_at(reading(PARTITION, "s", 6_000_000, 8_800_000, most=5_000), 8_799_999) == 399


def test_each_resolution_is_kept_for_its_own_time(take: Take) -> None:
    polls = range(0, 12 * HOUR_MS, 30_000)
    polled(PARTITION, "s", *((at_ms, (at_ms, 0)) for at_ms in polls), span=True)
    lease = take(retention.NAME)
    factories.prune_all(lease, KEEP, NOW_MS + DAY_MS)
    whole = SeriesChunk.objects.filter(resolution=Resolution.DETAIL.value).count()
    factories.prune_all(lease, KEEP, NOW_MS + DAY_MS + 6 * HOUR_MS)
    details = SeriesChunk.objects.filter(resolution=Resolution.DETAIL.value)
    assert 0 < details.count() < whole
    assert min(details.values_list("until_ms", flat=True)) >= NOW_MS + 6 * HOUR_MS
    factories.prune_all(lease, KEEP, NOW_MS + 3 * DAY_MS)
    assert not details.exists()
    minutes = SeriesChunk.objects.filter(resolution=Resolution.MINUTE.value)
    assert minutes.exists()
    for days, resolution in ((3, Resolution.MINUTE), (6, Resolution.MINUTE), (30, Resolution.HOUR)):
        found = reading(PARTITION, "s", HOUR_MS, 5 * HOUR_MS, now_ms=days * DAY_MS)
        assert found.reading.plan.resolution is resolution
        assert not found.reading.holes
        assert (held_at(found, 2 * HOUR_MS + 30 * MINUTE_MS) or 0) >= 2 * HOUR_MS
        factories.prune_all(lease, KEEP, NOW_MS + days * DAY_MS)
    assert not minutes.exists()
    assert Series.objects.count() == 1


def test_a_range_before_what_is_kept_says_so(take: Take) -> None:
    polled(PARTITION, "s", *((at_ms, (at_ms, 0)) for at_ms in range(0, HOUR_MS, 20_000)), span=True)
    found = reading(PARTITION, "s", -2 * DAY_MS, -DAY_MS, now_ms=HOUR_MS)
    assert [hole.reason for hole in found.reading.holes] == [HoleReason.NOT_RECORDED]
    assert found.kept_since_ms == NOW_MS
    later = reading(PARTITION, "s", 0, DAY_MS, now_ms=500 * DAY_MS)
    assert [hole.reason for hole in later.reading.holes] == [HoleReason.NOT_KEPT]
    assert later.kept_since_ms == NOW_MS + 100 * DAY_MS


def test_what_has_been_gone_for_as_long_as_anything_is_kept_is_forgotten(take: Take) -> None:
    lease = take("partitions")
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS), known(B, 1, 1, NOW_MS)), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 2_000, gone=frozenset({A})), now_ms=NOW_MS)
    pruner = take(retention.NAME)
    factories.prune_all(pruner, KEEP, NOW_MS + 399 * DAY_MS)
    assert Series.objects.count() == 2
    factories.prune_all(pruner, KEEP, NOW_MS + 401 * DAY_MS)
    assert [row.name for row in Series.objects.all()] == ["orders-1"]
    assert not ObservedSpan.objects.exists()
