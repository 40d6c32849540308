"""Celery tasks of the dashboard itself: the judge's tick, and the end of what is too old to keep."""

from __future__ import annotations

import time

from celery import shared_task
from django.conf import settings

from dashboard import judge, leases, retention, slices
from dashboard.snapshots import Reader

QUEUE = "default"
_TICK_S = 1.0
#: Seconds between two portions while there is something to prune, and while there is not.
_BETWEEN_PORTIONS_S = 0.1
_IDLE_S = 2.0
#: What the judge's reader keeps lives from slice to slice, by cluster.
_readers: dict[str, Reader] = {}


@shared_task(name="dashboard.start_missing")
def start_missing() -> None:
    """Send a judge, and a pruner, for every cluster that has none."""
    slices.start_missing(judge_cluster, judge.NAME, QUEUE)
    slices.start_missing(prune_cluster, retention.NAME, QUEUE)


@shared_task(name="dashboard.judge")
def judge_cluster(cluster: str, previous: int | None = None) -> None:
    """Judge a cluster each second, for one slice."""
    if cluster in settings.FENCELINE.clusters:
        slices.run(judge_cluster, cluster, judge.NAME, _tick, queue=QUEUE, previous=previous)


@shared_task(name="dashboard.prune")
def prune_cluster(cluster: str, previous: int | None = None) -> None:
    """Delete a cluster's outdated rows, for one slice."""
    if cluster in settings.FENCELINE.clusters:
        slices.run(prune_cluster, cluster, retention.NAME, _prune, queue=QUEUE, previous=previous)


def _prune(lease: leases.Lease, end: float) -> None:
    while time.monotonic() < end and not slices.stopping.is_set():
        pruned = retention.prune(lease, settings.FENCELINE.retention, now_ms=slices.now_ms())
        slices.stopping.wait(_BETWEEN_PORTIONS_S if pruned else _IDLE_S)


def _tick(lease: leases.Lease, end: float) -> None:
    reader = _readers.setdefault(lease.cluster, Reader(lease.cluster))
    while time.monotonic() < end and not slices.stopping.is_set():
        began = time.monotonic()
        judge.tick(lease, reader, now_ms=slices.now_ms())
        slices.stopping.wait(max(0.0, _TICK_S - (time.monotonic() - began)))
