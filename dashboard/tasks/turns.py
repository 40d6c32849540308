"""Run the turns of a process's slices in a few threads, fairly among clusters.

    pool().add(started, asks=True)     # `started` is a `loop.Slice`; its lease is renewed while it waits

Every cluster has two lanes of waiting turns: turns that ask the cluster or a store, which may not answer for
`slice.ANSWER_S`, and turns that use only the database. Lanes take turns. A cluster has at most `PER_CLUSTER`
threads for questions, all slow clusters together have a third of the threads, and questions leave a fifth to
the database's turns. Without these bounds one dead cluster stops all others.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import NamedTuple

from celery.signals import worker_shutdown
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection

from dashboard.runtime import leases, loop
from dashboard.runtime.database_errors import log_line

log = logging.getLogger(__name__)

#: The most threads that wait for one cluster's answers at once.
PER_CLUSTER = 4
#: A cluster is slow while a turn takes this long, and until a later one does not.
SLOW_S = 2.0
HEARTBEAT_S = 1.0
#: Seconds between a thread's checks for broken or minute-old connections; a check is a query.
_CHECK_CONNECTION_S = 30.0
#: Seconds until a waiting thread notices a request to stop.
_STOP_S = 0.5
#: Seconds that a stopping worker waits for running turns; waiting slices release their lease at once.
CLOSE_S = 5.0

_thread = threading.local()


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
            if now >= self._renewed_at + HEARTBEAT_S and self._renewal.done():
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
