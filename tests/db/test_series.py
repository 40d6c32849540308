"""Proves what of polls becomes figures over time: changes alone, each once, whole or nothing with the save
they came with."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.open_transactions import APART_MS
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import Collector, ObservedSpan, PartitionRecord, Series
from dashboard.partitions.store import save_partitions
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease, LeaseLost
from dashboard.series.store import open_subjects
from fenceline.kafka.group_observation import ObservedGroups, SeenGroup
from fenceline.kafka.groups import Committed
from fenceline.kafka.partitions import Offsets
from fenceline.series.points import APPLICATION, GROUP, PARTITION
from fenceline.series.reading import HoleReason
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import clusters
from tests.db.series_polls import PLACE, A, B, known, look, points, reading
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


def test_an_idle_cluster_writes_no_series(lease: Lease) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    with CaptureQueriesContext(connection) as queries:
        save_partitions(lease, look(NOW_MS + 1_000), now_ms=NOW_MS)
    touched = [each["sql"] for each in queries.captured_queries if "dashboard_series" in each["sql"]]
    assert not touched


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


def test_a_partition_that_is_gone_ends_and_comes_again(lease: Lease) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 2_000, gone=frozenset({A})), now_ms=NOW_MS)
    assert not PartitionRecord.objects.exists()
    assert Series.objects.get().ended_ms == NOW_MS + 2_000
    save_partitions(lease, look(NOW_MS + 4_000, known(A, 0, 0, NOW_MS + 4_000)), now_ms=NOW_MS)
    assert Series.objects.get().ended_ms is None
    assert points(PARTITION, "orders-0") == [(0, (5, 4)), (2_000, (None, None)), (4_000, (0, 0))]


def test_a_subject_that_could_not_be_seen_ends_all_the_same(lease: Lease) -> None:
    save_partitions(lease, look(NOW_MS, known(A, 5, 9, NOW_MS)), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 1, known(A, 5, 9, NOW_MS, error="no leader")), now_ms=NOW_MS)
    save_partitions(lease, look(NOW_MS + 2_000, gone=frozenset({A})), now_ms=NOW_MS)
    assert Series.objects.get().ended_ms == NOW_MS + 2_000


def test_a_collector_that_is_killed_or_fenced_writes_nothing_twice(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take("partitions")
    first, second = (
        look(NOW_MS, known(A, 5, 9, NOW_MS)),
        look(NOW_MS + 1_000, known(A, 5, 12, NOW_MS + 1_000)),
    )
    save_partitions(lease, first, now_ms=NOW_MS)
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
    assert [(hole.from_ms - NOW_MS, hole.to_ms - NOW_MS, hole.reason) for hole in found.reading.holes] == [
        (20_000, 90_000, HoleReason.NOT_OBSERVED)
    ]
    assert [run.steps[0].at_ms - NOW_MS for run in found.reading.runs] == [0, 90_000]


def test_a_clock_that_is_set_back_leaves_no_point_out_of_order(lease: Lease) -> None:
    for at_ms, end in ((10_000, 9), (4_000, 12), (11_000, 15)):
        now = NOW_MS + at_ms
        save_partitions(lease, look(now, known(A, 5, end, now)), now_ms=now)
    assert points(PARTITION, "orders-0") == [(10_000, (5, 4)), (11_000, (5, 10))]
    assert [(row.from_ms - NOW_MS, row.to_ms - NOW_MS) for row in ObservedSpan.objects.all()] == [
        (10_000, 11_000)
    ]


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
