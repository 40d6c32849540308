"""Proves that a recovery keeps the groups that it blocked, and is followed through the tables."""

from itertools import count
from operator import attrgetter
from types import SimpleNamespace

import pytest

from dashboard.models import (
    Cluster,
    Collector,
    GapRecord,
    PartitionRecord,
    PinRecord,
    Recovery,
    TransitionRecord,
)
from dashboard.recoveries import evidence as recovery_evidence
from dashboard.recoveries import queries as recovery_queries
from dashboard.recoveries import store as recovery_store
from dashboard.tasks import recoveries
from fenceline.facts import TopicPartition, TopicPartitions
from fenceline.losses.recoveries import DELETED, RECREATED, LostRecords, WrittenTopic
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.db.scenarios import AGAIN, BEGUN_MS, TAKEOVER, TakeoverScenario
from transaction_admin.api import AdminUnavailable

pytestmark = pytest.mark.sql

PAYMENTS = TopicPartition("payments", 0)


def opened(scenario: TakeoverScenario, at_ms: int = NOW_MS) -> None:
    """Read the takeover, and let a tick make its recovery."""
    scenario.read(*TAKEOVER)
    scenario.tick(at_ms)


@pytest.fixture
def scenario(take: Take) -> TakeoverScenario:
    scenario = TakeoverScenario(take)
    scenario.tick()
    return scenario


def test_a_recovery_keeps_its_blocked_groups_after_they_continue(scenario: TakeoverScenario) -> None:
    scenario.unblock()
    scenario.tick()
    opened(scenario)
    # No recovery is opened twice.
    scenario.tick()
    row = Recovery.objects.get()
    assert (row.cause, row.transactional_id, row.producer_epoch) == ("takeover", "payments-1", 5)
    assert (row.opened_ms, row.begun_ms, row.completed_ms) == (NOW_MS - 1_000, BEGUN_MS, NOW_MS - 990)
    assert row.pins == [["payments", 0, 100, "old"]]
    assert [each[:5] for each in row.waited] == [["billing", "payments", 0, 100, NOW_MS - 5_000]]
    assert Collector.objects.get(name=recovery_store.NAME).seen_through_ms == NOW_MS


@cases((True, 100), (False, 95))
def test_the_search_begins_at_the_blocked_lso_or_at_the_last_end_before_the_transaction(
    take: Take, is_blocked: bool, start: int
) -> None:
    scenario = TakeoverScenario(take)
    if not is_blocked:
        PinRecord.objects.all().delete()
    scenario.tick()
    opened(scenario)
    (row,) = recovery_store.waiting_for_a_search(scenario.lease.cluster_id)
    assert recovery_evidence.search_starts(row) == {PAYMENTS: start}


def test_a_recovery_is_unblocked_and_ends_when_its_id_commits_again(scenario: TakeoverScenario) -> None:
    assert search(scenario, BOUNDS).released_ms is None
    scenario.unblock()
    scenario.tick(NOW_MS + 2_500)
    row = Recovery.objects.get()
    assert (row.released_ms, row.records_released, row.outcome) == (NOW_MS + 2_000, 21, "open")
    assert row.waited[0][-1] == NOW_MS + 2_500
    scenario.read(*AGAIN)
    scenario.tick(NOW_MS + 4_000)
    row = Recovery.objects.get()
    assert (row.outcome, row.resumed_by, row.resumed_ms) == ("resumed", "payments-1", NOW_MS + 3_100)
    assert row.closed_ms == row.resumed_ms


def test_an_unavailable_partition_is_recorded_as_such(scenario: TakeoverScenario) -> None:
    opened(scenario)
    PartitionRecord.objects.all().delete()
    row = Recovery.objects.get()
    assert recovery_evidence.search_starts(row) == {}
    recovery_store.save_lost(scenario.lease, {row: []})
    (lost,) = (LostRecords(*each) for each in Recovery.objects.get().lost)
    assert (lost.first, lost.sure) == (None, False)
    assert "cannot be seen" in lost.note


def two_to_search(scenario: TakeoverScenario) -> list[Recovery]:
    """Return two recoveries that wait for a search, the second one at offset 9."""
    opened(scenario)
    copy = Recovery.objects.get()
    copy.pk, copy.log_offset = None, 9
    copy.save()
    return sorted(recovery_store.waiting_for_a_search(scenario.lease.cluster_id), key=attrgetter("pk"))


def test_losses_found_before_a_broker_is_away_are_saved(
    scenario: TakeoverScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = two_to_search(scenario)

    def search(row: Recovery, cluster: str) -> list[LostRecords]:
        if row.log_offset == 9:
            raise AdminUnavailable("no broker answers")
        return [BOUNDS]

    monkeypatch.setattr(recoveries, "_search", search)
    with pytest.raises(AdminUnavailable):
        list(recoveries.search_all(scenario.lease, rows))
    assert [row.lost_complete for row in Recovery.objects.order_by("pk")] == [True, False]


def test_losses_that_take_long_to_find_are_saved_meanwhile(
    scenario: TakeoverScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save renews the lease, and a slice that ends amid the searches has not searched in vain."""
    rows = two_to_search(scenario)
    monkeypatch.setattr(recoveries, "_search", lambda row, cluster: [])
    monkeypatch.setattr(recoveries, "time", SimpleNamespace(monotonic=count(step=2).__next__))
    turns = recoveries.search_all(scenario.lease, rows)
    next(turns)
    next(turns)
    turns.close()
    assert [row.lost_complete for row in Recovery.objects.order_by("pk")] == [True, False]


def test_a_revised_verdict_updates_its_recovery(scenario: TakeoverScenario) -> None:
    opened(scenario)
    TransitionRecord.objects.filter(kind="takeover").update(
        kind="timeout", confidence="probable", rev=Cluster.objects.get().rev + 1
    )
    Cluster.objects.update(rev=Cluster.objects.get().rev + 1)
    scenario.tick()
    assert Recovery.objects.values_list("cause", "confidence").get() == ("timeout", "probable")


def test_an_abort_before_the_first_tick_opens_no_recovery(take: Take) -> None:
    scenario = TakeoverScenario(take)
    opened(scenario)
    scenario.tick()
    assert not Recovery.objects.exists()


@cases((3_700_000, 1_000, 0, "it is old"), (0, 0, 1, "more than the limit"))
def test_an_old_abort_opens_no_recovery_and_those_beyond_the_limit_are_counted_in_a_gap(
    scenario: TakeoverScenario,
    monkeypatch: pytest.MonkeyPatch,
    after_ms: int,
    most: int,
    count: int,
    why: str,
) -> None:
    monkeypatch.setattr(recovery_store, "MOST_OPEN", most)
    opened(scenario, NOW_MS + after_ms)
    gaps = GapRecord.objects.filter(source=recovery_store.NAME).values_list("scope", "count")
    assert (list(gaps), Recovery.objects.count()) == ([("recoveries", count)] * count, 0), why


@cases(((0, 0), 0), ((264, 3_400), 3_600_000), ((3_400, 264), -3_600_000), ((4_900, 4_900), 200))
def test_a_recovery_never_begins_after_its_end(take: Take, delays_ms: tuple[int, int], ahead_ms: int) -> None:
    """Replayed with the delay of a busy tail: half of what comes late is not taken for another clock."""
    scenario = TakeoverScenario(take, ahead_ms)
    scenario.tick()
    for records, delay_ms in zip((TAKEOVER, AGAIN), delays_ms, strict=True):
        scenario.read(*records, delay_ms=delay_ms)
        scenario.tick(records[-1].updated_ms + delay_ms)
    scenario.unblock()
    marker_ms = NOW_MS - 985 - ahead_ms
    lost = LostRecords(*PAYMENTS, 100, 119, 20, True, "", marker_ms, marker_ms)
    recovery_store.save_lost(scenario.lease, {Recovery.objects.get(): [lost]})
    scenario.tick(NOW_MS + 9_000)
    row = Recovery.objects.get()
    assert row.outcome == "resumed"
    assert (row.completed_ms - row.opened_ms, row.released_ms - row.opened_ms) == (10, 15)
    assert row.resumed_ms - row.opened_ms == 4_100
    assert row.closed_ms == row.resumed_ms
    assert not row.release_noticed
    assert abs(row.opened_ms - (NOW_MS - 1_000)) <= 5_000


def test_a_revised_verdict_keeps_its_instants_of_the_local_clock(take: Take) -> None:
    scenario = TakeoverScenario(take, ahead_ms=3_600_000)
    scenario.tick()
    scenario.read(TAKEOVER[0])
    scenario.tick()
    assert Recovery.objects.values_list("opened_ms", "completed_ms").get() == (NOW_MS - 1_000, None)
    scenario.read(*TAKEOVER[1:], delay_ms=400)
    scenario.tick()
    assert Recovery.objects.values_list("opened_ms", "completed_ms").get() == (NOW_MS - 1_000, NOW_MS - 990)


def search(scenario: TakeoverScenario, lost: LostRecords) -> Recovery:
    """Read the log of the recovery."""
    opened(scenario)
    recovery_store.save_lost(scenario.lease, {Recovery.objects.get(): [lost]})
    scenario.tick(NOW_MS + 1_000)
    return Recovery.objects.get()


BOUNDS = LostRecords(*PAYMENTS, 100, 119, 20, True)


def test_a_recreated_topic_is_neither_read_nor_waited_for(scenario: TakeoverScenario) -> None:
    """Its LSO is past the offset that was blocked, but it belongs to another topic."""
    row = search(scenario, BOUNDS)
    assert recovery_evidence.written_topics(row) == {"payments": WrittenTopic("payments", "old", True)}
    assert recovery_evidence.may_be_deleted(row) == set()
    PartitionRecord.objects.update(topic_id="new", lso=500, high_watermark=500)
    scenario.tick(NOW_MS + 2_000)
    row = Recovery.objects.get()
    assert (row.released_ms, row.outcome) == (None, "open")
    assert list(recovery_store.waiting_for_topics(scenario.lease)) == [row.pk]
    recovery_store.save_deleted(scenario.lease, row, {"payments": RECREATED})
    scenario.tick(NOW_MS + 3_000)
    row = Recovery.objects.get()
    assert (row.outcome, row.closed_ms, row.released_ms) == ("topic_deleted", NOW_MS + 3_000, None)
    (lost,) = (LostRecords(*each) for each in row.lost)
    assert (lost.sure, lost.note, lost.deleted) == (False, RECREATED, True)
    assert not recovery_store.waiting_for_topics(scenario.lease)


def orders_partition() -> None:
    where = {"cluster": Cluster.objects.get(), "topic": "orders", "partition": 0, "topic_id": "any"}
    PartitionRecord.objects.create(**where, log_start=0, lso=7, high_watermark=9, seen_ms=NOW_MS, rev=1)


def test_a_topic_that_is_no_longer_polled_may_be_deleted(scenario: TakeoverScenario) -> None:
    """The end of an id whose log cannot be read has the partitions of its last report alone."""
    row = search(scenario, BOUNDS)
    row.pins = [*row.pins, ["orders", 0, 7]]
    orders_partition()
    assert recovery_evidence.may_be_deleted(row) == set(), "a partition that no report named is its own"
    PartitionRecord.objects.filter(topic="payments").delete()
    assert recovery_evidence.may_be_deleted(row) == {"payments"}


def test_of_two_topics_only_the_remaining_one_counts(scenario: TakeoverScenario) -> None:
    two = (TopicPartitions("orders", (0,)), TopicPartitions("payments", (0,)))
    orders_partition()
    scenario.read(*(each._replace(partitions=two) for each in TAKEOVER))
    scenario.tick()
    gone = LostRecords(*PAYMENTS, 100, None, None, False, DELETED, deleted=True)
    found = [LostRecords("orders", 0, 7, 8, 2, True), gone]
    recovery_store.save_lost(scenario.lease, {Recovery.objects.get(): found})
    scenario.tick(NOW_MS + 1_000)
    assert Recovery.objects.get().released_ms is None
    PartitionRecord.objects.filter(topic="orders").update(lso=10, high_watermark=10, seen_ms=NOW_MS + 1_500)
    scenario.tick(NOW_MS + 2_000)
    row = Recovery.objects.get()
    assert (row.released_ms, row.records_released, row.outcome) == (NOW_MS + 1_500, 3, "open")
    assert recovery_queries.lost_records(row) == (2, "at least")


def test_the_topic_id_is_kept_while_the_transaction_is_open(scenario: TakeoverScenario) -> None:
    """Longer than anything else is kept: a timeout may come minutes after the topic was made again."""
    PinRecord.objects.all().delete()
    PartitionRecord.objects.update(topic_id="new", lso=0, high_watermark=0, ends="")
    for minutes in range(1, 4):
        scenario.tick(NOW_MS + minutes * 60_000)
    scenario.read(*TAKEOVER)
    scenario.tick(NOW_MS + 200_000)
    row = Recovery.objects.get()
    assert recovery_evidence.written_topics(row) == {"payments": WrittenTopic("payments", "old", True)}
    assert recovery_evidence.may_be_deleted(row) == {"payments"}


@cases((f"[[{BEGUN_MS - 60_000}, 90, 90]]", True), (f"[[{BEGUN_MS + 10}, 0, 0]]", False), ("", False))
def test_a_topic_first_polled_after_the_beginning_may_be_another_one(
    take: Take, ends: str, since_begin: bool
) -> None:
    scenario = TakeoverScenario(take)
    PinRecord.objects.all().delete()
    PartitionRecord.objects.update(ends=ends)
    scenario.tick()
    opened(scenario)
    topic = recovery_evidence.written_topics(Recovery.objects.get())["payments"]
    assert topic == WrittenTopic("payments", "old", since_begin)
