"""Tail `__transaction_state`, as Celery tasks."""

from collections.abc import Callable

from django.conf import settings

from collectors.kafka.internal_topics import Tail
from dashboard.runtime import collector_names, collector_store, leases, loop
from dashboard.tasks.tail_loop import Tailed, TailedTopic
from dashboard.transactions import reconcile_store, store
from fenceline.decode.tail_batch import TailBatch
from fenceline.kafka.scope import Scope


def _open_tail(cluster: str, shard: int) -> Tail:
    return Tail(settings.FENCELINE.clusters[cluster].properties, shard, settings.SHARDS)


def _prepare_save(lease: leases.Lease, batch: TailBatch, tail: Tail | None, rate: float) -> Callable[[], int]:
    topic_id = tail.topic_id if tail else ""
    return store.prepare_save(lease, batch, topic_id=topic_id, rate=rate, now_ms=loop.now_ms())


def _forget_topic(lease: leases.Lease, reason: str, topic_id: str) -> None:
    store.forget_topic(lease, reason, topic_id=topic_id, now_ms=loop.now_ms())


def _absence_reason(lease: leases.Lease) -> str | None:
    return reconcile_store.absence_reason(lease.cluster_id, loop.now_ms())


_topic = TailedTopic(
    collector_store.TRANSACTION_STATE, flush_s=0.008, save_at_once=6_000, open_tail=_open_tail,
    prepare_save=_prepare_save, forget_topic=_forget_topic, absence_reason=_absence_reason,
    is_inside=Scope.has_id,
)  # fmt: skip
tailed = Tailed("collectors.tail", collector_names.TAIL, "tail", _topic)
tail_name, read_until = tailed.collector_name, tailed.read_until
