"""The Celery tasks that poll clusters: each holds a lease, reads and saves, slice after slice.

Beat sends `start_missing`, which sends a first slice for every collector without a valid lease.
"""

from celery import shared_task

from dashboard.runtime import loop
from dashboard.tasks import (
    audits,
    capabilities,
    checkpoints,
    coordinators,
    engines,
    flink,
    groups,
    offsets,
    partitions,
    reconciling,
    recoveries,
    schedule,
    tails,
)

_POLLED = (
    reconciling, coordinators, partitions, groups, recoveries, checkpoints, flink, engines, audits,
    capabilities,
)  # fmt: skip
_ALL = (tails.tailed, offsets.tailed, *(module.polled for module in _POLLED), *schedule.JUDGES)


@shared_task(name="collectors.start_missing")
def start_missing() -> None:
    """Send a first slice for every collector without a valid lease."""
    loop.start_missing(_ALL)
