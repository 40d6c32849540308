"""Run endless Celery work in slices: take a lease, work for 30 s, hand the lease to the next message.

A slice works in turns: a tail's slice in its own thread, all others in the threads of
`dashboard.tasks.slice`. At its end it sends a message for its successor, which takes over by the token in the
message. If a kill, a lost message or an error breaks the chain, beat repairs it: every 2 s it sends a first
slice for leases without a holder. While Redis rejects the message, or other writers lock the database, the
slice goes on.
"""

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
#: Seconds of a slice that shares the threads of its process; it is longer because a hand-over is six queries.
SHARED_SLICE_S = 300.0
#: Seconds before a round is repeated.
RETRY_S = 1.0
#: The queue of tasks that mostly wait.
POLLERS = "default"
#: Set when the worker must stop: slices end at once and release their lease.
stop_requested = threading.Event()

#: Work of a lease holder in turns; yields the seconds to wait before the next turn.
Turns = Generator[float, None, None]
Rounds = Callable[[leases.Lease], Turns]
#: Work of a lease holder until `time.monotonic()` passes the second argument, or `stop_requested` is set.
Work = Callable[[leases.Lease, float], None]


@worker_shutting_down.connect
def _stop(**_: object) -> None:
    stop_requested.set()


class Collecting(Protocol):
    """A task that runs slices of one or several collectors."""

    def names(self) -> Sequence[str]:
        """Return the names of its collectors."""

    def start(self, unheld: Mapping[str, Sequence[str]]) -> None:
        """Send a first slice of each collector for the given clusters in which it is turned on."""


def start_missing(of: Sequence[Collecting]) -> None:
    """Send a first slice for every collector that nobody runs."""
    unheld = leases.unheld_clusters(*(name for collector in of for name in collector.names()))
    for collector in of:
        collector.start(unheld)


class Slice:
    """The work of one collector in one cluster for a while, turn by turn; not thread-safe."""

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
        """Work for a turn, or end the slice at its time; return whether the slice goes on.

        A lost lease or a database error is logged in one line: nothing was saved, and the next slice begins
        at the saved positions.
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
        """Restart a round that waited in vain for other writers; raise any other error.

        If the lease expired meanwhile and another holder took it, the next save raises `LeaseLost`.
        """
        if not (is_locked(error) or isinstance(error, RepeatedInVain)):
            raise error
        log.warning("%s: repeating a round: %s", self._name, log_line(error))
        self._turns = self._rounds(self.lease)
        return RETRY_S

    def _end(self) -> bool:
        """Send the message for the next slice; return whether Redis rejected it and this slice goes on."""
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
    """Take the lease of collector `name` of a cluster for a slice.

    Returns None if another holder has the lease, or the cluster is no longer configured. `ttl` is the lease's
    validity without a renewal, `more` the task's further arguments, `previous` the previous slice's token.
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
    """Run a slice of collector `name` of a cluster in this thread, then hand over (`begin_slice`)."""

    def rounds(lease: leases.Lease) -> Turns:
        work(lease, time.monotonic() + SLICE_S)
        yield 0.0

    current = begin_slice(task, cluster, name, rounds, *more, previous=previous, queue=queue)
    while current is not None and current.turn():
        stop_requested.wait(current.due - time.monotonic())


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
