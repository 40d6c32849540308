"""Read the offsets that a transaction added to groups, as saved by `dashboard.groups.store`."""

from collections.abc import Iterator

from dashboard.models import AddedOffsetsRecord, Collector, Transaction
from dashboard.runtime.collector_names import GROUPS, OFFSETS
from dashboard.transactions.queries import partitions_of
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, TransactionRecord
from fenceline.kafka.added_offsets import AddedOffsets, TransactionOffsets, offsets_of, unpack_offsets


def transaction_offsets(row: Transaction) -> TransactionOffsets:
    """Return the offsets that an id's newest transaction added, and the unknown parts."""
    return offsets_of(_record(row), _read(row), lambda: _unread_because(row))


def _record(row: Transaction) -> TransactionRecord:
    partitions = partitions_of(row)
    # If the log was not read, offsets may be missing.
    known = None if row.log_offset == NOT_FROM_LOG and not partitions else partitions
    return record_of(TransactionRecord, row, partitions=known)


def _read(row: Transaction) -> Iterator[AddedOffsets]:
    for added in AddedOffsetsRecord.objects.filter(cluster_id=row.cluster_id, producer_id=row.producer_id):
        yield record_of(AddedOffsets, added, offsets=unpack_offsets(added.offsets))


def _unread_because(row: Transaction) -> str:
    """Return why the offsets that a transaction may have added are unknown."""
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
