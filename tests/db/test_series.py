"""Proves what of polls becomes figures over time: changes alone, each once, with the save they came with;
that the worst subjects of a range are found, and each resolution is kept for its own time."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.open_transactions import APART_MS
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import Cluster, Collector, ObservedSpan, PartitionRecord, Series, SeriesChunk
from dashboard.partitions.store import save_partitions
from dashboard.runtime import collector_store, retention
from dashboard.runtime.leases import Lease, LeaseLost
from dashboard.series.queries import worst_series
from dashboard.series.store import SOURCES, SeriesSample, extend_span, open_subjects, save_samples
from fenceline.history.time_range import TimeRange
from fenceline.kafka.group_observation import ObservedGroups, SeenGroup
from fenceline.kafka.groups import Committed
from fenceline.kafka.partitions import Offsets
from fenceline.limits import Retention
from fenceline.series.points import APPLICATION, GROUP, PARTITION, Resolution, SeriesKind
from fenceline.series.reading import HoleReason
from fenceline.series.rollup import FEWEST_POINTS, MORE_POINTS
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import clusters
from tests.db.series_polls import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    PLACE,
    A,
    B,
    held_at,
    known,
    look,
    points,
    polled,
    reading,
)
from tests.db.test_save_groups import save as save_groups

pytestmark = pytest.mark.sql


@pytest.fixture
def lease(take: Take) -> Lease:
    return take("partitions")


def test_a_poll_of_partitions_is_kept_where_it_changed_something(lease: Lease) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS), known(B, 3, 3, NOW_MS)), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 1_000, known(A, 5, 12, NOW_MS + 1_000)), now_ms=NOW_MS)
    # Its leader changed, and nothing of its offsets.
    moved = known(A, 5, 12, NOW_MS + 2_000)._replace(place=PLACE._replace(leader=2))
    save_partitions(lease, look(NOW_MS + 2_000, moved), now_ms=NOW_MS)
    assert points(PARTITION, "orders-0") == [(0, (5, 4)), (1_000, (5, 7))]
    assert points(PARTITION, "orders-1") == [(0, (3, 0))]
    assert [(row.from_ms, row.to_ms) for row in ObservedSpan.objects.all()] == [(NOW_MS, NOW_MS + 2_000)]
    with CaptureQueriesContext(connection) as queries:
        save_partitions(lease, look(NOW_MS + 3_000), now_ms=NOW_MS)
    touched = [each["sql"] for each in queries.captured_queries if "dashboard_series" in each["sql"]]
    assert not touched, "an idle cluster writes no series"


def test_what_could_not_be_seen_is_a_hole_and_no_old_figure(lease: Lease) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    blind = known(A, 5, 9, NOW_MS + 5_000, error="leader not available")
    save_partitions(lease, look(NOW_MS + 5_000, blind), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 9_000, known(A, 5, 9, NOW_MS + 9_000)), now_ms=NOW_MS)
    assert points(PARTITION, "orders-0") == [(0, (5, 4)), (5_000, (None, None)), (9_000, (5, 4))]
    # An end that is still to be replicated is no reason not to know the offsets.
    ending = known(A, 6, 9, NOW_MS + 11_000)._replace(error="its last transaction has ended")
    save_partitions(lease, look(NOW_MS + 11_000, ending), now_ms=NOW_MS)
    assert points(PARTITION, "orders-0")[-1] == (11_000, (6, 3))


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_partition_that_is_gone_ends_seen_or_not_and_comes_again(lease: Lease, is_seen: bool) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    if not is_seen:
        save_partitions(lease, look(NOW_MS + 1, known(A, 5, 9, NOW_MS, error="no leader")), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 2_000, gone=frozenset({A})), now_ms=NOW_MS)
    assert not PartitionRecord.objects.exists()
    assert Series.objects.get().ended_ms == NOW_MS + 2_000
    save_partitions(lease, look(NOW_MS + 4_000, known(A, 0, 0, NOW_MS + 4_000)), now_ms=NOW_MS)
    assert Series.objects.get().ended_ms is None
    hidden_ms = 2_000 if is_seen else 1
    assert points(PARTITION, "orders-0") == [(0, (5, 4)), (hidden_ms, (None, None)), (4_000, (0, 0))]


def test_a_collector_that_is_killed_or_fenced_writes_nothing_twice(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take("partitions")
    second = look(NOW_MS + 1_000, known(A, 5, 12, NOW_MS + 1_000))
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    with monkeypatch.context() as killed:
        killed.setattr(collector_store, "record_poll", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            save_partitions(lease, second, now_ms=NOW_MS)
    assert points(PARTITION, "orders-0") == [(0, (5, 4))], "the save was undone as a whole"
    successor = take("partitions", previous=lease.token)
    with pytest.raises(LeaseLost):
        save_partitions(lease, second, now_ms=NOW_MS)
    assert points(PARTITION, "orders-0") == [(0, (5, 4))], "who was fenced writes nothing"
    save_partitions(successor, second, now_ms=NOW_MS)
    # The same poll again, as after an answer of the database that was lost.
    save_partitions(successor, second, now_ms=NOW_MS)
    assert points(PARTITION, "orders-0") == [(0, (5, 4)), (1_000, (5, 7))]
    assert ObservedSpan.objects.count() == 1


def test_a_pause_of_the_collector_is_a_hole(lease: Lease) -> None:
    for at_ms in (0, 20_000, 90_000, 100_000):
        now = NOW_MS + at_ms
        save_partitions(lease, look(now, known(A, 5, 9 + at_ms, now)), now_ms=now)
    spans = ObservedSpan.objects.order_by("from_ms")
    assert [(row.from_ms - NOW_MS, row.to_ms - NOW_MS) for row in spans] == [(0, 20_000), (90_000, 100_000)]
    found = reading(PARTITION, "orders-0", 0, 100_000)
    (hole,) = found.reading.holes
    assert hole == (NOW_MS + 20_000, NOW_MS + 90_000, HoleReason.NOT_OBSERVED)
    assert [run.steps[0].at_ms - NOW_MS for run in found.reading.runs] == [0, 90_000]


def test_a_clock_that_is_set_back_leaves_no_point_out_of_order(lease: Lease) -> None:
    for at_ms, end in ((10_000, 9), (4_000, 12), (11_000, 15)):
        now = NOW_MS + at_ms
        save_partitions(lease, look(now, known(A, 5, end, now)), now_ms=now)
    assert points(PARTITION, "orders-0") == [(10_000, (5, 4)), (11_000, (5, 10))]
    span = ObservedSpan.objects.get()
    assert (span.from_ms, span.to_ms) == (NOW_MS + 10_000, NOW_MS + 11_000)


def groups_look(at_ms: int, groups: Mapping[str, SeenGroup], **more: Any) -> ObservedGroups:
    return ObservedGroups(at_ms, groups, {A: Offsets(0, 20, 30, 1)}, **more)


def seen(offset: int = 10, **more: Any) -> SeenGroup:
    return SeenGroup("Stable", "Classic", 1, 3, {A: Committed(offset)}, **more)


def test_a_poll_of_groups_is_kept_and_what_is_unseen_is_a_hole(take: Take) -> None:
    lease = take("groups")
    save_groups(lease, groups_look(NOW_MS, {"g": seen(), "h": seen()}))
    save_groups(lease, groups_look(NOW_MS + 2_000, {"g": seen(), "h": seen()}))
    save_groups(lease, groups_look(NOW_MS + 4_000, {"g": seen(15)}, partial="broker 2: no answer"))
    unseen = SeenGroup(error="no DESCRIBE on this group", unseen=True)
    save_groups(lease, groups_look(NOW_MS + 6_000, {"g": unseen, "h": seen(20)}))
    save_groups(lease, groups_look(NOW_MS + 8_000, {"g": seen(15)}))
    lags = {name: [(at_ms, values[:2]) for at_ms, values in points(GROUP, name)] for name in "gh"}
    assert lags == {
        "g": [(0, (10, 20)), (4_000, (5, 15)), (6_000, (None, None)), (8_000, (5, 15))],
        "h": [(0, (10, 20)), (4_000, (None, None)), (6_000, (0, 10)), (8_000, (None, None))],
    }
    assert Series.objects.get(name="g").ended_ms is None
    assert Series.objects.get(name="h").ended_ms == NOW_MS + 8_000


def evaluate(lease: Lease, reader: SnapshotReader, at_ms: int) -> None:
    Collector.objects.exclude(name="judge").update(seen_through_ms=NOW_MS + at_ms)
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS + at_ms)


def test_open_transactions_are_kept_of_the_cluster_and_of_each_application(take: Take) -> None:
    lease, reader = take("judge"), SnapshotReader("prod")
    clusters.collectors("transaction_state", "partitions")
    clusters.transaction("payments-7", started_ms=NOW_MS - 90_000)
    clusters.transaction("payments-8", started_ms=NOW_MS - 1_000)
    clusters.transaction("orders-1", application="orders", started_ms=NOW_MS - 2_000)
    clusters.partition("payments")
    clusters.lso_blocker("payments", 0, name="payments-7", verdict="open", ground="owned")
    evaluate(lease, reader, 0)
    assert points(APPLICATION, "") == [(0, (3, 90_000, 5_000))]
    assert points(APPLICATION, "payments") == [(0, (2, 90_000, 5_000))]
    assert points(APPLICATION, "orders") == [(0, (1, 2_000, 0))]
    # Ages grow, which is no news; and there is at most one point in some seconds.
    clusters.prod().transaction_set.filter(transactional_id="orders-1").update(state="CompleteCommit")
    evaluate(lease, reader, APART_MS - 1)
    assert points(APPLICATION, "orders") == [(0, (1, 2_000, 0))]
    evaluate(lease, reader, APART_MS)
    assert points(APPLICATION, "") == [(0, (3, 90_000, 5_000)), (APART_MS, (2, 95_000, 5_000))]
    assert points(APPLICATION, "orders")[-1] == (APART_MS, (0, 0, 0))
    assert points(APPLICATION, "payments") == [(0, (2, 90_000, 5_000))]
    assert open_subjects(lease.cluster_id, APPLICATION) == {"", "payments"}


def test_open_transactions_that_cannot_be_seen_are_a_hole(take: Take) -> None:
    lease, reader = take("judge"), SnapshotReader("prod")
    clusters.collectors("transaction_state", "partitions")
    clusters.transaction("payments-7", started_ms=NOW_MS - 90_000)
    evaluate(lease, reader, 0)
    evaluate_rules.evaluate_cluster(lease, reader, now_ms=NOW_MS + 90_000)
    assert points(APPLICATION, "payments")[-1] == (90_000, (None, None, None))
    assert open_subjects(lease.cluster_id, APPLICATION) == {"", "payments"}, "it is not known to be over"


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
    ObservedSpan.objects.update(to_ms=NOW_MS + 9 * HOUR_MS)
    polled(PARTITION, "s", *((9 * HOUR_MS + n * 1_000, (500 + n, 0)) for n in range(200)))
    quiet = reading(PARTITION, "s", 4 * HOUR_MS, 5 * HOUR_MS, now_ms=9 * HOUR_MS + 200_000)
    assert held_at(quiet, 5 * HOUR_MS) == 199
    assert len(quiet.reading.steps) == 2, "the first and the last: nothing changed between"


def test_the_worst_subjects_of_a_range_are_found_among_many() -> None:
    cluster_id = Cluster.objects.get().pk
    with transaction.atomic():
        for n in range(200):
            samples = [SeriesSample(f"g{k}", (0, (n * (k + 3)) % 97 + k, 0, 0)) for k in range(12)]
            # One that was far behind for a moment, long before the others.
            samples.append(SeriesSample("spike", (0, 5_000 if n == 15 else 1, 0, 0)))
            save_samples(cluster_id, GROUP, samples, at_ms=NOW_MS + n * 20_000)
            extend_span(cluster_id, SOURCES[GROUP], at_ms=NOW_MS + n * 20_000)

    def worst(from_ms: int, to_ms: int) -> list[tuple[str, int]]:
        shown = TimeRange(NOW_MS + from_ms, NOW_MS + to_ms)
        found = worst_series(cluster_id, GROUP, shown, now_ms=NOW_MS + 4_000_000, number=3, most=100)
        return [(each.name, each.worst) for each in found]

    def truth(from_ms: int, to_ms: int) -> list[int]:
        polls = range(from_ms // 20_000, to_ms // 20_000)
        return sorted((max((n * (k + 3)) % 97 + k for n in polls) for k in range(12)), reverse=True)

    assert worst(0, 4_000_000)[0] == ("spike", 5_000)
    late = worst(2_000_000, 4_000_000)
    assert "spike" not in dict(late)
    assert [peak for _, peak in late] == truth(2_000_000, 4_000_000)[:3]
    assert worst(200_000, 400_000)[0] == ("spike", 5_000)


def test_damaged_rows_are_holes_and_no_error() -> None:
    polled(PARTITION, "s", *((n * 7_000, (n, 0)) for n in range(400)), span=True)
    chunk = SeriesChunk.objects.filter(resolution=Resolution.DETAIL.value).order_by("until_ms")[1]
    SeriesChunk.objects.filter(pk=chunk.pk).update(packed=bytes(chunk.packed)[:-3])
    found = reading(PARTITION, "s", 0, 400 * 7_000, most=5_000)
    (hole,) = found.reading.holes
    assert (hole.from_ms, hole.to_ms, hole.reason) == (chunk.start_ms, chunk.until_ms, HoleReason.DAMAGED)
    Series.objects.update(points=b"\1\0\0\0\0nothing", minutes=b"?", hours=b"?")
    found = reading(PARTITION, "s", 0, 400 * 7_000, most=5_000)
    assert [hole.reason for hole in found.reading.holes] == [HoleReason.DAMAGED] * 2
    # What comes later is kept, and what could not be read is still a hole.
    polled(PARTITION, "s", *((6_000_000 + n * 7_000, (n, 0)) for n in range(100)), span=True)
    assert held_at(reading(PARTITION, "s", 6_000_000, 6_700_000, most=5_000), 6_699_999) == 99


def test_each_resolution_is_kept_for_its_own_time(take: Take) -> None:
    polls = range(0, 8 * HOUR_MS, 30_000)
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
