"""Proves what rows tell of streaming queries: what is found where their topics do not exist, what blocks them
at the LSO, and their lag: each partition once, and nothing that was deleted."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import blocking
from dashboard.models import Collector, DeletedPartition, PartitionRecord, Query, Transaction
from dashboard.streaming.batch_state import safe_to_restart
from dashboard.streaming.lag import partition_readers, query_lag, query_sources
from dashboard.streaming.rule_input import Queries
from fenceline.limits import Limits
from fenceline.rules import RULES
from fenceline.snapshot import Snapshot
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import batch, decision, decision_end, decision_row, prod, query

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _polled() -> None:
    """A full poll of all partitions a moment ago."""
    factories.collectors("partitions", "checkpoints")
    Collector.objects.update(detail={"full_ms": NOW_MS - 500})


def reads(**topics: dict[int, int]) -> Query:
    """Make a query that has read topics up to these offsets by partition, an hour ago."""
    row = query(state="unheard", planned=2, sink="kafka", ledger_id="", seen_ms=NOW_MS)
    offsets = [
        [str(n), json.dumps({topic: {str(number): at for number, at in of.items()}})]
        for n, (topic, of) in enumerate(topics.items())
    ]
    batch(row, 2, committed_ms=NOW_MS - HOUR_MS, offsets=offsets)
    return row


def deleted(topic: str, number: int = 0, end: int | None = 20, log_start: int | None = 0) -> None:
    DeletedPartition.objects.create(
        cluster=prod(), topic=topic, partition=number, log_start=log_start, high_watermark=end,
        deleted_ms=NOW_MS - 60_000,
    )  # fmt: skip


def found(now_ms: int = NOW_MS) -> list[tuple[str, str]]:
    """Return severity and summary of what the rule finds."""
    snapshot = Snapshot("prod", queries=Queries(prod().pk).read_statuses(now_ms=now_ms))
    findings = RULES["topic_deleted"].check(snapshot, now_ms=now_ms, limits=Limits())
    return [(each.severity.value, each.summary) for each in findings]


def safe(row: Query) -> tuple[bool | None, str]:
    answer = safe_to_restart(row, NOW_MS)
    return answer.safe, answer.sentence


@cases(
    ({"end": 20}, "critical", "gone was deleted with 10 unread records"),
    ({"end": 11}, "critical", "gone was deleted with 1 unread record"),
    ({"end": 10}, "warning", "gone was deleted; all of it was read"),
    ({"end": 20, "log_start": 15}, "critical", "gone was deleted with 5 unread records"),
    ({"end": None}, "warning", "gone was deleted, and how many records were unread is not known"),
)
def test_a_deleted_topic_is_found_and_its_query_is_not_safe(
    facts: dict[str, Any], severity: str, words: str
) -> None:
    row = reads(gone={0: 10})
    deleted("gone", **facts)
    assert found() == [(severity, f"orders: {words}")]
    assert safe(row) == (False, f"Do not restart orders now: {words}.")


@cases(
    ({"orders": {0: 10}, "gone": {0: 10, 1: 7}}, ["gone"] * 2, (0, 1), "gone was deleted with 23"),
    ({"orders": {0: 10, 1: 7, 2: 4}}, ["orders"] * 2, (1, 2), "orders-1 and orders-2 were deleted with 29"),
)
def test_one_of_several_topics_and_partitions_that_a_topic_has_lost_are_named(
    topics: dict[str, dict[int, int]], gone: list[str], numbers: tuple[int, int], words: str
) -> None:
    row = reads(**topics)
    factories.partition()
    for topic, number in zip(gone, numbers, strict=True):
        deleted(topic, number)
    assert found() == [("critical", f"orders: {words} unread records")]
    assert safe(row)[0] is False


def test_a_topic_that_was_never_listed_is_not_known_to_be_deleted() -> None:
    row = reads(elsewhere={0: 10})
    ((severity, words),) = found()
    assert severity == "info"
    assert words.startswith("orders: elsewhere is not in the cluster's list of topics")
    assert safe(row)[0] is None
    for full_ms, why in ((None, "no list yet"), (NOW_MS - HOUR_MS + 9_000, "it may be older than the topic")):
        Collector.objects.update(detail={"full_ms": full_ms})
        assert (found(), safe(row)[0]) == ([], True), why


def test_an_abandoned_query_is_not_safe_either_until_its_topic_is_there_again() -> None:
    row = reads(orders={0: 10})
    deleted("orders")
    abandoned = Query.objects.filter(pk=row.pk)
    abandoned.update(heard_ms=None, planned_ms=NOW_MS - 8 * 86_400_000)
    assert (found(), safe(row)[0]) == ([], False)
    abandoned.update(planned_ms=row.planned_ms, heard_ms=row.heard_ms)
    factories.partition()
    assert (found(), safe(row)[0]) == ([], True)


def test_a_deleted_output_topic_of_our_sink_is_found() -> None:
    row = query(state="unheard", planned=2, seen_ms=NOW_MS)
    decision_row(row, decision(2), decision_end(2))
    assert (found(), safe(row)[0]) == ([], True)
    deleted("enriched")
    assert found() == [("warning", "orders: its output topic enriched was deleted")]
    assert safe(row) == (False, "Do not restart orders now: its output topic enriched was deleted.")
    PartitionRecord.objects.create(cluster=prod(), topic="enriched", partition=0, rev=1)
    assert (found(), safe(row)[0]) == ([], True)


def block_partition() -> Transaction:
    """Let `payments-7` block `orders-0` at 812."""
    factories.partition()
    factories.lso_blocker(name="payments-7", verdict="open", ground="owned")
    return factories.transaction("payments-7")


def add_query(position: int, *, topic: str = "orders", ident: str = "q-1", finished_ms: int = NOW_MS) -> None:
    row = query(ident, checkpoint=f"file:///{ident}", finished=2)
    offsets = [["0", f'{{"{topic}":{{"0":{position}}}}}']]
    batch(row, 2, committed_ms=finished_ms, offsets=offsets)


@cases(
    (812, "orders", True, "exactly at the LSO"),
    (813, "orders", False, "past it: it reads uncommitted"),
    (811, "orders", False, "it has work before it"),
    (812, "other", False, "another topic"),
)
def test_a_query_at_the_lso_is_blocked(position: int, topic: str, is_told: bool, why: str) -> None:
    row = block_partition()
    add_query(position, topic=topic)
    found = blocking.waits_of([row])[row.pk].queries
    assert [each.ident for each in found] == ["q-1"] * is_told, why


def test_a_blocked_query_has_its_beginning_and_its_partition() -> None:
    row = block_partition()
    add_query(812, finished_ms=NOW_MS - 500_000)
    add_query(812, ident="q-2", finished_ms=NOW_MS - 5_000)
    found = blocking.waits_of([row])[row.pk]
    assert [each.since_ms for each in found.queries] == [NOW_MS - 120_000, NOW_MS - 5_000]
    (place,) = blocking.transaction_partitions(row, found, most=10)
    assert {(each.name, each.topic, each.partition) for each in place.queries} == {("orders", "orders", 0)}
    assert len(place.queries) == 2


def test_a_transaction_behind_another_one_blocks_no_query() -> None:
    row = block_partition()
    add_query(812)
    second = factories.lso_blocker(name="later", verdict="open", ground="owned", topic="other")
    second.topic, second.start_offset, second.producer_id = "orders", 900, 8
    second.save()
    later = factories.transaction("later", producer_id=8)
    found = blocking.waits_of([row, later])
    assert (len(found[row.pk].queries), found[later.pk].queries) == (1, [])


def test_without_a_blocked_partition_no_batch_is_read() -> None:
    row = factories.transaction("payments-7")
    add_query(812)
    with CaptureQueriesContext(connection) as captured:
        assert blocking.waits_of([row])[row.pk].queries == []
    assert not [each for each in captured.captured_queries if "dashboard_batch" in each["sql"]]


def at(*positions: int) -> list[list[str]]:
    """Return the offsets of several sources that read `orders-0`."""
    return [[str(n), json.dumps({"orders": {"0": position}})] for n, position in enumerate(positions)]


@cases(
    ((762,), 0, (50, 5_050)),
    ((762, 762, 762), 0, (50, 5_050)),
    ((800, 762, 812), 0, (50, 5_050)),
    ((762,), 802, (10, 5_050)),
    ((762,), 812, (0, 5_050)),
)
def test_lag(positions: tuple[int, ...], log_start: int, lags: tuple[int, int]) -> None:
    row = query()
    batch(row, 2, committed_ms=NOW_MS, offsets=at(*positions))
    factories.partition()
    PartitionRecord.objects.update(log_start=log_start)
    sources = query_sources([row])[row.pk]
    assert len(sources) == len(positions)
    found = query_lag(sources)
    assert (found.lag_lso, found.lag_hw, found.partitions) == (*lags, 1)


def test_a_query_reads_a_partition_once_whatever_its_sources() -> None:
    row = query()
    batch(row, 2, committed_ms=NOW_MS, offsets=at(800, 762, 812))
    factories.partition()
    ((reader, part),) = partition_readers(PartitionRecord.objects.get(), most=5)
    assert (reader.pk, part.position) == (row.pk, 762)
