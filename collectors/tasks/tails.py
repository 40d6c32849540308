"""The tails of `__transaction_state` as Celery tasks.

A consumer stays warm in its worker's process from slice to slice, and is put where the database stands
whenever the two differ.
"""

from __future__ import annotations

import gc
import logging
import time

from celery import shared_task
from django.conf import settings

from collectors.internal_topics import NoSuchTopic, Tail, TopicReplaced
from collectors.kafka import CannotSee
from collectors.tasks.slice import HEARTBEAT_S, RETRY_S, goes_on, report
from dashboard import eyes, leases, slices, store
from fenceline.facts import Look

log = logging.getLogger(__name__)

_FLUSH_S = 0.15
#: How many ids one save writes, so that no other writer waits for long (about 100 ms).
_SAVE_AT_ONCE = 6_000
#: SQLite has one writer: others get their turn between two flushes.
_YIELD_S = 0.02

_tails: dict[tuple[str, int], Tail] = {}


def tail_name(shard: int) -> str:
    """Return the name of a shard's collector."""
    return eyes.tail_name(shard, settings.SHARDS)


def tail_queue(shard: int) -> str:
    """Return the queue of a shard's tails: one worker's, so that warm consumers stay in one process."""
    return f"tail-{shard}"


def start() -> None:
    """Send a first slice for every tail that nobody runs."""
    for shard in range(settings.SHARDS):
        slices.start_missing(tail, tail_name(shard), tail_queue(shard), shard)


@shared_task(name="collectors.tail")
def tail(cluster: str, previous: int | None = None, shard: int = 0) -> None:
    """Read one slice of a shard of a cluster's `__transaction_state`; `previous`: the last slice's token."""
    if cluster in settings.FENCELINE.clusters and shard < settings.SHARDS:
        queue = tail_queue(shard)
        slices.run(tail, cluster, tail_name(shard), read, shard, queue=queue, previous=previous)


def read(lease: leases.Lease, end: float) -> None:
    """Look and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    reader = _Reader(lease, end)
    while goes_on(end):
        reader.read()


class _Reader:
    """Looks and saves until its slice is over; troubles are saved too."""

    def __init__(self, lease: leases.Lease, end: float) -> None:
        self._lease = lease
        self._end = end
        self._saved_at = time.monotonic()

    def read(self) -> None:
        """Open the tail and read on, until the slice ends or something stands in the way."""
        try:
            tail = _open(self._lease)
            while goes_on(self._end):
                self._step(tail)
        except CannotSee as blind:
            self._trouble(str(blind))
        except NoSuchTopic:
            self._nothing_yet()
        except TopicReplaced as replaced:
            self._start_again(str(replaced))

    def _step(self, tail: Tail) -> None:
        look = tail.look(_FLUSH_S)
        elapsed = time.monotonic() - self._saved_at
        if look.moves or look.seen_through_ms is not None or elapsed > HEARTBEAT_S:
            rate = look.count / max(elapsed, _FLUSH_S)
            for part in look.parted(_SAVE_AT_ONCE):
                self._save(part, tail.topic_id, rate)
                tail.saved(part)

    def _save(self, look: Look, topic_id: str, rate: float) -> None:
        store.save_look(self._lease, look, topic_id=topic_id, rate=rate, now_ms=slices.now_ms())
        self._saved_at = time.monotonic()
        slices.stopping.wait(_YIELD_S)

    def _trouble(self, reason: str) -> None:
        report(self._lease, reason)
        _cool(self._lease)
        slices.stopping.wait(RETRY_S)

    def _nothing_yet(self) -> None:
        """Report a cluster on which no transaction was ever begun as seen; a topic that went away as gone."""
        if store.positions(self._lease.cluster)[1]:
            self._start_again("__transaction_state was deleted")
        self._save(Look(records={}, moves=(), seen_through_ms=slices.now_ms(), behind=0), "", 0.0)
        slices.stopping.wait(RETRY_S)

    def _start_again(self, reason: str) -> None:
        log.warning("%s: %s; reading starts again at its oldest record", self._lease.cluster, reason)
        topic_id = store.positions(self._lease.cluster)[0]
        _cool(self._lease)
        store.forget(self._lease, reason, topic_id=topic_id, now_ms=slices.now_ms())


def _open(lease: leases.Lease) -> Tail:
    """Return the warm consumer if it stands where the database says, else one that was put there."""
    which = lease.cluster, lease.shard
    if which not in _tails:
        _spare_the_collector()
        properties = settings.FENCELINE.clusters[lease.cluster].properties
        _tails[which] = Tail(properties, lease.shard, settings.SHARDS)
    topic_id, positions = store.positions(lease.cluster, shard=lease.shard, shards=settings.SHARDS)
    if _tails[which].at(topic_id, positions):
        _tails[which].confirm(topic_id)
    else:
        _tails[which].seek(topic_id, positions)
    return _tails[which]


def _spare_the_collector() -> None:
    """Let Python look for cycles seldom: a fold makes millions of tuples, none in a cycle, each counted."""
    gc.freeze()
    gc.set_threshold(2_000_000, 5, 5)


def _cool(lease: leases.Lease) -> None:
    tail = _tails.pop((lease.cluster, lease.shard), None)
    if tail is not None:
        tail.close()
