"""Proves that many rows are written alike (values, order, repeats), and how rows are read without the ORM."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from dashboard.models import Cluster, GroupRecord, PartitionRecord
from dashboard.models.collecting import visible_clusters
from dashboard.runtime.sql import (
    COPIED_ROWS,
    Row,
    Upsert,
    overwrite_changes,
    prepared,
    read_rows,
    write_rows,
)

pytestmark = pytest.mark.sql

KEY = ("cluster_id", "topic", "partition")
#: What the text format of COPY has its own signs for.
TEXTS = ("", "\\N", "a\tb", "a\nb", "a\r\nb", "\\.", "\\", "größe", "'%s'", "{}")
COLUMNS = ("cluster_id", "key", "group_id", "members", "log_partition", "log_offset")
UPSERT = Upsert(GroupRecord._meta.db_table, COLUMNS, COLUMNS[:2], overwrite_changes(COLUMNS[2:]))


def partitions(number: int, text: str, lso: int | None = None) -> list[Mapping[str, Any]]:
    cluster = Cluster.objects.get().pk
    return [
        {
            "cluster_id": cluster, "topic": "orders", "partition": partition, "replicas": [1, 2], "lso": lso,
            "error": text, "rev": 1,
        }
        for partition in reversed(range(number))
    ]  # fmt: skip


def groups(number: int, offset: int = 0) -> list[Row]:
    cluster = Cluster.objects.get().pk
    return [(cluster, bytes([at, 0, 92, 255]), f"group-{at}", "", 1, offset + at) for at in range(number)]


@pytest.mark.parametrize("number", [4_000, COPIED_ROWS, COPIED_ROWS - 1, 1])
def test_rows_are_inserted_then_overwritten(number: int) -> None:
    for lso, text in enumerate(TEXTS):
        write_rows(PartitionRecord, partitions(number, text, lso or None), KEY)
        rows = PartitionRecord.objects.values_list("error", "lso", "replicas", "leader").distinct()
        assert list(rows) == [(text, lso or None, [1, 2], None)]
    assert PartitionRecord.objects.count() == number


@pytest.mark.parametrize("number", [COPIED_ROWS, COPIED_ROWS - 1])
def test_rows_are_inserted_in_their_order(number: int) -> None:
    write_rows(PartitionRecord, partitions(number, ""), KEY)
    rows = PartitionRecord.objects.order_by("id").values_list("partition", flat=True)
    assert list(rows) == list(range(number))


def test_rows_of_a_statement_that_is_repeated_in_a_transaction_are_written_once() -> None:
    UPSERT.write(groups(COPIED_ROWS))
    GroupRecord.objects.all().delete()
    UPSERT.write(groups(COPIED_ROWS, 7)[5:] + groups(5, 9))
    rows = GroupRecord.objects.order_by("key").values_list("key", "log_offset")
    assert [(bytes(key), offset) for key, offset in rows] == [
        (bytes([at, 0, 92, 255]), at + (9 if at < 5 else 7)) for at in range(COPIED_ROWS)
    ]


@pytest.mark.parametrize("number", [COPIED_ROWS, 9])
def test_rows_may_share_their_first_values(number: int) -> None:
    whole = groups(number)
    UPSERT.write([row[1:] for row in whole], whole[0][:1])
    rows = GroupRecord.objects.order_by("key").values_list(*COLUMNS)
    assert [(cluster, bytes(key), *others) for cluster, key, *others in rows] == whole


@pytest.mark.django_db(transaction=True)
def test_rows_outside_a_transaction_are_written_too() -> None:
    for number in (COPIED_ROWS, 2 * COPIED_ROWS):
        UPSERT.write(groups(number))
        assert GroupRecord.objects.count() == number
        with transaction.atomic():
            UPSERT.write(groups(number))


@pytest.mark.parametrize("number", [COPIED_ROWS, 1])
def test_a_row_that_the_table_refuses_is_djangos_error(number: int) -> None:
    broken = [(*row[:2], None, *row[3:]) for row in groups(number)]
    with pytest.raises(IntegrityError), transaction.atomic():
        UPSERT.write(broken)
    assert not GroupRecord.objects.exists()


def test_no_rows_are_no_statement() -> None:
    UPSERT.write([])
    assert not GroupRecord.objects.exists()


def test_rows_are_read_by_values_and_lists_of_values() -> None:
    UPSERT.write(groups(4))
    keys = [bytes([at, 0, 92, 255]) for at in (1, 3, 9)]
    read = read_rows(GroupRecord, ("group_id", "log_offset"), key=keys, log_partition=1)
    assert sorted(read) == [("group-1", 1), ("group-3", 3)]
    assert read_rows(GroupRecord, ["group_id"], key=keys, log_partition=2) == []
    assert read_rows(GroupRecord, ["group_id"], key=[], log_partition=1) == []


def test_a_prepared_query_reads_the_present_rows_of_its_keys_within_the_callers_limit() -> None:
    write_rows(PartitionRecord, partitions(3, "100% 'new'"), KEY)
    built = []

    @prepared
    def rows_after(partition: int) -> QuerySet[PartitionRecord]:
        built.append(partition)
        return PartitionRecord.objects.filter(partition__gt=partition).order_by("partition")

    assert [row.partition for row in rows_after(0)] == [1, 2]
    PartitionRecord.objects.filter(partition=1).delete()
    assert [(row.partition, row.replicas, row.error) for row in rows_after(0)] == [(2, [1, 2], "100% 'new'")]
    assert [row.partition for row in rows_after(2)] == []
    assert built == [0, 2], "its SQL is built once for the same keys"
    token = visible_clusters.set(frozenset())
    assert rows_after(0) == []
    visible_clusters.reset(token)
    assert [row.partition for row in rows_after(0)] == [2]
