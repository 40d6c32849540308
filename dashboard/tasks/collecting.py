"""Celery tasks that poll clusters: each holds a lease, reads, and saves, slice after slice.

Beat sends `start_missing`, which sends a first slice for every collector that nobody runs.
"""

from __future__ import annotations

from celery import shared_task

from dashboard.tasks import (
    audits,
    capabilities,
    checkpoints,
    engines,
    flink,
    groups,
    offsets,
    partitions,
    reconciling,
    recoveries,
    tails,
)


@shared_task(name="collectors.start_missing")
def start_missing() -> None:
    """Send a first slice for every collector that nobody runs."""
    for tail in tails, offsets:
        tail.tailed.start()
    for collector in (
        reconciling, partitions, groups, recoveries, checkpoints, flink, engines, audits, capabilities,
    ):  # fmt: skip
        collector.polled.start()
