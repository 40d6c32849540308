"""The tails of `__consumer_offsets` as Celery tasks: what groups have committed, and when."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from collectors.kafka.internal_topics import CONSUMER_OFFSETS, Tail
from dashboard.groups import commit_store
from dashboard.runtime import collector_names, leases, loop
from dashboard.tasks import tail_loop
from fenceline.facts import TailBatch

#: A partition that is blocked at one offset for so long is reported: transactions come and go all the time.
_HELD_MS = 2_000

#: Per cluster and shard: where a partition is held back, and since when.
_held: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}


class _ConsumerOffsets:
    name = CONSUMER_OFFSETS
    # Groups are polled every two seconds: a commit need not be read within milliseconds.
    flush_s = 0.5
    save_at_once = 10_000

    def open_tail(self, cluster: str, shard: int) -> Tail:
        # What is not committed, or never will be, must not be shown as if it were.
        properties = settings.FENCELINE.clusters[cluster].properties
        return Tail(properties, shard, settings.SHARDS, topic=self.name, committed=True)

    def save_batch(self, lease: leases.Lease, batch: TailBatch, tail: Tail | None, *, rate: float) -> None:
        now_ms = loop.now_ms()
        held = _held_back(lease, tail, now_ms)
        topic_id = tail.topic_id if tail else ""
        commit_store.save_commits(lease, batch, topic_id=topic_id, rate=rate, held=held, now_ms=now_ms)

    def forget_topic(self, lease: leases.Lease, reason: str, *, topic_id: str) -> None:
        commit_store.forget_topic(lease, reason, topic_id=topic_id, now_ms=loop.now_ms())


def offsets_name(shard: int) -> str:
    """Return the name of a shard's collector."""
    return collector_names.tail_name(shard, settings.SHARDS, commit_store.NAME)


def offsets_queue(shard: int) -> str:
    """Return the queue of a shard's tails: one worker's, so that warm consumers stay in one process."""
    return f"offsets-{shard}"


def start() -> None:
    """Send a first slice for every tail that nobody runs."""
    for shard in range(settings.SHARDS):
        loop.start_missing(tail_offsets, offsets_name(shard), offsets_queue(shard), shard)


@shared_task(name="collectors.offsets")
def tail_offsets(cluster: str, previous: int | None = None, shard: int = 0) -> None:
    """Read one slice of a shard of a cluster's `__consumer_offsets`; `previous`: the last slice's token."""
    if shard < settings.SHARDS:
        queue = offsets_queue(shard)
        loop.run_slice(
            tail_offsets, cluster, offsets_name(shard), read_until, shard, queue=queue, previous=previous
        )


def read_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    tail_loop.read_topic(_ConsumerOffsets(), lease, end)


def _held_back(lease: leases.Lease, tail: Tail | None, now_ms: int) -> dict[int, int]:
    """Return the partitions whose last stable offset is stuck, by since when."""
    before = _held.get((lease.cluster, lease.shard), {})
    found = {}
    for partition, stable in (tail.unstable_offsets() if tail else {}).items():
        offset, since_ms = before.get(partition, (stable, now_ms))
        found[partition] = stable, since_ms if offset == stable else now_ms
    _held[lease.cluster, lease.shard] = found
    return {p: since_ms for p, (_, since_ms) in found.items() if now_ms - since_ms >= _HELD_MS}
