"""Proves what of a poll of partitions is written and what is not: changed rows alone, whole or nothing, with
the lease; gaps that open and close by scope; a restart that begins with the very same facts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.models import (
    Cluster,
    Collector,
    GapRecord,
    PartitionRecord,
    PinRecord,
    Position,
    ReplicaLook,
    Transaction,
)
from dashboard.partitions.store import NAME, PartitionRows, replica_brokers, save_partitions, save_replicas
from dashboard.runtime import collector_store, notify
from dashboard.runtime.leases import Lease
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import (
    KnownPartition,
    ObservedPartitions,
    PartitionPlace,
    PartitionVerdict,
    Pin,
    ProducerState,
    VerdictReason,
)
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.db.series_polls import PLACE, A, B

pytestmark = pytest.mark.sql

Rung = list[tuple[str, str]]


def known_partition(
    where: TopicPartition, end: int = 9, *, verdict: PartitionVerdict = PartitionVerdict.CLEAR
) -> KnownPartition:
    return KnownPartition(*where, PLACE, 0, 5, end, NOW_MS, NOW_MS - 7, verdict, "")


def lso_blocker(where: TopicPartition = A, producer_id: int = 7) -> Pin:
    owned = PartitionVerdict.OPEN, VerdictReason.OWNED
    return Pin(*where, producer_id, 4, 5, 11, NOW_MS - 90_000, None, NOW_MS - 7, "gateway", *owned)


def observed(*rows: KnownPartition, at_ms: int = NOW_MS, **more: Any) -> ObservedPartitions:
    found = {TopicPartition(each.topic, each.partition): each for each in rows}
    return ObservedPartitions(at_ms, full=True, rows=found, **more)


def save(lease: Lease, *rows: KnownPartition, after_ms: int = 0, **facts: Any) -> None:
    save_partitions(lease, observed(*rows, **facts), now_ms=NOW_MS + after_ms)


@pytest.fixture
def lease(take: Take) -> Lease:
    return take(NAME)


@pytest.fixture
def change_notifications(monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any) -> Rung:
    heard: Rung = []
    monkeypatch.setattr(
        notify, "notify_change", lambda cluster, kind, rev, ids=(): heard.append((cluster, kind))
    )
    monkeypatch.setattr("django.db.transaction.on_commit", lambda call, using=None, robust=False: call())
    return heard


def test_a_poll_becomes_rows_and_notifies_pages(lease: Lease, change_notifications: Rung) -> None:
    ends, cost = {A: f"[[{NOW_MS},5,9]]"}, {"requests": 4, "broker_ms": 12.4}
    save(lease, known_partition(B), known_partition(A), ends=ends, pins=(lso_blocker(),), **cost)
    row = PartitionRecord.objects.get(partition=0)
    assert (row.lso, row.high_watermark, row.leader, row.replicas, row.verdict) == (5, 9, 1, [1, 2], "clear")
    assert (row.topic_id, row.ends, row.rev) == ("topic-1", ends[A], Cluster.objects.get().rev)
    assert PartitionRecord.objects.get(partition=1).ends == ""
    open_one = PinRecord.objects.get()
    assert (open_one.transactional_id, open_one.verdict, open_one.ground) == ("gateway", "open", "owned")
    assert (open_one.first_seen_ms, open_one.coordinator_epoch) == (NOW_MS - 7, None)
    mine = Collector.objects.get(name=NAME)
    assert (mine.seen_through_ms, mine.records, mine.requests, mine.broker_ms) == (NOW_MS, 2, 4, 12)
    assert change_notifications == [("prod", "partitions")]


def test_a_history_without_a_new_point_is_not_written(lease: Lease) -> None:
    save(lease, known_partition(A), ends={A: "[[1,2,3]]"})
    save(lease, known_partition(A, 12))
    row = PartitionRecord.objects.get()
    assert (row.high_watermark, row.ends) == (12, "[[1,2,3]]")
    save(lease, known_partition(A, 13), ends={A: ""})
    assert PartitionRecord.objects.get().ends == ""


def test_only_ended_and_missing_rows_are_deleted_and_an_unchanged_poll_notifies_nobody(
    lease: Lease, change_notifications: Rung
) -> None:
    save(lease)
    assert change_notifications == []
    mine, theirs = lso_blocker(), lso_blocker(B)
    save(lease, known_partition(A), known_partition(B), pins=(mine, lso_blocker(producer_id=8), theirs))
    save_replicas("prod", B, {1: ()}, leader=1, ids={}, now_ms=NOW_MS)
    change_notifications.clear()
    save(lease, ended=(mine.key, theirs.key), gone=frozenset({B}))
    assert change_notifications == [("prod", "partitions")]
    assert [each.partition for each in PartitionRecord.objects.all()] == [0]
    assert [each.producer_id for each in PinRecord.objects.all()] == [8]
    assert not ReplicaLook.objects.exists()


def test_many_rows_are_saved_a_thousand_at_a_time_in_key_order(lease: Lease) -> None:
    many = [known_partition(TopicPartition("orders", number)) for number in reversed(range(2_500))]
    with CaptureQueriesContext(connection) as queries:
        save_partitions(lease, observed(*many), now_ms=NOW_MS)
    saves = [q for q in queries.captured_queries if "SET rev = rev + 1" in q["sql"].replace('"', "")]
    assert len(saves) == 3
    assert PartitionRecord.objects.count() == 2_500
    numbers = PartitionRecord.objects.order_by("pk").values_list("partition", flat=True)
    assert list(numbers) == list(range(2_500))


def test_gaps_open_and_close_by_scope(lease: Lease, change_notifications: Rung) -> None:
    save(lease, gaps={"broker:2": "no answer", "partition:orders-0": "no READ"})
    assert change_notifications == [("prod", "collectors")]
    first = GapRecord.objects.get(scope="broker:2")
    # Nothing of it has changed; then the reason of one has, another is over, and a third is new.
    save_partitions(lease, observed(), now_ms=NOW_MS + 1)
    save_partitions(lease, observed(gaps={"broker:2": "gone", "topic:x": "no DESCRIBE"}), now_ms=NOW_MS + 2)
    opened = GapRecord.objects.filter(until_ms=None).order_by("scope")
    expected = [("broker:2", "gone", NOW_MS, NAME), ("topic:x", "no DESCRIBE", NOW_MS + 2, NAME)]
    assert [(each.scope, each.reason, each.since_ms, each.source) for each in opened] == expected
    assert first.pk == opened[0].pk
    assert GapRecord.objects.get(scope="partition:orders-0").until_ms == NOW_MS + 2
    # The collector's own blindness is another one's to open and close.
    collector_store.save_trouble(lease, "nobody answers", now_ms=NOW_MS + 3)
    assert GapRecord.objects.filter(until_ms=None).count() == 3
    save_partitions(lease, observed(gaps={}), now_ms=NOW_MS + 4)
    assert not GapRecord.objects.filter(until_ms=None).exists()
    assert Collector.objects.get(name=NAME).error == ""


def test_a_restart_begins_with_the_same_facts(lease: Lease) -> None:
    blind = known_partition(B, verdict=PartitionVerdict.UNKNOWN)._replace(
        place=PartitionPlace("topic-1", None, None, (1, 2)), error="it has no leader", pinned_ms=None
    )
    rows = {A: known_partition(A), B: blind}
    pins = [lso_blocker(), replace(lso_blocker(B), prepared_ms=NOW_MS, coordinator_epoch=3)]
    history = f"[[{NOW_MS},5,9]]"
    save_partitions(lease, observed(*rows.values(), pins=tuple(pins), ends={A: history}), now_ms=NOW_MS)
    ours = PartitionRows(lease, (), vouched=False)
    assert ours.known_partitions() == rows
    assert ours.end_histories() == {A: history, B: ""}
    assert sorted(ours.open_pins(), key=lambda each: each.key) == pins


def transaction(name: str, state: str, partitions: object, producer_id: int) -> None:
    Transaction.objects.create(
        cluster=Cluster.objects.get(), key=name.encode(), transactional_id=name, state=state,
        producer_id=producer_id, producer_epoch=0, timeout_ms=1, updated_ms=1,
        partitions=json.dumps(partitions) if partitions else "", partition_count=0, client_version=0,
        log_partition=0, log_offset=0, rev=0,
    )  # fmt: skip


def test_partitions_of_open_transactions_and_owners_of_producer_ids_are_read(take: Take) -> None:
    ours = PartitionRows(take(NAME), (), vouched=False)
    transaction("a", "Ongoing", [["orders", [0, 2]], ["payments", [1]]], 7)
    transaction("b", "PrepareAbort", [["orders", [2]]], 8)
    transaction("c", "CompleteCommit", [["orders", [9]]], 9)
    transaction("d", "Empty", None, 10)
    assert ours.named_partitions() == {
        TopicPartition(*each) for each in (("orders", 0), ("orders", 2), ("payments", 1))
    }
    assert ours.transactional_ids([7, 10, 11]) == {7: "a", 10: "d"}
    assert ours.transactional_ids([]) == {}


TAILS = ("transaction_state-0", "transaction_state-1")


@cases(
    ({}, True),
    ({"seen_through_ms": None}, False),
    ({"seen_through_ms": NOW_MS - 60_000}, False),
    ({"error": "no READ on __transaction_state"}, False),
    ({"undecoded": {"value_version": 1}}, False),
)
def test_all_ids_are_visible_only_while_every_tail_reads_everything(
    take: Take, change: dict[str, object], expected: bool
) -> None:
    ours = PartitionRows(take(NAME), TAILS, vouched=False)
    ours.now_ms = NOW_MS
    assert not ours.sees_all()
    for name in TAILS:
        take(name)
    Collector.objects.filter(name__in=TAILS).update(seen_through_ms=NOW_MS)
    assert not ours.sees_all(), "a topic that does not exist was not read"
    Position.objects.create(
        cluster=Cluster.objects.get(), topic="__transaction_state", partition=0, next_offset=1, end_offset=1
    )
    Collector.objects.filter(name=TAILS[1]).update(**change)
    assert ours.sees_all() is expected
    gap = {"cluster": Cluster.objects.get(), "scope": "shard:1", "since_ms": 1, "reason": "…"}
    GapRecord.objects.create(source=TAILS[0], until_ms=2, **gap)
    assert ours.sees_all() is expected
    GapRecord.objects.create(source=TAILS[0], **gap)
    assert not ours.sees_all()


def test_the_configuration_may_vouch_for_all_ids_without_a_tail(take: Take) -> None:
    assert PartitionRows(take(NAME), TAILS, vouched=True).sees_all()
    assert not PartitionRows(take(NAME, previous=1), (), vouched=False).sees_all()


def test_answers_of_replicas_are_saved_by_broker(take: Take, change_notifications: Rung) -> None:
    leader = ProducerState(7, 4, 11, NOW_MS, None, start_offset=5)
    idle = ProducerState(8, 0, 3, NOW_MS, 2, start_offset=None)
    said = {1: (leader, idle), 2: "broker 2: no answer in time"}
    save_replicas("prod", A, said, leader=1, ids={7: "gateway"}, now_ms=NOW_MS)
    assert change_notifications == [("prod", "partitions")]
    first, second = ReplicaLook.objects.order_by("broker")
    assert (first.leads, first.error, second.leads, second.producers) == (True, "", False, [])
    assert second.error == "broker 2: no answer in time"
    names = ((leader, "gateway"), (idle, ""))
    assert first.producers == [{**each._asdict(), "transactional_id": name} for each, name in names]
    # The replica moved; the other one answers now.
    save_replicas("prod", A, {2: (), 3: ()}, leader=3, ids={}, now_ms=NOW_MS + 1)
    found = ReplicaLook.objects.order_by("broker").values_list("broker", "leads", "error")
    assert list(found) == [(2, False, ""), (3, True, "")]
    save_partitions(take(NAME), observed(known_partition(A)), now_ms=NOW_MS)
    assert replica_brokers("prod", A) == (1, 2)
    assert replica_brokers("prod", B) == ()
