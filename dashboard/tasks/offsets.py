"""Tail `__consumer_offsets` for the groups' commits, as Celery tasks."""

from collections.abc import Callable
from functools import partial

from django.conf import settings

from collectors.kafka.internal_topics import Tail
from dashboard.groups import commit_store
from dashboard.runtime import leases, loop
from dashboard.tasks.tail_loop import Tailed, TailedTopic
from fenceline.decode.tail_batch import TailBatch
from fenceline.kafka.scope import Scope
from transaction_admin.api import CONSUMER_OFFSETS

#: Milliseconds at one offset after which a blocked partition is reported: short transactions always occur.
_HELD_MS = 2_000

#: By cluster and shard: the offset at which a partition is blocked, and since when.
_held: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}


def _open_tail(cluster: str, shard: int) -> Tail:
    # read_committed, so that pending and aborted commits are not shown.
    properties = settings.FENCELINE.clusters[cluster].properties
    return Tail(properties, shard, settings.SHARDS, topic=CONSUMER_OFFSETS, committed=True)


def _prepare_save(
    lease: leases.Lease, batch: TailBatch, tail: Tail | None, rate: float
) -> Callable[[], None]:
    now_ms = loop.now_ms()
    held = _held_back(lease, tail, now_ms)
    topic_id = tail.topic_id if tail else ""
    return partial(
        commit_store.save_commits, lease, batch, topic_id=topic_id, rate=rate, held=held, now_ms=now_ms
    )


def _forget_topic(lease: leases.Lease, reason: str, topic_id: str) -> None:
    commit_store.forget_topic(lease, reason, topic_id=topic_id, now_ms=loop.now_ms())


def _absence_reason(lease: leases.Lease) -> str | None:
    return commit_store.absence_reason(lease.cluster_id, loop.now_ms())


def _held_back(lease: leases.Lease, tail: Tail | None, now_ms: int) -> dict[int, int]:
    """Return the start times of stuck last stable offsets by partition."""
    before = _held.get((lease.cluster, lease.shard), {})
    held = {}
    for partition, stable in (tail.unstable_offsets() if tail else {}).items():
        offset, since_ms = before.get(partition, (stable, now_ms))
        held[partition] = stable, since_ms if offset == stable else now_ms
    _held[lease.cluster, lease.shard] = held
    return {p: since_ms for p, (_, since_ms) in held.items() if now_ms - since_ms >= _HELD_MS}


#: Groups are polled every two seconds, so commits need not be read within milliseconds.
_topic = TailedTopic(
    CONSUMER_OFFSETS, flush_s=0.5, save_at_once=10_000, open_tail=_open_tail, prepare_save=_prepare_save,
    forget_topic=_forget_topic, absence_reason=_absence_reason, is_inside=Scope.has_group,
)  # fmt: skip
tailed = Tailed("collectors.offsets", commit_store.NAME, "offsets", _topic)
offsets_name, read_until = tailed.collector_name, tailed.read_until
