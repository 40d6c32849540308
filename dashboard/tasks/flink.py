"""Polls checkpoints of Flink's jobs, as a Celery task."""

from __future__ import annotations

from collections.abc import Sequence

from celery import shared_task
from django.conf import settings

from collectors.flink.collector import FlinkCollector
from dashboard.config import CheckpointRoot
from dashboard.runtime import leases, loop
from dashboard.streaming import flink_store as store
from dashboard.tasks.slice import POLL_TTL, RETRY_S, PerCluster, goes_on, report_failure, wait_leased

#: What was read of each cluster's checkpoints, from slice to slice.
_collectors = PerCluster(lambda cluster: FlinkCollector(_roots(cluster)))


def start() -> None:
    """Send a first slice where no worker reads the configured checkpoints."""
    for cluster in leases.unheld_clusters(store.NAME):
        if _roots(cluster):
            poll_jobs.apply_async((cluster, None), queue=loop.POLLERS, expires=loop.SLICE_S)


@shared_task(name="collectors.flink")
def poll_jobs(cluster: str, previous: int | None = None) -> None:
    """Poll a cluster's Flink jobs for one slice; `previous`: the last slice's token."""
    if _roots(cluster):
        loop.run_slice(poll_jobs, cluster, store.NAME, poll_until, previous=previous, ttl=POLL_TTL)


def poll_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    collector = _collectors.get_or_make(lease.cluster)
    while goes_on(end):
        wait_leased(lease, collector.wait_s(), end)
        if not goes_on(end):
            return
        found = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.checkpoints_every_s)
        if found.blind:
            report_failure(lease, found.blind)
            wait_leased(lease, RETRY_S, end)
            continue
        store.save_jobs(lease, found.observations, found.searched, gaps=found.gaps, now_ms=loop.now_ms())


def _roots(cluster: str) -> Sequence[CheckpointRoot]:
    """Return the roots of a cluster that is configured, none where the limits turn polling off."""
    config = settings.FENCELINE
    if cluster not in config.clusters or not config.limits.checkpoints_every_s:
        return ()
    return [root for root in config.flink_checkpoints if root.cluster == cluster]
