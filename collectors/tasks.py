"""Celery tasks that look: one tail of `__transaction_state` for each cluster.

The consumer stays warm in its worker's process from slice to slice; it is put where the database stands
whenever the two differ.
"""

from __future__ import annotations

import logging
import time

from celery import shared_task
from django.conf import settings

from collectors.internal_topics import NoSuchTopic, Tail, TopicReplaced
from collectors.kafka import CannotSee
from dashboard import leases, slices, store
from fenceline.facts import Look

log = logging.getLogger(__name__)

NAME = "transaction_state"
QUEUE = "tail-0"
_FLUSH_S = 0.15
_HEARTBEAT_S = 1.0
#: Seconds between two tries while a cluster cannot be seen.
_RETRY_S = 1.0
#: How many ids one save writes, so that no other writer waits for long (about 100 ms).
_SAVE_AT_ONCE = 3_000
#: SQLite has one writer: others get their turn between two flushes.
_YIELD_S = 0.02

_warm: dict[str, Tail] = {}


@shared_task(name="collectors.start_missing")
def start_missing() -> None:
    """Send a first slice for every cluster whose tail nobody holds."""
    slices.start_missing(tail, NAME, QUEUE)


@shared_task(name="collectors.tail")
def tail(cluster: str, previous: int | None = None) -> None:
    """Read one slice of a cluster's `__transaction_state`; `previous` is the token of the slice before."""
    if cluster in settings.FENCELINE.clusters:
        slices.run(tail, cluster, NAME, read, queue=QUEUE, previous=previous)


def read(lease: leases.Lease, end: float) -> None:
    """Look and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    reader = _Reader(lease, end)
    while reader.goes_on():
        reader.read()


class _Reader:
    """Looks and saves until its slice is over; troubles are saved too."""

    def __init__(self, lease: leases.Lease, end: float) -> None:
        self._lease = lease
        self._end = end
        self._saved_at = time.monotonic()

    def goes_on(self) -> bool:
        return time.monotonic() < self._end and not slices.stopping.is_set()

    def read(self) -> None:
        """Open the tail and read on, until the slice ends or something stands in the way."""
        try:
            tail = _open(self._lease.cluster)
            while self.goes_on():
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
        if look.moves or look.seen_through_ms is not None or elapsed > _HEARTBEAT_S:
            rate = look.count / max(elapsed, _FLUSH_S)
            for part in look.parted(_SAVE_AT_ONCE):
                self._save(part, tail.topic_id, rate)
                tail.saved(part)

    def _save(self, look: Look, topic_id: str, rate: float) -> None:
        store.save_look(self._lease, look, topic_id=topic_id, rate=rate, now_ms=slices.now_ms())
        self._saved_at = time.monotonic()
        slices.stopping.wait(_YIELD_S)

    def _trouble(self, reason: str) -> None:
        if store.save_trouble(self._lease, reason, now_ms=slices.now_ms()):
            log.error("%s: %s", self._lease.cluster, reason)
        _cool(self._lease.cluster)
        slices.stopping.wait(_RETRY_S)

    def _nothing_yet(self) -> None:
        """Report a cluster on which no transaction was ever begun as seen; a topic that went away as gone."""
        if store.positions(self._lease.cluster)[1]:
            self._start_again("__transaction_state was deleted")
        self._save(Look(records={}, moves=(), seen_through_ms=slices.now_ms(), behind=0), "", 0.0)
        slices.stopping.wait(_RETRY_S)

    def _start_again(self, reason: str) -> None:
        log.warning("%s: %s; reading starts again at its oldest record", self._lease.cluster, reason)
        _cool(self._lease.cluster)
        store.forget(self._lease, reason, now_ms=slices.now_ms())


def _open(cluster: str) -> Tail:
    """Return the warm consumer if it stands where the database says, else one that was put there."""
    if cluster not in _warm:
        _warm[cluster] = Tail(settings.FENCELINE.clusters[cluster].properties)
    topic_id, positions = store.positions(cluster)
    if _warm[cluster].at(topic_id, positions):
        _warm[cluster].confirm(topic_id)
    else:
        _warm[cluster].seek(topic_id, positions)
    return _warm[cluster]


def _cool(cluster: str) -> None:
    tail = _warm.pop(cluster, None)
    if tail is not None:
        tail.close()
