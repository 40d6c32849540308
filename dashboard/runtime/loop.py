"""Endless Celery work in slices: hold a lease, work for 30 s, hand it on to the next message.

A slice ends by sending its successor, which takes over by the token in the message. Whatever breaks the chain
(a kill, a lost message, an error) is repaired by beat, which every 2 s sends a first slice where nobody holds
the lease. While Redis does not take the successor, or other writers lock the database, the slice goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import Task
from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection
from kombu.exceptions import OperationalError as RedisAway

from dashboard.runtime import leases
from dashboard.runtime.database_errors import RepeatedInVain, is_locked, log_line

log = logging.getLogger(__name__)

SLICE_S = 30.0
#: The pause before a round is repeated.
RETRY_S = 1.0
#: The queue of tasks that mostly wait.
POLLERS = "default"
#: Set when the worker must stop: slices end at once and release their lease.
stop_requested = threading.Event()

#: Works as a lease holder until `time.monotonic()` passes the second argument or `stop_requested` is
#: set.
Work = Callable[[leases.Lease, float], None]


@worker_shutting_down.connect
def _stop(**_: object) -> None:
    stop_requested.set()


def start_missing(task: Task[Any, Any], name: str, queue: str = POLLERS, *more: object) -> None:
    """Send a first slice of `task` for every cluster without a holder of the lease `name`.

    A task takes the cluster, the token of the slice before (None at first), and whatever `more` there is.
    """
    for cluster in leases.unheld_clusters(name):
        task.apply_async((cluster, None, *more), queue=queue, expires=SLICE_S)


def run_slice(
    task: Task[Any, Any],
    cluster: str,
    name: str,
    work: Work,
    *more: object,
    previous: int | None,
    queue: str = POLLERS,
    ttl: timedelta = leases.TTL,
) -> None:
    """Work as collector `name` of a cluster for a slice, then hand on; nothing when another one holds it, or
    the cluster is not configured any more.

    `ttl` is how long the lease lives while `work` does not renew it. `more` are the task's further arguments,
    `previous` is the token of the slice before. A lost lease and a database error are logged in one line
    each: nothing was saved, and the next slice begins at the saved positions.
    """
    if cluster not in settings.FENCELINE.clusters:
        return
    try:
        lease = leases.acquire(
            cluster, name, holder=leases.holder_name(), now_ms=now_ms(), previous=previous, ttl=ttl
        )
        while lease is not None:
            _work(work, lease)
            lease = None if _hand_on(task, lease, queue, more) else lease
    except leases.LeaseLost as lost:
        log.warning("%s/%s: lease lost, nothing was saved: %s", cluster, name, lost)
    except DatabaseError as error:
        log.error("%s/%s: starting again soon: %s", cluster, name, log_line(error))
        connection.close()


def _work(work: Work, lease: leases.Lease) -> None:
    """Work for a slice; repeat a round that waited in vain for other writers.

    Another holder of the lease, which may have expired meanwhile, ends it: a save finds that first.
    """
    while True:
        try:
            return work(lease, time.monotonic() + SLICE_S)
        except OperationalError as error:
            if not (is_locked(error) or isinstance(error, RepeatedInVain)):
                raise
            log.warning("%s/%s: repeating a round: %s", lease.cluster, lease.name, log_line(error))
            stop_requested.wait(RETRY_S)


def _hand_on(task: Task[Any, Any], lease: leases.Lease, queue: str, more: tuple[object, ...]) -> bool:
    if stop_requested.is_set():
        leases.release(lease)
        return True
    try:
        task.apply_async((lease.cluster, lease.token, *more), queue=queue, expires=SLICE_S, retry=False)
    except RedisAway as error:
        log.warning("%s/%s: Redis does not answer, going on here: %s", lease.cluster, lease.name, error)
        return False
    return True


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
