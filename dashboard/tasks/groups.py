"""Poll consumer groups, as a Celery task."""

from django.conf import settings

from collectors.kafka.groups import GroupsCollector
from dashboard.groups import store as group_store
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import Polled, Warm, open_reads, poll_repeatedly

_collectors = Warm(lambda config: GroupsCollector(open_reads(config)))


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""

    def poll() -> loop.Turns:
        collector = _collectors.get_or_make(lease.cluster)
        yield collector.wait_s()
        rows = group_store.GroupRows(lease, loop.now_ms())
        every_s = settings.FENCELINE.limits.groups_every_s
        polled = collector.poll(loop.now_ms(), rows, every_s=every_s)
        group_store.save_groups(lease, polled, rows, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, _collectors.discard)


polled = Polled(
    "collectors.groups", group_store.NAME, poll_in_turns, lambda _: settings.FENCELINE.limits.groups_every_s
)
