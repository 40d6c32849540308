"""Proves that streaming queries are named where they are blocked at the LSO by a transaction."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import blocking
from dashboard.models import Transaction
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import batch, query


def block_partition() -> Transaction:
    """Let `payments-7` block `orders-0` at 812."""
    factories.partition()
    factories.lso_blocker(name="payments-7", verdict="open", ground="owned")
    return factories.transaction("payments-7")


def add_query(position: int, *, topic: str = "orders", ident: str = "q-1", finished_ms: int = NOW_MS) -> None:
    row = query(ident, checkpoint=f"file:///{ident}", finished=2)
    offsets = [["0", f'{{"{topic}":{{"0":{position}}}}}']]
    batch(row, 2, committed_ms=finished_ms, offsets=offsets)


@pytest.mark.parametrize(
    ("number", "position", "topic", "is_told", "why"),
    [
        (1, 812, "orders", True, "exactly at the LSO"),
        (2, 813, "orders", False, "past it: it reads uncommitted"),
        (3, 811, "orders", False, "it has work before it"),
        (4, 812, "other", False, "another topic"),
    ],
)
def test_a_query_at_the_lso_is_blocked(
    number: int, position: int, topic: str, is_told: bool, why: str
) -> None:
    row = block_partition()
    add_query(position, topic=topic)
    found = blocking.waits_of([row])[row.pk].queries
    assert [each.ident for each in found] == ["q-1"] * is_told, f"case {number}: {why}"


def test_a_blocked_query_has_its_beginning_and_its_partition() -> None:
    row = block_partition()
    add_query(812, finished_ms=NOW_MS - 500_000)
    add_query(812, ident="q-2", finished_ms=NOW_MS - 5_000)
    found = blocking.waits_of([row])[row.pk]
    assert [each.since_ms for each in found.queries] == [NOW_MS - 120_000, NOW_MS - 5_000]
    (place,) = blocking.transaction_partitions(row, found, most=10)
    assert [(each.name, each.topic, each.partition) for each in place.queries] == [
        ("orders", "orders", 0)
    ] * 2


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
