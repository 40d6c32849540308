"""Identify the producer behind a transactional id, by its shape and by related observations, and read the
offsets that its transaction added to groups, as saved by `dashboard.groups.store`.
"""

from collections.abc import Iterator, Sequence

from dashboard.models import AddedOffsetsRecord, Collector, GroupRecord, Transaction
from dashboard.runtime.collector_names import GROUPS, OFFSETS
from dashboard.runtime.visibility import OFFSETS_TOPIC
from dashboard.transactions.queries import partitions_of
from fenceline.decode.consumer_offsets import Member
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, TransactionRecord
from fenceline.kafka.added_offsets import AddedOffsets, TransactionOffsets, offsets_of, unpack_offsets
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.commits import unpack_members
from fenceline.kafka.producer_identity import (
    ApplicationName,
    ProducerIdentity,
    identify_producer,
    leader_ids,
    name_application,
)
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.owners import Owner


def transaction_offsets(row: Transaction) -> TransactionOffsets:
    """Return the offsets that an id's newest transaction added, and the unknown parts."""
    partitions = partitions_of(row)
    # If the log was not read, offsets may be missing.
    known = None if row.log_offset == NOT_FROM_LOG and not partitions else partitions
    record = record_of(TransactionRecord, row, partitions=known)
    return offsets_of(record, _read(row), lambda: _unread_because(row))


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


def producer_identity(cluster_id: int, transactional_id: str) -> ProducerIdentity | None:
    """Return the engine, instance and part that use an id, in one SQL query; None for a plain client."""
    application = application_of(transactional_id)
    if application.kind is Shape.STREAMS:
        return identify_producer(transactional_id, _group_clients(cluster_id, application.application), ())
    return identify_producer(transactional_id, (), _existing_ids(cluster_id, leader_ids(transactional_id)))


def observed_application(row: Transaction, owner: Owner | None) -> ApplicationName | None:
    """Return the application name of a plain client's id; None if only its shape is known."""
    adds = any(part.topic == OFFSETS_TOPIC for part in partitions_of(row))
    groups = sorted({offset.group for offset in transaction_offsets(row).offsets}) if adds else []
    clients = _group_clients(row.cluster_id, groups[0]) if len(groups) == 1 else ()
    return name_application(owner, groups, clients)


def _group_clients(cluster_id: int, group: str) -> Sequence[Member]:
    rows = GroupRecord.objects.filter(cluster_id=cluster_id, key=key_of_name(group)).exclude(members="")
    packed = rows.values_list("members", flat=True)
    return [member for text in packed for member in unpack_members(text).values()]


def _existing_ids(cluster_id: int, names: Sequence[str]) -> frozenset[str]:
    if not names:
        return frozenset()
    rows = Transaction.objects.filter(cluster_id=cluster_id, key__in=list(map(key_of_name, names)))
    return frozenset(rows.values_list("transactional_id", flat=True))
