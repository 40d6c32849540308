"""Polls the REST APIs of engines, as a Celery task."""

from __future__ import annotations

from collections.abc import Sequence

from celery import shared_task
from django.conf import settings

from collectors.engines.collector import EnginesCollector
from dashboard.config import EngineEndpoint
from dashboard.runtime import leases, loop
from dashboard.streaming import engines_store as store
from dashboard.tasks.slice import POLL_TTL, PerCluster, goes_on, wait_leased

#: Of each cluster, with what is under way, from slice to slice.
_collectors = PerCluster(lambda cluster: EnginesCollector(_apis(cluster)))


def start() -> None:
    """Send a first slice where no worker polls the configured APIs."""
    for cluster in leases.unheld_clusters(store.NAME):
        if _apis(cluster):
            poll_engines.apply_async((cluster, None), queue=loop.POLLERS, expires=loop.SLICE_S)


@shared_task(name="collectors.engines")
def poll_engines(cluster: str, previous: int | None = None) -> None:
    """Poll a cluster's engines for one slice; `previous`: the last slice's token."""
    if _apis(cluster):
        loop.run_slice(poll_engines, cluster, store.NAME, poll_until, previous=previous, ttl=POLL_TTL)


def poll_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    groups = {each.url: each.group for each in _apis(lease.cluster)}
    collector = _collectors.get_or_make(lease.cluster)
    while goes_on(end):
        wait_leased(lease, collector.wait_s(), end)
        if not goes_on(end):
            return
        found = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.engines_every_s)
        store.save_engines(lease, found.answers, groups, gaps=found.gaps, now_ms=loop.now_ms())


def _apis(cluster: str) -> Sequence[EngineEndpoint]:
    """Return the APIs of a cluster that is configured, none where the limits turn polling off."""
    config = settings.FENCELINE
    if cluster not in config.clusters or not config.limits.engines_every_s:
        return ()
    return [each for each in config.engines if each.cluster == cluster]
