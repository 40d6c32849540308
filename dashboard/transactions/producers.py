"""Who is behind a transactional id, by its shape and by what was observed beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from dashboard.models import GroupRecord, Transaction
from fenceline.decode.text import unescape_text
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.producer_identity import GroupClient, ProducerIdentity, identify_producer, leader_ids


def producer_identity(cluster_id: int, transactional_id: str) -> ProducerIdentity | None:
    """Return the engine, instance and part that use an id, by one query; None for a plain client."""
    found = application_of(transactional_id)
    if found.kind is Shape.STREAMS:
        return identify_producer(transactional_id, _group_clients(cluster_id, found.application), ())
    return identify_producer(transactional_id, (), _existing_ids(cluster_id, leader_ids(transactional_id)))


def _group_clients(cluster_id: int, group: str) -> Sequence[GroupClient]:
    rows = GroupRecord.objects.filter(cluster_id=cluster_id, key=_key(group)).exclude(members="")
    members = (json.loads(text) for text in rows.values_list("members", flat=True))
    return [GroupClient(*client) for each in members for client in each.values()]


def _existing_ids(cluster_id: int, names: Sequence[str]) -> frozenset[str]:
    if not names:
        return frozenset()
    rows = Transaction.objects.filter(cluster_id=cluster_id, key__in=list(map(_key, names)))
    return frozenset(rows.values_list("transactional_id", flat=True))


def _key(name: str) -> bytes:
    return sha256(unescape_text(name)).digest()
