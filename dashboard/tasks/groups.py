"""Polls consumer groups, as a Celery task."""

from __future__ import annotations

from django.conf import settings

from collectors.kafka.groups import GroupsCollector
from dashboard.groups import store as group_store
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import Polled, Warm, goes_on, open_reads, poll_repeatedly, wait_leased

_collectors = Warm(lambda config: GroupsCollector(open_reads(config)))


def poll_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""

    def poll() -> None:
        collector = _collectors.get_or_make(lease.cluster)
        wait_leased(lease, collector.wait_s(), end)
        if goes_on(end):
            rows = group_store.GroupRows(lease, loop.now_ms())
            every_s = settings.FENCELINE.limits.groups_every_s
            polled = collector.poll(loop.now_ms(), rows, every_s=every_s)
            group_store.save_groups(lease, polled, rows, now_ms=loop.now_ms())

    poll_repeatedly(lease, end, poll, _collectors.discard)


polled = Polled(
    "collectors.groups", group_store.NAME, poll_until, lambda _: settings.FENCELINE.limits.groups_every_s
)
