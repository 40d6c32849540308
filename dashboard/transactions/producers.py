"""Identify the producer behind a transactional id, by its shape and by related observations."""

from collections.abc import Sequence

from dashboard.models import GroupRecord, Transaction
from dashboard.runtime.gap_scopes import OFFSETS_TOPIC
from dashboard.transactions.added_offsets import transaction_offsets
from dashboard.transactions.queries import partitions_of
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.commits import unpack_members
from fenceline.kafka.producer_identity import (
    ApplicationName,
    GroupClient,
    ProducerIdentity,
    identify_producer,
    leader_ids,
    name_application,
)
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.owners import Owner


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


def _group_clients(cluster_id: int, group: str) -> Sequence[GroupClient]:
    rows = GroupRecord.objects.filter(cluster_id=cluster_id, key=key_of_name(group)).exclude(members="")
    packed = rows.values_list("members", flat=True)
    members = (member for text in packed for member in unpack_members(text).values())
    return [GroupClient(member.client_id, member.host) for member in members]


def _existing_ids(cluster_id: int, names: Sequence[str]) -> frozenset[str]:
    if not names:
        return frozenset()
    rows = Transaction.objects.filter(cluster_id=cluster_id, key__in=list(map(key_of_name, names)))
    return frozenset(rows.values_list("transactional_id", flat=True))
