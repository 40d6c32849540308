"""Tail `__transaction_state`, and `__consumer_offsets` for the groups' commits, as Celery tasks. A slice
polls and saves repeatedly; errors are saved too.

A consumer stays open in its worker's process from slice to slice. It seeks to the saved positions whenever
they differ from its own.
"""

import gc
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock
from typing import Self

from celery import shared_task
from django.conf import settings
from django.db import connection

from collectors.kafka.internal_topics import CannotSee, NoSuchTopic, Tail, TopicReplaced
from dashboard.groups import commit_store
from dashboard.runtime import collector_names, collector_store, leases, loop
from dashboard.tasks.slice import HEARTBEAT_S, RETRY_S, goes_on, report_failure
from dashboard.transactions import reconcile_store, store
from fenceline.decode.record_table import RecordTable
from fenceline.decode.tail_batch import TailBatch
from fenceline.decode.text import escape_bytes
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import CONSUMER_OFFSETS

log = logging.getLogger(__name__)

#: Seconds between two saves, for other writers: SQLite allows one at a time.
_YIELD_S = 0.01

#: On the first read to the end, batches of at least this size are written while the next ones are read, and
#: at most this number of them waits.
_MANY_RECORDS, _MOST_WAITING = 10_000, 3

_GONE = "{} was read before, and brokers say that it does not exist now: it was deleted, or is hidden from us"

_tails: dict[tuple[str, str, int], Tail] = {}
#: A lock for each tail: a slice that lost its lease may still wait for an answer with the same tail.
_in_use: defaultdict[tuple[str, str, int], Lock] = defaultdict(Lock)


@dataclass(frozen=True, slots=True)
class TailedTopic:
    """One internal topic, and the store of its batches."""

    #: The topic's name in Kafka.
    name: str
    #: The seconds for which a poll gathers further records after the first.
    flush_s: float
    #: The most keys of one save, so that other writers wait only about 100 ms.
    save_at_once: int
    #: Returns a function that saves a batch and its positions, at a rate; without a tail the topic does not
    #: exist. All earlier records of the batch's partitions must be saved already.
    prepare_save: Callable[[leases.Lease, TailBatch, Tail | None, float], Callable[[], object]]
    #: Deletes the data read from a topic that another one replaced: by the lease, the reason, the old topic's
    #: id, and the time.
    forget_topic: Callable[[leases.Lease, str, str, int], None]
    #: Returns why a cluster's missing topic is a blind spot; "" if it is not needed, None if unknown.
    absence_reason: Callable[[int, int], str | None]
    #: Whether records of an id or group are inside a scope.
    is_inside: Callable[[Scope, str], bool]
    #: Whether only committed records are read.
    committed: bool = False


class Tailed:
    """The tails of one topic as a Celery task, one tail per shard; `collector` and `queue` are name prefixes.

    Every queue has a single worker, so that open consumers stay in one process.
    """

    def __init__(self, name: str, collector: str, queue: str, topic: TailedTopic) -> None:
        @shared_task(name=name)
        def read_slice(cluster: str, previous: int | None = None, shard: int = 0) -> None:
            if shard < settings.SHARDS:
                loop.run_slice(
                    read_slice, cluster, self.collector_name(shard), self.read_until, shard,
                    queue=f"{queue}-{shard}", previous=previous,
                )  # fmt: skip

        self._task, self._collector, self._queue, self._topic = read_slice, collector, queue, topic

    def collector_name(self, shard: int) -> str:
        return collector_names.tail_name(shard, settings.SHARDS, self._collector)

    def names(self) -> Sequence[str]:
        """Return the names of all shards' collectors."""
        return [self.collector_name(shard) for shard in range(settings.SHARDS)]

    def start(self, unheld: Mapping[str, Sequence[str]]) -> None:
        """Send a first slice for every tail without a valid lease."""
        for shard, name in enumerate(self.names()):
            for cluster in unheld[name]:
                message = (cluster, None, shard)
                self._task.apply_async(message, queue=f"{self._queue}-{shard}", expires=loop.SLICE_S)

    def read_until(self, lease: leases.Lease, end: float) -> None:
        """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
        with _in_use[lease.cluster, self._topic.name, lease.shard]:
            reader = _TailSlice(self._topic, lease, end)
            while goes_on(end):
                reader.read()


class _WriterThread:
    """Writes batches in a thread, one after the other, while the next ones are read and folded.

    A later call, or the end of the block, raises the error of a write. Writes behind it still begin: their
    partitions are others.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[Future[object]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.finish()
        finally:
            if self._thread is not None:
                self._thread.submit(connection.close)
                self._thread.shutdown()
                self._thread = None
            # Of several errors the first was raised.
            self._pending.clear()

    def begin(self, write: Callable[[], object]) -> None:
        """Queue a write behind the pending ones; wait while too many are pending."""
        self._wait_for(_MOST_WAITING - 1)
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._pending.append(self._thread.submit(write))

    def finish(self) -> None:
        """Wait for the pending writes."""
        self._wait_for(0)

    def _wait_for(self, most: int) -> None:
        """Wait until at most this number of writes is pending."""
        while len(self._pending) > most:
            self._pending.popleft().result()


class _TailSlice:
    """Polls and saves until the slice ends; errors are saved too."""

    def __init__(self, topic: TailedTopic, lease: leases.Lease, end: float) -> None:
        self._topic = topic
        self._lease = lease
        self._end = end
        self._saved_at = time.monotonic()
        self._writer = _WriterThread()

    def read(self) -> None:
        """Open the tail and read until the slice ends or an error occurs."""
        try:
            tail = _open(self._topic, self._lease)
            with self._writer:
                self._step(tail)
                # One step comes first, so that a slice advances even if opening the tail took all its time.
                while goes_on(self._end):
                    self._step(tail)
        except CannotSee as blind:
            self._trouble(str(blind))
        except NoSuchTopic:
            self._nothing_yet()
        except TopicReplaced as replaced:
            self._start_again(str(replaced))

    def _step(self, tail: Tail) -> None:
        batch = self._within_scope(tail.poll(self._topic.flush_s))
        elapsed = time.monotonic() - self._saved_at
        if batch.moves or batch.seen_through_ms is not None or elapsed > HEARTBEAT_S:
            rate = batch.count / max(elapsed, self._topic.flush_s)
            for part in batch.split_by_keys(self._topic.save_at_once):
                self._save(part, tail, rate)
                tail.mark_saved(part)

    def _within_scope(self, batch: TailBatch) -> TailBatch:
        """Return the batch without records of ids or groups outside the configured scope."""
        scope = settings.FENCELINE.clusters[self._lease.cluster].scope
        if scope == EVERYTHING:
            return batch
        inside = batch.records.where_key(lambda key: self._topic.is_inside(scope, _name_in_key(key)))
        return replace(batch, records=inside)

    def _save(self, batch: TailBatch, tail: Tail | None, rate: float) -> None:
        beside = batch.cold and batch.count >= _MANY_RECORDS
        if not (beside and batch.is_first):
            self._writer.finish()
        write = self._topic.prepare_save(self._lease, batch, tail, rate)
        if beside:
            self._writer.begin(partial(_write_and_yield, write))
        else:
            _write_and_yield(write)
        self._saved_at = time.monotonic()

    def _trouble(self, reason: str) -> None:
        report_failure(self._lease, reason)
        _cool(self._topic, self._lease)
        loop.stop_requested.wait(RETRY_S)

    def _nothing_yet(self) -> None:
        """Report a disappeared topic as unobservable, and a topic not yet needed as read to its end.

        The absence alone does not prove a deletion, so saved rows stay until a new topic with the name
        exists.
        """
        was_read = collector_store.saved_positions(self._lease.cluster, self._topic.name)[1]
        reason = (
            _GONE.format(self._topic.name)
            if was_read
            else self._topic.absence_reason(self._lease.cluster_id, loop.now_ms())
        )
        if reason:
            self._trouble(reason)
            return
        seen_ms = None if reason is None else loop.now_ms()
        self._save(TailBatch(RecordTable.of(()), (), seen_through_ms=seen_ms, behind=0), None, 0.0)
        loop.stop_requested.wait(2 * RETRY_S)

    def _start_again(self, reason: str) -> None:
        log.warning("%s: %s; reading starts again at its oldest record", self._lease.cluster, reason)
        topic_id = collector_store.saved_positions(self._lease.cluster, self._topic.name)[0]
        _cool(self._topic, self._lease)
        self._topic.forget_topic(self._lease, reason, topic_id, loop.now_ms())


def _write_and_yield(write: Callable[[], object]) -> None:
    write()
    loop.stop_requested.wait(_YIELD_S)


def _name_in_key(key: bytes) -> str:
    """Return the id or group in a key; both topics' keys consist of a version, a length and the name."""
    return escape_bytes(key[4 : 4 + int.from_bytes(key[2:4], "big")])


def _open(topic: TailedTopic, lease: leases.Lease) -> Tail:
    """Return the open consumer, at the saved positions."""
    which = lease.cluster, topic.name, lease.shard
    if which not in _tails:
        _tune_garbage_collector()
        properties = settings.FENCELINE.clusters[lease.cluster].properties
        _tails[which] = Tail(
            properties, lease.shard, settings.SHARDS, topic=topic.name, committed=topic.committed
        )
    topic_id, positions = collector_store.saved_positions(
        lease.cluster, topic.name, shard=lease.shard, shards=settings.SHARDS
    )
    if _tails[which].is_at(topic_id, positions):
        _tails[which].confirm_partitions(topic_id)
    else:
        epochs = collector_store.saved_epochs(lease.cluster, topic.name)
        _tails[which].seek(topic_id, positions, {p: epochs[p] for p in positions})
    return _tails[which]


@cache
def _tune_garbage_collector() -> None:
    """Make Python's search for cycles rare: it counts the millions of tuples of a fold, which have no cycles.

    This runs once, because frozen objects in a cycle, such as parts of a closed connection, are never freed.
    """
    gc.freeze()
    gc.set_threshold(2_000_000, 5, 5)


def _cool(topic: TailedTopic, lease: leases.Lease) -> None:
    tail = _tails.pop((lease.cluster, topic.name, lease.shard), None)
    if tail is not None:
        tail.close()
    del tail
    gc.collect()


#: Milliseconds at one offset after which a blocked partition is reported: short transactions always occur.
_HELD_MS = 2_000

#: By cluster and shard: the offset at which a partition is blocked, and since when.
_held: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}


def _prepare_transactions(
    lease: leases.Lease, batch: TailBatch, tail: Tail | None, rate: float
) -> Callable[[], int]:
    topic_id = tail.topic_id if tail else ""
    return store.prepare_save(lease, batch, topic_id=topic_id, rate=rate, now_ms=loop.now_ms())


def _prepare_commits(
    lease: leases.Lease, batch: TailBatch, tail: Tail | None, rate: float
) -> Callable[[], None]:
    now_ms = loop.now_ms()
    held = _held_back(lease, tail, now_ms)
    topic_id = tail.topic_id if tail else ""
    return partial(
        commit_store.save_commits, lease, batch, topic_id=topic_id, rate=rate, held=held, now_ms=now_ms
    )


def _held_back(lease: leases.Lease, tail: Tail | None, now_ms: int) -> dict[int, int]:
    """Return the start times of stuck last stable offsets by partition."""
    before = _held.get((lease.cluster, lease.shard), {})
    held = {}
    for partition, stable in (tail.unstable_offsets() if tail else {}).items():
        offset, since_ms = before.get(partition, (stable, now_ms))
        held[partition] = stable, since_ms if offset == stable else now_ms
    _held[lease.cluster, lease.shard] = held
    return {p: since_ms for p, (_, since_ms) in held.items() if now_ms - since_ms >= _HELD_MS}


_transactions = TailedTopic(
    collector_store.TRANSACTION_STATE, flush_s=0.008, save_at_once=6_000, prepare_save=_prepare_transactions,
    forget_topic=store.forget_topic, absence_reason=reconcile_store.absence_reason, is_inside=Scope.has_id,
)  # fmt: skip
#: read_committed, so that pending and aborted commits are not shown. Groups are polled every two seconds, so
#: commits need not be read within milliseconds.
_commits = TailedTopic(
    CONSUMER_OFFSETS, flush_s=0.5, save_at_once=10_000, prepare_save=_prepare_commits, committed=True,
    forget_topic=commit_store.forget_topic, absence_reason=commit_store.absence_reason,
    is_inside=Scope.has_group,
)  # fmt: skip
tailed = Tailed("collectors.tail", collector_names.TAIL, "tail", _transactions)
tailed_offsets = Tailed("collectors.offsets", commit_store.NAME, "offsets", _commits)
tail_name, offsets_name, read_until = tailed.collector_name, tailed_offsets.collector_name, tailed.read_until
