"""Endless Celery work in slices: hold a lease, work for 30 s, hand it on to the next message.

A slice works in turns: that of a tail in its own thread, all others in those of `dashboard.tasks.turns`.
It ends by sending its successor, which takes over by the token in the message. Whatever breaks the chain (a
kill, a lost message, an error) is repaired by beat, which every 2 s sends a first slice where nobody holds
the lease. While Redis does not take the successor, or other writers lock the database, the slice goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from celery import Task
from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection
from kombu.exceptions import OperationalError as RedisAway

from dashboard.runtime import leases
from dashboard.runtime.database_errors import RepeatedInVain, is_locked, log_line

log = logging.getLogger(__name__)

SLICE_S = 30.0
#: The same where the slices of a process share its threads: each hand-over is six queries.
SHARED_SLICE_S = 300.0
#: The pause before a round is repeated.
RETRY_S = 1.0
#: The queue of tasks that mostly wait.
POLLERS = "default"
#: Set when the worker must stop: slices end at once and release their lease.
stop_requested = threading.Event()

#: Works as a lease holder, in turns: yields the seconds to wait before the next one.
Turns = Generator[float, None, None]
Rounds = Callable[[leases.Lease], Turns]
#: Works as a lease holder until `time.monotonic()` passes the second argument or `stop_requested` is
#: set.
Work = Callable[[leases.Lease, float], None]


@worker_shutting_down.connect
def _stop(**_: object) -> None:
    stop_requested.set()


class Collecting(Protocol):
    """What has slices of one or several collectors."""

    def names(self) -> Sequence[str]:
        """Return the names of its collectors."""

    def start(self, unheld: Mapping[str, Sequence[str]]) -> None:
        """Send a first slice for each of these clusters, by collector, in which it is on."""


def start_missing(of: Sequence[Collecting]) -> None:
    """Send a first slice for every collector that nobody runs."""
    unheld = leases.unheld_clusters(*(name for collector in of for name in collector.names()))
    for collector in of:
        collector.start(unheld)


class Slice:
    """The work of one collector in one cluster for a while, turn by turn; not for two threads at once."""

    def __init__(
        self,
        task: Task[Any, Any],
        lease: leases.Lease,
        rounds: Rounds,
        queue: str,
        more: tuple[object, ...],
        lasts_s: float,
    ) -> None:
        self.lease = lease
        #: When the next turn is due (monotonic).
        self.due = time.monotonic()
        self._task, self._rounds, self._queue, self._more = task, rounds, queue, more
        self._lasts_s = lasts_s
        self._begin()

    def _begin(self) -> None:
        self._turns = self._rounds(self.lease)
        self._ends_at = time.monotonic() + self._lasts_s

    def turn(self) -> bool:
        """Work for a turn, or end the slice where it is over; return whether it goes on.

        A lost lease and a database error are logged in one line each: nothing was saved, and the next slice
        begins at the saved positions.
        """
        try:
            return self._turn()
        except leases.LeaseLost as lost:
            log.warning("%s: lease lost, nothing was saved: %s", self._name, lost)
        except DatabaseError as error:
            log.error("%s: starting again soon: %s", self._name, log_line(error))
            connection.close()
        return False

    @property
    def _name(self) -> str:
        return f"{self.lease.cluster}/{self.lease.name}"

    def _turn(self) -> bool:
        if stop_requested.is_set():
            self._turns.close()
            leases.release(self.lease)
            return False
        if time.monotonic() >= self._ends_at:
            return self._end()
        try:
            wait_s = next(self._turns)
        except StopIteration:
            return self._end()
        except OperationalError as error:
            wait_s = self._repeat_after(error)
        self.due = time.monotonic() + wait_s
        return True

    def _repeat_after(self, error: OperationalError) -> float:
        """Begin a round again that waited in vain for other writers; raise any other error.

        Another holder of the lease, which may have expired meanwhile, ends it: a save finds that first.
        """
        if not (is_locked(error) or isinstance(error, RepeatedInVain)):
            raise error
        log.warning("%s: repeating a round: %s", self._name, log_line(error))
        self._turns = self._rounds(self.lease)
        return RETRY_S

    def _end(self) -> bool:
        """Hand on to the next message; return whether Redis did not take it, so that we go on."""
        self._turns.close()
        message = (self.lease.cluster, self.lease.token, *self._more)
        try:
            self._task.apply_async(message, queue=self._queue, expires=SLICE_S, retry=False)
        except RedisAway as error:
            log.warning("%s: Redis does not answer, going on here: %s", self._name, error)
            self._begin()
            return True
        return False


def begin_slice(
    task: Task[Any, Any],
    cluster: str,
    name: str,
    rounds: Rounds,
    *more: object,
    previous: int | None,
    queue: str = POLLERS,
    ttl: timedelta = leases.TTL,
    lasts_s: float = SLICE_S,
) -> Slice | None:
    """Take the lease of collector `name` of a cluster for a slice; None where another one holds it, or the
    cluster is not configured any more.

    `ttl` is how long the lease lives without a renewal. `more` are the task's further arguments, `previous`
    is the token of the slice before.
    """
    if cluster not in settings.FENCELINE.clusters:
        return None
    try:
        lease = leases.acquire(
            cluster, name, holder=leases.holder_name(), now_ms=now_ms(), previous=previous, ttl=ttl
        )
    except DatabaseError as error:
        log.error("%s/%s: starting again soon: %s", cluster, name, log_line(error))
        connection.close()
        return None
    return Slice(task, lease, rounds, queue, more, lasts_s) if lease is not None else None


def run_slice(
    task: Task[Any, Any],
    cluster: str,
    name: str,
    work: Work,
    *more: object,
    previous: int | None,
    queue: str = POLLERS,
) -> None:
    """Work as collector `name` of a cluster for a slice in this thread, then hand on (`begin_slice`)."""

    def rounds(lease: leases.Lease) -> Turns:
        work(lease, time.monotonic() + SLICE_S)
        yield 0.0

    mine = begin_slice(task, cluster, name, rounds, *more, previous=previous, queue=queue)
    while mine is not None and mine.turn():
        stop_requested.wait(mine.due - time.monotonic())


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
