"""The offsets that a transaction added to groups, as `dashboard.groups.added_offset_store` saved them."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.models import AddedOffsetsRecord, Collector, Transaction
from dashboard.runtime.collector_names import GROUPS, OFFSETS
from dashboard.transactions.queries import partitions_of
from fenceline.facts import NOT_FROM_LOG, TransactionRecord, TransactionState
from fenceline.kafka.added_offsets import AddedOffsets, TransactionOffsets, offsets_of, unpack_offsets


def transaction_offsets(row: Transaction) -> TransactionOffsets:
    """Return the offsets that the newest transaction of an id added, and what is not known of them."""
    return offsets_of(_record(row), _read(row), lambda: _unread_because(row))


def _record(row: Transaction) -> TransactionRecord:
    partitions = partitions_of(row)
    return TransactionRecord(
        row.transactional_id,
        TransactionState(row.state),
        row.producer_id,
        row.producer_epoch,
        row.timeout_ms,
        # Where the log was not read they may be missing.
        None if row.log_offset == NOT_FROM_LOG and not partitions else partitions,
        row.updated_ms,
        row.started_ms,
        row.client_version,
    )


def _read(row: Transaction) -> Iterator[AddedOffsets]:
    for each in AddedOffsetsRecord.objects.filter(cluster_id=row.cluster_id, producer_id=row.producer_id):
        yield AddedOffsets(
            each.producer_id,
            each.producer_epoch,
            each.log_partition,
            unpack_offsets(each.offsets),
            each.total,
            each.marker,
            each.unread,
            each.read_ms,
        )


def _unread_because(row: Transaction) -> str:
    """Return why nothing is known of offsets that a transaction added, or may have added."""
    collectors = Collector.objects.filter(cluster_id=row.cluster_id)
    groups = collectors.filter(name=GROUPS).first()
    if groups is None or groups.seen_through_ms is None:
        return "groups, with their offsets, are not polled"
    if groups.error:
        return f"groups cannot be polled: {groups.error}"
    if groups.seen_through_ms < (row.started_ms or 0):
        return "groups were not polled since the transaction began"
    tail = collectors.filter(name__startswith=OFFSETS).exclude(error="").first()
    if tail is not None:
        return f"__consumer_offsets cannot be read: {tail.error}"
    return "no offsets of it were read; they are read where two polls of groups in a row find it open"
