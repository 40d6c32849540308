"""Runs the turns of a process' slices in a few threads, fair over clusters.

    pool().add(mine, asks=True)     # `mine` is a `loop.Slice`; its lease is kept while it waits

Turns wait in two lanes for each cluster: those that ask it or a store, which may not answer for
`slice.ANSWER_S`, and those that read and write the database alone. Lanes go in turn. A cluster has at most
`PER_CLUSTER` threads for questions; all clusters that were slow have a third of the threads together; and
questions leave a fifth to the database's turns. Without these bounds one dead cluster stops all others.
"""

from __future__ import annotations

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

#: Threads that wait for the answers of one cluster at once.
PER_CLUSTER = 4
#: A cluster is slow while a turn takes this long, and until a later one does not.
SLOW_S = 2.0
HEARTBEAT_S = 1.0
#: A thread closes a connection that broke, or is a minute old, this often: to check one is a query.
_CHECK_CONNECTION_S = 30.0
#: How soon a request to stop is seen by what waits.
_STOP_S = 0.5
#: How long a worker that stops waits for turns that still run; the others give their lease back at once.
CLOSE_S = 5.0

_thread = threading.local()


class TurnLane(NamedTuple):
    """What waits for a thread in turn: the turns of one cluster that ask it, or those that do not."""

    cluster: str
    asks: bool


@dataclass(slots=True)
class TurnLanes:
    """Which turn is next; one thread's alone. Times are monotonic."""

    threads: int
    _due: dict[TurnLane, deque[loop.Slice]] = field(default_factory=dict)
    #: What runs, since when, by its lane.
    _running: dict[TurnLane, dict[loop.Slice, float]] = field(default_factory=dict)
    #: Clusters whose last question took long.
    _were_slow: set[str] = field(default_factory=set)

    def put(self, lane: TurnLane, due: loop.Slice) -> None:
        """Put a turn that is due at the end of its lane."""
        self._due.setdefault(lane, deque()).append(due)

    def waiting(self) -> list[loop.Slice]:
        """Return the turns that are due and have no thread."""
        return [due for lane in self._due.values() for due in lane]

    def is_empty(self) -> bool:
        """Return whether nothing is due or runs."""
        return not self._due and not self._running

    def start(self, now: float) -> tuple[TurnLane, loop.Slice] | None:
        """Take the next turn that may run, whose lane is then the last; None without one."""
        lane = next((lane for lane in self._due if self._has_thread(lane, now)), None)
        if lane is None:
            return None
        due = self._due.pop(lane)
        mine = due.popleft()
        if due:
            self._due[lane] = due
        self._running.setdefault(lane, {})[mine] = now
        return lane, mine

    def end(self, lane: TurnLane, ended: loop.Slice, now: float) -> None:
        """Note that a turn is over."""
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
    """The threads of a process, and one more that gives them their turns."""

    def __init__(self, threads: int) -> None:
        self._lanes = TurnLanes(threads)
        # One keeps the leases.
        self._threads = ThreadPoolExecutor(threads + 1, "turns")
        #: What the thread that gives turns has to do: all else is its own.
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        #: What waits until it is due.
        self._later: list[tuple[float, int, TurnLane, loop.Slice]] = []
        self._order = count()
        self._renewal: Future[None] = self._threads.submit(leases.renew_waiting, ())
        self._renewed_at = time.monotonic()
        self._is_over = threading.Event()
        threading.Thread(target=self._give_turns, name="give-turns", daemon=True).start()

    def add(self, mine: loop.Slice, *, asks: bool) -> None:
        """Give a slice its turns until it is over."""
        self._inbox.put(partial(self._wait, TurnLane(mine.lease.cluster, asks), mine))

    def close(self, patience_s: float) -> None:
        """Wait until all slices are over, once `loop.stop_requested` is set; no longer than this."""
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
                waiting = [*self._lanes.waiting(), *(mine for *_, mine in self._later)]
                self._renewal = self._threads.submit(_renew, [mine.lease for mine in waiting])
            if loop.stop_requested.is_set() and not self._later and self._lanes.is_empty():
                self._is_over.set()

    def _receive(self) -> None:
        """Do what other threads ask for, and wait for that until a turn is due."""
        due = self._later[0][0] - time.monotonic() if self._later else _STOP_S
        with suppress(Empty):
            self._inbox.get(timeout=min(max(due, 0.0), _STOP_S))()
            while True:
                self._inbox.get_nowait()()

    def _wait(self, lane: TurnLane, mine: loop.Slice) -> None:
        heappush(self._later, (mine.due, next(self._order), lane, mine))

    def _run(self, lane: TurnLane, mine: loop.Slice) -> None:
        goes_on = False
        try:
            _check_connection()
            goes_on = mine.turn()
        except Exception:
            log.exception("%s/%s: an error of ours", mine.lease.cluster, mine.lease.name)
        finally:
            self._inbox.put(partial(self._end, lane, mine, goes_on))

    def _end(self, lane: TurnLane, mine: loop.Slice, goes_on: bool) -> None:
        self._lanes.end(lane, mine, time.monotonic())
        if goes_on:
            self._wait(lane, mine)


def _renew(waiting: Collection[leases.Lease]) -> None:
    """Renew the leases of what waits; one that could not be renewed lives on for five sixths of its time."""
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
    """Return this process' own, made at the first call."""
    made = TurnPool(settings.POLLER_THREADS)
    # Celery waits for its own threads alone.
    worker_shutdown.connect(lambda **_: made.close(CLOSE_S), weak=False)
    return made
