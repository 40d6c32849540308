"""The tails of `__transaction_state` as Celery tasks."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from collectors.kafka.internal_topics import Tail
from dashboard.runtime import collector_names, collector_store, leases, loop
from dashboard.tasks import tail_loop
from dashboard.transactions import store
from fenceline.facts import TailBatch


class _TransactionState:
    name = collector_store.TRANSACTION_STATE
    flush_s = 0.15
    save_at_once = 6_000

    def open_tail(self, cluster: str, shard: int) -> Tail:
        return Tail(settings.FENCELINE.clusters[cluster].properties, shard, settings.SHARDS)

    def save_batch(self, lease: leases.Lease, batch: TailBatch, tail: Tail | None, *, rate: float) -> None:
        topic_id = tail.topic_id if tail else ""
        store.save_batch(lease, batch, topic_id=topic_id, rate=rate, now_ms=loop.now_ms())

    def forget_topic(self, lease: leases.Lease, reason: str, *, topic_id: str) -> None:
        store.forget_topic(lease, reason, topic_id=topic_id, now_ms=loop.now_ms())


def tail_name(shard: int) -> str:
    """Return the name of a shard's collector."""
    return collector_names.tail_name(shard, settings.SHARDS)


def tail_queue(shard: int) -> str:
    """Return the queue of a shard's tails: one worker's, so that warm consumers stay in one process."""
    return f"tail-{shard}"


def start() -> None:
    """Send a first slice for every tail that nobody runs."""
    for shard in range(settings.SHARDS):
        loop.start_missing(tail_transactions, tail_name(shard), tail_queue(shard), shard)


@shared_task(name="collectors.tail")
def tail_transactions(cluster: str, previous: int | None = None, shard: int = 0) -> None:
    """Read one slice of a shard of a cluster's `__transaction_state`; `previous`: the last slice's token."""
    if shard < settings.SHARDS:
        queue = tail_queue(shard)
        loop.run_slice(
            tail_transactions, cluster, tail_name(shard), read_until, shard, queue=queue, previous=previous
        )


def read_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    tail_loop.read_topic(_TransactionState(), lease, end)
