"""Proves that the evaluation reads what the tables have: what is open or blocked, by the local clock."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import Collector, GapRecord, PartitionRecord, Transaction
from fenceline.facts import NOT_FROM_LOG, TransactionState
from fenceline.findings import Sense
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import HOUR_MS

pytestmark = pytest.mark.sql


def read(reader: SnapshotReader | None = None, *, now_ms: int = NOW_MS) -> Snapshot:
    return (reader or SnapshotReader("prod")).read(now_ms=now_ms, limits=Limits())


def test_young_and_complete_transactions_are_not_read() -> None:
    factories.position()
    factories.transaction("old")
    factories.transaction("young", started_ms=NOW_MS - 9_000)
    factories.transaction("done", state="CompleteCommit")
    (found,) = read().transactions
    expected = ("old", TransactionState.ONGOING, "payments")
    assert (found.transactional_id, found.state, found.application) == expected
    assert [(topic, list(numbers)) for topic, numbers in found.partitions] == [("orders", [0])]


@cases(
    (-120_000, 0, 120, "clocks agree"),
    (-120_000 + HOUR_MS, -HOUR_MS, 120, "its broker's clock is an hour ahead of ours"),
    (-120_000 - HOUR_MS, HOUR_MS, 120, "an hour behind"),
    (-5_000 - HOUR_MS, HOUR_MS, 5, "and it is young all the same"),
    (-120_000 - HOUR_MS, None, 1_800, "not known: no older than since we look"),
    (-120_000 + HOUR_MS, None, None, "not known, and in the future: no age"),
)
def test_ages_are_measured_by_the_local_clock(
    stamped_ms: int, ahead_ms: int | None, age_s: float | None, why: str
) -> None:
    factories.position(ahead_ms=ahead_ms, since_ms=NOW_MS - 1_800_000)
    factories.transaction(started_ms=NOW_MS + stamped_ms, updated_ms=NOW_MS + stamped_ms)
    ages = [
        None if each.started_ms is None else (NOW_MS - each.started_ms) / 1_000
        for each in read().transactions
    ]
    assert ages == [age_s], why


def test_each_coordinators_clock_skew_is_applied() -> None:
    """One broker an hour ahead must not make the others' transactions young, nor the other way round."""
    factories.position(3, ahead_ms=-HOUR_MS)
    # So little is the time it takes to read a record, and moves nothing.
    factories.position(4, ahead_ms=50)
    factories.transaction("ahead", started_ms=NOW_MS + HOUR_MS - 90_000, log_partition=3)
    factories.transaction("right", started_ms=NOW_MS - 90_000, log_partition=4)
    assert [each.started_ms for each in read().transactions] == [NOW_MS - 90_000] * 2


def test_the_instant_of_a_decision_is_in_the_local_clock_and_an_id_of_a_list_keeps_the_coordinators() -> None:
    factories.position(ahead_ms=HOUR_MS)
    begun_ms, decided_ms = NOW_MS - HOUR_MS - 90_000, NOW_MS - HOUR_MS - 20_000
    factories.transaction(state="PrepareCommit", started_ms=begun_ms, updated_ms=decided_ms)
    assert [each.updated_ms for each in read().transactions] == [NOW_MS - 20_000]
    Transaction.objects.all().delete()
    factories.transaction(log_partition=NOT_FROM_LOG, log_offset=NOT_FROM_LOG)
    assert [each.started_ms for each in read().transactions] == [NOW_MS - 120_000]


def test_an_invalid_start_is_replaced_by_the_first_poll_of_its_partition() -> None:
    factories.position(ahead_ms=None)
    factories.partition()
    factories.lso_blocker(name="payments-7", verdict="open", ground="owned")
    factories.transaction(started_ms=NOW_MS + HOUR_MS)
    factories.transaction("other", producer_id=8, started_ms=NOW_MS + HOUR_MS)
    starts = {each.transactional_id: each.started_ms for each in read().transactions}
    assert starts == {"payments-7": NOW_MS - 120_000, "other": None}


def test_blocked_partitions_have_their_transactions_in_order_and_those_without_a_verdict_are_not_read() -> (
    None
):
    factories.partition("orders", 0, verdict="hanging")
    factories.partition("orders", 1, verdict="clear")
    PartitionRecord.objects.filter(partition=1).update(pinned_ms=NOW_MS - 1)
    factories.lso_blocker(verdict="hanging", ground="no_such_producer")
    later = factories.lso_blocker(verdict="open", ground="owned", number=0, topic="other")
    later.topic, later.start_offset = "orders", 900
    later.save()
    (found,) = read().partitions
    expected = ("orders-0", PartitionVerdict.HANGING, 5_000)
    assert (str(found), found.verdict, found.uncommitted_backlog) == expected
    expected = [(812, VerdictReason.NO_SUCH_PRODUCER), (900, VerdictReason.OWNED)]
    assert [(pin.start_offset, pin.ground) for pin in found.pins] == expected


def test_blocked_groups_have_their_blockers_and_transactions_their_blocked_groups() -> None:
    factories.position()
    blocker = {"producer_id": 7, "producer_epoch": 0, "transactional_id": "payments-7", "start_offset": 812}
    factories.blocked_group("billing", blockers=[blocker])
    factories.blocked_group("audit", blockers=[blocker], waiting="reads_past")
    factories.blocked_group("idle", waiting="")
    factories.transaction()
    found = read()
    offsets = {each.group_id: each.offsets for each in found.groups}
    assert set(offsets) == {"billing", "audit"}
    (offset,) = offsets["billing"]
    assert (str(offset), offset.behind, offset.waiting) == ("orders-0", 5_000, Waiting.PROBABLY)
    assert offset.blockers == (GroupBlocker(**blocker),)
    assert [each.waiting for each in found.transactions] == [("billing",)]


def test_a_pending_commit_has_the_age_of_its_blocked_log() -> None:
    factories.partition("__consumer_offsets", 7)
    pending = {"transactional_id": "payments-7", "pending": True, "certain": False}
    factories.blocked_group(blockers=[pending], waiting="", unstable=True)
    (found,) = read().groups
    assert found.log_pinned_ms == NOW_MS - 120_000
    assert found.offsets[0].unstable
    assert found.offsets[0].blockers == (GroupBlocker(**pending),)


def test_each_collector_provides_its_senses_and_lists_the_transactions_without_a_tail() -> None:
    factories.collectors()
    assert {each.name: each.senses for each in read().collectors} == {
        "transaction_state": {Sense.TRANSACTIONS, Sense.HISTORY},
        "partitions": {Sense.PARTITIONS},
        "groups": {Sense.GROUPS},
        "reconcile": {Sense.LISTS},
    }
    Collector.objects.filter(name="reconcile").update(detail={"alone": True, "unseen": ["broker 2: loading"]})
    found = {each.name: each for each in read().collectors}
    assert found["reconcile"].senses == {Sense.TRANSACTIONS, Sense.LISTS}
    assert found["reconcile"].unseen == ("broker 2: loading",)
    assert found["transaction_state"].senses == {Sense.HISTORY}


def test_places_are_read_only_while_a_part_is_hidden() -> None:
    factories.collectors()
    factories.partition()
    factories.blocked_group()
    factories.transaction()
    assert read().places == {}
    factories.gap("partitions", "broker:1")
    assert read().places == {
        "partition:orders-0": {"broker:1", "topic:orders"},
        "group:billing": {"broker:2", "__consumer_offsets-7"},
        "transaction:payments-7": set(),
    }


def test_with_several_tails_an_id_belongs_to_the_part_of_its_tail() -> None:
    """`my-group` lies in partition 12 of 50, as Strimzi has published."""
    factories.collectors("transaction_state-0", "transaction_state-1", "transaction_state-2")
    for partition in range(50):
        factories.position(partition)
    factories.transaction("my-group")
    found = read()
    assert found.places == {"transaction:my-group": {"shard:0"}}
    assert {each.scope for each in found.collectors} == {"shard:0", "shard:1", "shard:2"}


def plans(captured: CaptureQueriesContext) -> list[tuple[str, str]]:
    """Return the statements that were run, each with how SQLite finds its rows."""
    found = []
    with connection.cursor() as cursor:
        for query in [each["sql"] for each in captured.captured_queries]:
            cursor.execute(f"EXPLAIN QUERY PLAN {query}")
            found.append((query, " ".join(row[3] for row in cursor.fetchall())))
    return found


# It asks SQLite for its plans.
@pytest.mark.sql("sqlite")
def test_a_tick_reads_along_indexes_of_what_is_open() -> None:
    """100,000 ids and 2,000 partitions are stored beside the few that are read each second."""
    factories.collectors()
    factories.position()
    factories.partition()
    factories.blocked_group()
    factories.transaction()
    reader = SnapshotReader("prod")
    read(reader)
    with CaptureQueriesContext(connection) as captured:
        read(reader)
    found = plans(captured)
    assert not [query for query, plan in found if "SCAN" in plan], "a whole table is read"
    for table, index in (
        (Transaction, "transaction_open"),
        (PartitionRecord, "partition_pinned"),
        (GapRecord, "gap_open_once"),
    ):
        rows = [plan for query, plan in found if f'FROM "{table._meta.db_table}"' in query]
        assert any(index in plan for plan in rows), index


def test_a_decided_transaction_names_the_partitions_without_its_marker() -> None:
    factories.position()
    factories.transaction(
        "late", state="PrepareCommit", updated_ms=NOW_MS - 20_000, partitions='[["orders", [0, 1, 2, 3]]]'
    )
    factories.partition("orders", 0, verdict="clear")
    factories.partition("orders", 1, leader=None)
    PartitionRecord.objects.filter(partition=1).update(replicas=[2])
    factories.partition("orders", 2, leader=3, verdict="late")
    factories.lso_blocker("orders", 2, name="late", verdict="late", ground="stuck_in_prepare")
    (found,) = read().transactions
    # The fourth is not watched: nothing is said about it.
    expected = [("orders-1", None, (2,)), ("orders-2", 3, ())]
    assert [(str(each), each.leader, each.replicas) for each in found.missing] == expected
    Transaction.objects.update(updated_ms=NOW_MS - 5_000)
    (found,) = read().transactions
    assert found.missing == ()
