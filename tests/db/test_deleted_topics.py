"""Proves what is found of queries whose topics do not exist, and that none of them is safe to restart."""

import json
from typing import Any

import pytest

from dashboard.models import Collector, DeletedPartition, PartitionRecord, Query
from dashboard.streaming.batch_state import safe_to_restart
from dashboard.streaming.rule_input import Queries
from fenceline.limits import Limits
from fenceline.rules import RULES
from fenceline.snapshot import Snapshot
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


@pytest.mark.parametrize(
    ("number", "facts", "severity", "words"),
    [
        (1, {"end": 20}, "critical", "gone was deleted with 10 unread records"),
        (2, {"end": 11}, "critical", "gone was deleted with 1 unread record"),
        (3, {"end": 10}, "warning", "gone was deleted; all of it was read"),
        (4, {"end": 20, "log_start": 15}, "critical", "gone was deleted with 5 unread records"),
        (5, {"end": None}, "warning", "gone was deleted, and how many records were unread is not known"),
    ],
)
def test_a_deleted_topic_is_found_and_its_query_is_not_safe(
    number: int, facts: dict[str, Any], severity: str, words: str
) -> None:
    row = reads(gone={0: 10})
    deleted("gone", **facts)
    assert found() == [(severity, f"orders: {words}")], f"case {number}"
    assert safe(row) == (False, f"Do not restart orders now: {words}.")


def test_one_of_several_topics_is_named() -> None:
    row = reads(orders={0: 10}, gone={0: 10, 1: 7})
    factories.partition()
    deleted("gone")
    deleted("gone", 1)
    assert found() == [("critical", "orders: gone was deleted with 23 unread records")]
    assert safe(row)[0] is False


def test_partitions_that_a_topic_has_lost_are_named() -> None:
    row = reads(orders={0: 10, 1: 7, 2: 4})
    factories.partition()
    deleted("orders", 1)
    deleted("orders", 2)
    assert found() == [("critical", "orders: orders-1 and orders-2 were deleted with 29 unread records")]
    assert safe(row)[0] is False


def test_a_topic_that_was_never_listed_is_not_known_to_be_deleted() -> None:
    row = reads(elsewhere={0: 10})
    ((severity, words),) = found()
    assert severity == "info"
    assert words.startswith("orders: elsewhere is not in the cluster's list of topics")
    assert safe(row)[0] is None


@pytest.mark.parametrize(
    ("number", "full_ms", "why"),
    [
        (1, None, "no list was read yet"),
        (2, NOW_MS - HOUR_MS + 9_000, "the list may be older than the topic"),
    ],
)
def test_nothing_is_missed_before_a_list_shows_it(number: int, full_ms: int | None, why: str) -> None:
    row = reads(elsewhere={0: 10})
    Collector.objects.update(detail={"full_ms": full_ms})
    assert found() == [], f"case {number}: {why}"
    assert safe(row)[0] is True


def test_a_topic_that_is_there_again_is_not_missing() -> None:
    row = reads(orders={0: 10})
    deleted("orders")
    factories.partition()
    assert found() == []
    assert safe(row)[0] is True


def test_an_abandoned_query_is_not_safe_either() -> None:
    row = reads(gone={0: 10})
    deleted("gone")
    Query.objects.update(heard_ms=None, planned_ms=NOW_MS - 8 * 86_400_000)
    assert found() == []
    assert safe(row)[0] is False


def test_a_deleted_output_topic_of_our_sink_is_found() -> None:
    row = query(state="unheard", planned=2, seen_ms=NOW_MS)
    decision_row(row, decision(2), decision_end(2))
    assert (found(), safe(row)[0]) == ([], True)
    deleted("enriched")
    assert found() == [("warning", "orders: its output topic enriched was deleted")]
    assert safe(row) == (False, "Do not restart orders now: its output topic enriched was deleted.")
    PartitionRecord.objects.create(cluster=prod(), topic="enriched", partition=0, rev=1)
    assert (found(), safe(row)[0]) == ([], True)
