"""`__transaction_state` as the collector stores it: the tail, the store and the database behind them."""

import time

from django.test import override_settings

from dashboard.config import ClusterConfig, Config
from dashboard.models import Collector, Transaction
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import tails
from dashboard.transactions import queries as transaction_queries
from fenceline.facts import TransactionRecord, TransactionState
from tests.waiting import wait_for


def collected_transactions(bootstrap: str) -> dict[str, TransactionRecord]:
    """Return the rows of every id after the tail has read everything up to now, by the id's text form.

    Needs an empty database. A row does not distinguish no partitions from null.
    """
    # The tail of a cluster stays warm in its process, so each broker needs a name of its own.
    cluster = ClusterConfig(bootstrap.replace(":", "-"), {"bootstrap.servers": bootstrap})
    collector_store.sync_clusters([cluster.name])
    lease = leases.acquire(cluster.name, tails.tail_name(0), holder="test", now_ms=loop.now_ms())
    assert lease is not None
    asked_ms = loop.now_ms()
    with override_settings(FENCELINE=Config(clusters={cluster.name: cluster})):
        wait_for(lambda: _seen_through(lease) > asked_ms, "everything is read", 60)
    return {row.transactional_id: _record(row) for row in Transaction.objects.all()}


def _seen_through(lease: leases.Lease) -> int:
    tails.read_until(lease, time.monotonic() + 0.5)
    return Collector.objects.get().seen_through_ms or 0


def _record(row: Transaction) -> TransactionRecord:
    return TransactionRecord(
        row.transactional_id,
        TransactionState(row.state),
        row.producer_id,
        row.producer_epoch,
        row.timeout_ms,
        transaction_queries.partitions_of(row),
        row.updated_ms,
        row.started_ms,
        row.client_version,
    )
