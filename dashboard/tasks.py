"""Celery tasks of the dashboard itself: the judge's tick."""

from __future__ import annotations

import time

from celery import shared_task
from django.conf import settings

from dashboard import judge, leases, slices

QUEUE = "default"
_TICK_S = 1.0


@shared_task(name="dashboard.start_judge")
def start_judge() -> None:
    """Send a judge for every cluster that has none."""
    slices.start_missing(judge_cluster, judge.NAME, QUEUE)


@shared_task(name="dashboard.judge")
def judge_cluster(cluster: str, previous: int | None = None) -> None:
    """Judge a cluster each second, for one slice."""
    if cluster in settings.FENCELINE.clusters:
        slices.run(judge_cluster, cluster, judge.NAME, _tick, queue=QUEUE, previous=previous)


def _tick(lease: leases.Lease, end: float) -> None:
    while time.monotonic() < end and not slices.stopping.is_set():
        began = time.monotonic()
        judge.tick(lease, now_ms=slices.now_ms())
        slices.stopping.wait(max(0.0, _TICK_S - (time.monotonic() - began)))
