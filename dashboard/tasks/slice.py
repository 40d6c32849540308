"""What every collector's slice of work needs: when to stop, how to wait, what to report of a failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from celery import shared_task
from django.conf import settings

from dashboard.config import ClusterConfig
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import turns
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import KafkaPythonAdmin
from transaction_admin.kafka_reads import KafkaPythonReads
from transaction_admin.properties import CannotTranslate

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
_TICK_S = 1.0
#: Seconds between two tries while a cluster cannot be seen.
RETRY_S = 1.0
#: How long a cluster may take to answer one question: 2,000,000 ids take ten seconds to list.
ANSWER_S = 25.0
#: The same of all other reads: a broker that is paused is missed by its cluster after nine.
READ_S = 10.0
#: Nobody renews the lease of a poller that waits for an answer: it outlives that.
POLL_TTL = timedelta(seconds=40)


class ClusterEntry(Protocol):
    """An entry of the configuration that names its cluster."""

    @property
    def cluster(self) -> str: ...


class Closing(Protocol):
    """What holds connections to a cluster."""

    def close(self) -> None:
        """Close them."""


Kept = TypeVar("Kept")
Entry = TypeVar("Entry", bound=ClusterEntry)
T = TypeVar("T", bound=Closing)


class PerCluster(Generic[Kept]):
    """One of a kind for each cluster, kept from slice to slice. `make` makes one for a cluster's name."""

    def __init__(self, make: Callable[[str], Kept]) -> None:
        self._make = make
        self._made: dict[str, Kept] = {}

    def get_or_make(self, cluster: str) -> Kept:
        """Return the cluster's own, made at the first call; raises what `make` raises."""
        if cluster not in self._made:
            self._made[cluster] = self._make(cluster)
        return self._made[cluster]

    def forget(self, cluster: str) -> Kept | None:
        """Return the cluster's own, None without one: the next call makes another one."""
        return self._made.pop(cluster, None)


class Warm(PerCluster[T]):
    """The same with connections to the cluster; `make` makes one from its configuration."""

    def __init__(self, make: Callable[[ClusterConfig], T]) -> None:
        super().__init__(lambda cluster: make(settings.FENCELINE.clusters[cluster]))

    def discard(self, cluster: str) -> None:
        """Close the cluster's own: the next call makes another one."""
        made = self.forget(cluster)
        if made is not None:
            made.close()


class Polled:
    """A collector as a Celery task: where it `is_on` for a cluster, it works slice after slice."""

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
        """`asks` is False where a turn reads and writes the database alone."""

        @shared_task(name=name)
        def poll_slice(cluster: str, previous: int | None = None) -> None:
            if is_on(cluster):
                mine = loop.begin_slice(
                    poll_slice, cluster, collector, rounds,
                    previous=previous, ttl=ttl, lasts_s=loop.SHARED_SLICE_S,
                )  # fmt: skip
                if mine is not None:
                    turns.pool().add(mine, asks=asks)

        #: Takes a cluster and the token of the slice before, None for the first.
        self.task = poll_slice
        self._collector, self._is_on = collector, is_on

    def names(self) -> Sequence[str]:
        """Return the name of the collector."""
        return (self._collector,)

    def start(self, unheld: Mapping[str, Sequence[str]]) -> None:
        """Send a first slice for each cluster in which no worker polls and it is on."""
        for cluster in unheld[self._collector]:
            if self._is_on(cluster):
                self.task.apply_async((cluster, None), queue=loop.POLLERS, expires=loop.SLICE_S)


def open_reads(config: ClusterConfig) -> KafkaPythonReads:
    """Connect for reads of what is in the cluster's scope."""
    return KafkaPythonReads(config.properties, READ_S, config.scope)


def open_admin(config: ClusterConfig) -> KafkaPythonAdmin:
    """Connect to its coordinators for ids in its scope."""
    return KafkaPythonAdmin(config.properties, ANSWER_S, config.scope)


def entries_of(cluster: str, entries: Iterable[Entry], every_s: float) -> list[Entry]:
    """Return the entries of a cluster that is configured, none where its limit turns polling off."""
    is_on = cluster in settings.FENCELINE.clusters and every_s
    return [entry for entry in entries if is_on and entry.cluster == cluster]


def goes_on(end: float) -> bool:
    """Whether there is time left before `time.monotonic()` passes `end`, and nobody asked to stop."""
    return time.monotonic() < end and not loop.stop_requested.is_set()


def poll_repeatedly(
    lease: leases.Lease, poll: Callable[[], loop.Turns], disconnect: Callable[[str], None]
) -> loop.Turns:
    """Poll again and again, in turns; where no broker answers, save why and connect anew."""
    while True:
        try:
            yield from poll()
        except (AdminUnavailable, CannotTranslate) as blind:
            report_failure(lease, str(blind))
            disconnect(lease.cluster)
            yield RETRY_S


def each_second(tick: Callable[[], object]) -> loop.Turns:
    """Tick each second; what takes longer is followed at once."""
    while True:
        began = time.monotonic()
        tick()
        yield max(0.0, _TICK_S - (time.monotonic() - began))


def report_failure(lease: leases.Lease, reason: str) -> None:
    """Save why a collector cannot see; log it when it is news."""
    if collector_store.save_trouble(lease, reason, now_ms=loop.now_ms()):
        log.error("%s/%s: %s", lease.cluster, lease.name, reason)
