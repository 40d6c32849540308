"""Collectors that a test drives in its own thread, as the holder of their leases; and `__transaction_state`
as the tail, the store and the database behind them keep it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from django.test import override_settings

from collectors.kafka import internal_topics
from dashboard.config import ClusterConfig, Config
from dashboard.models import Collector, Transaction
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import slice as work
from dashboard.tasks import tails
from dashboard.tasks.tails import Tailed
from dashboard.transactions import queries as transaction_queries
from fenceline.facts import TransactionRecord, TransactionState
from tests.waiting import wait_for
from transaction_admin import log_reader

_DEADLINE_S = 60


def only_cluster(name: str, properties: Mapping[str, str], **more: Any) -> override_settings:
    """Return settings with one cluster; `more` is of the configuration."""
    return override_settings(FENCELINE=Config(clusters={name: ClusterConfig(name, properties)}, **more))


def take_lease(cluster: str, name: str, **options: Any) -> leases.Lease:
    """Take a collector's lease, which must be free."""
    lease = leases.acquire(cluster, name, holder="test", now_ms=loop.now_ms(), **options)
    assert lease is not None, f"the lease of {name} is not free"
    return lease


def take_round(turns: loop.Turns) -> None:
    """Take turns until one asks for a rest."""
    for wait_s in turns:
        if wait_s > 0:
            turns.close()


@contextmanager
def at_once() -> Iterator[None]:
    """Let tails ask for the ends at each poll, and no request wait behind a fetch for half a second."""
    with (
        mock.patch.object(internal_topics, "_ASK_ENDS_EVERY_S", 0.0),
        mock.patch.object(log_reader, "_WAIT_MS", 50),
    ):
        yield


def read_slice(lease: leases.Lease, tailed: Tailed, seconds: float = 4.0) -> bool:
    """Read until all up to now is read, or the tail reports that it cannot; return whether it is read.

    It rests neither for further records nor after a failure.
    """
    asked_ms, failures = loop.now_ms(), list[str]()

    def is_read() -> bool:
        seen = Collector.objects.values_list("seen_through_ms", flat=True)
        return (seen.get(cluster_id=lease.cluster_id, name=lease.name) or 0) > asked_ms

    def goes_on(end: float) -> bool:
        return time.monotonic() < end and not failures and not is_read()

    def report(lease: leases.Lease, reason: str) -> None:
        failures.append(reason)
        work.report_failure(lease, reason)

    with (
        at_once(),
        mock.patch.object(tailed, "_topic", replace(tailed._topic, flush_s=0.02)),
        mock.patch.multiple(tails, goes_on=goes_on, report_failure=report, RETRY_S=0.0),
    ):
        tailed.read_until(lease, time.monotonic() + seconds)
    return is_read()


def read_to_end(lease: leases.Lease, tailed: Tailed, properties: Mapping[str, str]) -> None:
    """Let a tail of the lease's cluster read everything up to now."""
    with only_cluster(lease.cluster, properties):
        wait_for(lambda: read_slice(lease, tailed), f"{lease.name} has read everything", _DEADLINE_S)


def collected_transactions(bootstrap: str) -> dict[str, TransactionRecord]:
    """Return the rows of every id after the tail has read everything up to now, by the id's text form.

    Needs an empty database. A row does not distinguish no partitions from null.
    """
    # The tail of a cluster stays warm in its process, so each broker needs a name of its own.
    cluster = bootstrap.replace(":", "-")
    collector_store.sync_clusters([cluster])
    read_to_end(take_lease(cluster, tails.tail_name(0)), tails.tailed, {"bootstrap.servers": bootstrap})
    return {row.transactional_id: _record(row) for row in Transaction.objects.all()}


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
