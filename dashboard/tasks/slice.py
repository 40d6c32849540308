"""A collector's slice of work: its deadline, its pauses, its error reports; and its turns in the few threads
of a process, which clusters share fairly.

    pool().add(started, asks=True)     # `started` is a `loop.Slice`; its lease is renewed while it waits

Every cluster has two lanes of waiting turns: turns that ask the cluster or a store, which may not answer for
`ANSWER_S`, and turns that use only the database. Lanes take turns. A cluster has at most `PER_CLUSTER`
threads for questions, all slow clusters together have a third of the threads, and questions leave a fifth to
the database's turns. Without these bounds one dead cluster stops all others.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeVar

from celery import shared_task
from celery.signals import worker_shutdown
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection

from dashboard.config import ClusterConfig
from dashboard.runtime import collector_store, leases, loop
from dashboard.runtime.database_errors import log_line
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
_TICK_S = 1.0
#: Seconds between two tries while a cluster is unreachable.
RETRY_S = 1.0
#: Seconds to wait for a coordinator's answer: a list of 2,000,000 ids takes ten seconds.
ANSWER_S = 25.0
#: Seconds to wait for other answers: after nine seconds the cluster has fenced a paused broker.
READ_S = 10.0
#: The lease of a poller, which outlasts the wait for an answer, because it is not renewed meanwhile.
POLL_TTL = timedelta(seconds=40)
#: The most threads that wait for one cluster's answers at once.
PER_CLUSTER = 4
#: A cluster is slow while a turn takes this long, and until a later one does not.
SLOW_S = 2.0
_RENEWAL_S = 1.0
#: Seconds between a thread's checks for broken or minute-old connections; a check is a query.
_CHECK_CONNECTION_S = 30.0
#: Seconds until a waiting thread notices a request to stop.
_STOP_S = 0.5
#: Seconds that a stopping worker waits for running turns; waiting slices release their lease at once.
CLOSE_S = 5.0

_thread = threading.local()


class ClusterEntry(Protocol):
    """An entry of the configuration that names its cluster."""

    @property
    def cluster(self) -> str: ...


class Closing(Protocol):
    """An object with connections to a cluster."""

    def close(self) -> None:
        """Close the connections."""


Kept = TypeVar("Kept")
Entry = TypeVar("Entry", bound=ClusterEntry)
T = TypeVar("T", bound=Closing)


class PerCluster(dict[str, Kept]):
    """An object for each cluster, made by its name at the first access and kept from slice to slice."""

    def __init__(self, make: Callable[[str], Kept]) -> None:
        self._make = make

    def __missing__(self, cluster: str) -> Kept:
        made = self[cluster] = self._make(cluster)
        return made


class Warm(PerCluster[T]):
    """An object with connections for each cluster; `make` takes the cluster's configuration."""

    def __init__(self, make: Callable[[ClusterConfig], T]) -> None:
        super().__init__(lambda cluster: make(settings.FENCELINE.clusters[cluster]))

    def discard(self, cluster: str) -> None:
        """Close the cluster's object; the next access makes another one."""
        kept = self.pop(cluster, None)
        if kept is not None:
            kept.close()


class Polled:
    """A collector as a Celery task: it works slice after slice in clusters for which it `is_on`."""

    def __init__(
        self,
        name: str,
        collector: str,
        rounds: loop.Rounds,
        is_on: Callable[[str], object] = lambda _: True,
        *,
        ttl: timedelta = POLL_TTL,
        asks: bool = True,
    ) -> None:
        """`asks` is False if a turn uses only the database."""

        @shared_task(name=name)
        def poll_slice(cluster: str, previous: int | None = None) -> None:
            if is_on(cluster):
                begun = loop.begin_slice(
                    poll_slice, cluster, collector, rounds,
                    previous=previous, ttl=ttl, lasts_s=loop.SHARED_SLICE_S,
                )  # fmt: skip
                if begun is not None:
                    pool().add(begun, asks=asks)

        #: Its arguments are a cluster and the token of the previous slice (None for the first).
        self.task = poll_slice
        self._collector, self._is_on = collector, is_on

    def names(self) -> Sequence[str]:
        return (self._collector,)

    def start(self, unheld: Mapping[str, Sequence[str]]) -> None:
        """Send a first slice for each cluster without a valid lease in which the collector is on."""
        for cluster in unheld[self._collector]:
            if self._is_on(cluster):
                self.task.apply_async((cluster, None), queue=loop.POLLERS, expires=loop.SLICE_S)


def open_reads(config: ClusterConfig) -> ClusterReads:
    """Connect for reads within the cluster's scope."""
    return ClusterReads(config.properties, READ_S, config.scope)


def open_admin(config: ClusterConfig) -> TransactionAdmin:
    """Connect to the cluster's coordinators, for ids within its scope."""
    return TransactionAdmin(config.properties, ANSWER_S, config.scope)


def entries_of(cluster: str, entries: Iterable[Entry], every_s: float) -> list[Entry]:
    """Return the entries of a configured cluster; empty if `every_s` of 0 turns polling off."""
    is_on = cluster in settings.FENCELINE.clusters and every_s
    return [entry for entry in entries if is_on and entry.cluster == cluster]


def goes_on(end: float) -> bool:
    """Whether `time.monotonic()` is before `end`, and the worker is not stopping."""
    return time.monotonic() < end and not loop.stop_requested.is_set()


def poll_repeatedly(
    lease: leases.Lease, poll: Callable[[], loop.Turns], disconnect: Callable[[str], None]
) -> loop.Turns:
    """Poll repeatedly, in turns; if no broker answers, save the reason and reconnect."""
    while True:
        try:
            yield from poll()
        except (AdminUnavailable, CannotTranslate) as blind:
            report_failure(lease, str(blind))
            disconnect(lease.cluster)
            yield RETRY_S


def each_second(tick: Callable[[], object]) -> loop.Turns:
    """Tick every second; after a longer tick the next one follows at once."""
    while True:
        began = time.monotonic()
        tick()
        yield max(0.0, _TICK_S - (time.monotonic() - began))


def report_failure(lease: leases.Lease, reason: str) -> None:
    """Save the reason of a collector's failure; log a new one."""
    if collector_store.save_trouble(lease, reason, now_ms=loop.now_ms()):
        log.error("%s/%s: %s", lease.cluster, lease.name, reason)


class TurnLane(NamedTuple):
    """A queue for threads: the turns of one cluster that ask it, or those that do not."""

    cluster: str
    asks: bool


@dataclass(slots=True)
class TurnLanes:
    """Selects the next turn; used by one thread only. Times are monotonic."""

    threads: int
    _due: dict[TurnLane, deque[loop.Slice]] = field(default_factory=dict)
    #: Running turns with their start, by lane.
    _running: dict[TurnLane, dict[loop.Slice, float]] = field(default_factory=dict)
    #: Clusters whose last question took long.
    _were_slow: set[str] = field(default_factory=set)

    def put(self, lane: TurnLane, due: loop.Slice) -> None:
        self._due.setdefault(lane, deque()).append(due)

    def waiting(self) -> list[loop.Slice]:
        """Return the due turns without a thread."""
        return [due for lane in self._due.values() for due in lane]

    def is_empty(self) -> bool:
        return not self._due and not self._running

    def start(self, now: float) -> tuple[TurnLane, loop.Slice] | None:
        """Take the next turn that may run, and move its lane to the end; None without one."""
        lane = next((lane for lane in self._due if self._has_thread(lane, now)), None)
        if lane is None:
            return None
        due = self._due.pop(lane)
        started = due.popleft()
        if due:
            self._due[lane] = due
        self._running.setdefault(lane, {})[started] = now
        return lane, started

    def end(self, lane: TurnLane, ended: loop.Slice, now: float) -> None:
        running = self._running[lane]
        was_slow = now - running.pop(ended) >= SLOW_S
        if not running:
            del self._running[lane]
        if lane.asks:
            (self._were_slow.add if was_slow else self._were_slow.discard)(lane.cluster)

    def _has_thread(self, lane: TurnLane, now: float) -> bool:
        if not lane.asks:
            return sum(map(len, self._running.values())) < self.threads
        asking = {other.cluster: len(running) for other, running in self._running.items() if other.asks}
        if asking.get(lane.cluster, 0) >= PER_CLUSTER or sum(asking.values()) >= self.threads * 4 // 5:
            return False
        slow = {cluster for cluster in asking if self._is_slow(cluster, now)}
        of_slow = sum(asking[cluster] for cluster in slow)
        return not self._is_slow(lane.cluster, now) or of_slow < self.threads // 3

    def _is_slow(self, cluster: str, now: float) -> bool:
        running = self._running.get(TurnLane(cluster, True), {})
        return cluster in self._were_slow or any(now - since >= SLOW_S for since in running.values())


class TurnPool:
    """The threads of a process, and a thread that distributes the turns."""

    def __init__(self, threads: int) -> None:
        self._lanes = TurnLanes(threads)
        # One more thread renews the leases.
        self._threads = ThreadPoolExecutor(threads + 1, "turns")
        #: Calls for the distributing thread, which owns the other attributes.
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        #: Turns that are not due yet.
        self._later: list[tuple[float, int, TurnLane, loop.Slice]] = []
        self._order = count()
        self._renewal: Future[None] = self._threads.submit(leases.renew_waiting, ())
        self._renewed_at = time.monotonic()
        self._is_over = threading.Event()
        threading.Thread(target=self._give_turns, name="give-turns", daemon=True).start()

    def add(self, started: loop.Slice, *, asks: bool) -> None:
        """Run a slice's turns until it is over."""
        self._inbox.put(partial(self._wait, TurnLane(started.lease.cluster, asks), started))

    def close(self, patience_s: float) -> None:
        """Wait at most `patience_s` for all slices to end, after `loop.stop_requested` is set."""
        self._is_over.wait(patience_s)

    def _give_turns(self) -> None:
        while True:
            self._receive()
            now = time.monotonic()
            while self._later and (self._later[0][0] <= now or loop.stop_requested.is_set()):
                self._lanes.put(*heappop(self._later)[2:])
            while started := self._lanes.start(now):
                self._threads.submit(self._run, *started)
            if now >= self._renewed_at + _RENEWAL_S and self._renewal.done():
                self._renewed_at = now
                waiting = [*self._lanes.waiting(), *(later for *_, later in self._later)]
                self._renewal = self._threads.submit(_renew, [turn.lease for turn in waiting])
            if loop.stop_requested.is_set() and not self._later and self._lanes.is_empty():
                self._is_over.set()

    def _receive(self) -> None:
        """Run the calls of other threads, and wait for such calls until a turn is due."""
        due = self._later[0][0] - time.monotonic() if self._later else _STOP_S
        with suppress(Empty):
            self._inbox.get(timeout=min(max(due, 0.0), _STOP_S))()
            while True:
                self._inbox.get_nowait()()

    def _wait(self, lane: TurnLane, later: loop.Slice) -> None:
        heappush(self._later, (later.due, next(self._order), lane, later))

    def _run(self, lane: TurnLane, started: loop.Slice) -> None:
        goes_on = False
        try:
            _check_connection()
            goes_on = started.turn()
        except Exception:
            log.exception("%s/%s: an error of ours", started.lease.cluster, started.lease.name)
        finally:
            self._inbox.put(partial(self._end, lane, started, goes_on))

    def _end(self, lane: TurnLane, ended: loop.Slice, goes_on: bool) -> None:
        self._lanes.end(lane, ended, time.monotonic())
        if goes_on:
            self._wait(lane, ended)


def _renew(waiting: Collection[leases.Lease]) -> None:
    """Renew the leases of waiting turns; a lease that cannot be renewed stays valid for 5/6 of its time."""
    try:
        _check_connection()
        leases.renew_waiting(waiting)
    except DatabaseError as error:
        log.warning("leases are renewed later: %s", log_line(error))
        connection.close()


def _check_connection() -> None:
    now = time.monotonic()
    if now >= getattr(_thread, "checked_at", 0.0) + _CHECK_CONNECTION_S:
        _thread.checked_at = now
        close_old_connections()


@cache
def pool() -> TurnPool:
    """Return this process's pool, made at the first call."""
    made = TurnPool(settings.POLLER_THREADS)
    # Celery waits only for its own threads.
    worker_shutdown.connect(lambda **_: made.close(CLOSE_S), weak=False)
    return made
