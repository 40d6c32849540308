"""Polls consumer groups, as a Celery task."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from collectors.kafka.groups import GroupsCollector
from dashboard.groups import store as group_store
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import ANSWER_S, POLL_TTL, Warm, goes_on, poll_repeatedly, wait_leased
from transaction_admin.kafka_reads import KafkaPythonReads

_collectors = Warm(lambda properties: GroupsCollector(properties, KafkaPythonReads(properties, ANSWER_S)))


def start() -> None:
    """Send a first slice where no worker polls groups, unless the limits turn that off."""
    if settings.FENCELINE.limits.groups_every_s:
        loop.start_missing(poll_groups, group_store.NAME)


@shared_task(name="collectors.groups")
def poll_groups(cluster: str, previous: int | None = None) -> None:
    """Poll a cluster's groups for one slice; `previous`: the last slice's token."""
    loop.run_slice(poll_groups, cluster, group_store.NAME, poll_until, previous=previous, ttl=POLL_TTL)


def poll_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""

    def poll() -> None:
        collector = _collectors.get_or_make(lease.cluster)
        wait_leased(lease, collector.wait_s(), end)
        if goes_on(end):
            rows = group_store.GroupRows(lease, loop.now_ms())
            every_s = settings.FENCELINE.limits.groups_every_s
            found = collector.poll(loop.now_ms(), rows, every_s=every_s)
            group_store.save_groups(lease, found, rows, now_ms=loop.now_ms())

    poll_repeatedly(lease, end, poll, _collectors.discard)
