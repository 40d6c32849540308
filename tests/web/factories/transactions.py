"""Rows of transactional ids for pages to show."""

import json

from django.db.models import F

from dashboard.models import Cluster, StateCount, Transaction
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.kafka.applications import application_of
from fenceline.kafka.transactional_ids import key_of
from tests.web.factories.clusters import now_ms


def transaction(
    of: Cluster,
    raw: bytes | str = b"orders-gateway-1",
    state: TransactionState = TransactionState.ONGOING,
    *,
    age_ms: int = 2_000,
    partitions: dict[str, list[int]] | None = None,
    **fields: object,
) -> Transaction:
    """Return a row of one transactional id that began `age_ms` ago."""
    name = raw.encode() if isinstance(raw, str) else raw
    named = {"orders": [0, 1]} if partitions is None else partitions
    begun = now_ms() - age_ms
    defaults: dict[str, object] = {
        "key": key_of(name),
        "transactional_id": text.escape_bytes(name),
        "application": application_of(text.escape_bytes(name)).application,
        "state": state.value,
        "producer_id": 2051,
        "producer_epoch": 17,
        "timeout_ms": 60_000,
        "started_ms": None if state is TransactionState.EMPTY else begun,
        "updated_ms": begun + min(age_ms, 40),
        "partitions": json.dumps(list(named.items())) if named else "",
        "partition_count": sum(map(len, named.values())),
        "client_version": 2,
        "log_partition": 7,
        "log_offset": 24_049,
        "rev": 1,
    }
    row = Transaction.objects.create(cluster=of, **(defaults | fields))
    state_count(of, row.state, 1)
    return row


def state_count(of: Cluster, state: str, by: int) -> None:
    """Keep the number of ids in a state, as a flush does."""
    if not StateCount.objects.filter(cluster=of, shard=0, state=state).update(n=F("n") + by):
        StateCount.objects.create(cluster=of, shard=0, state=state, n=by)
