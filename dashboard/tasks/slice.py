"""Helpers for a collector's slice of work: its deadline, its pauses, its error reports."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from celery import shared_task
from django.conf import settings

from dashboard.config import ClusterConfig
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import turns
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
                    turns.pool().add(begun, asks=asks)

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
