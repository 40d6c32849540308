"""Poll checkpoints of Flink jobs, as a Celery task."""

from collections.abc import Sequence

from django.conf import settings

from collectors.flink import FlinkCollector
from dashboard.config import CheckpointRoot
from dashboard.engines import flink_store as store
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import RETRY_S, PerCluster, Polled, entries_of, report_failure

#: Collectors by cluster, kept from slice to slice with the checkpoints that they have read.
_collectors = PerCluster(lambda cluster: FlinkCollector(_roots(cluster)))


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    collector = _collectors.get_or_make(lease.cluster)
    while True:
        yield collector.wait_s()
        polled = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.checkpoints_every_s)
        if polled.blind:
            report_failure(lease, polled.blind)
            yield RETRY_S
            continue
        store.save_jobs(lease, polled.observations, polled.searched, gaps=polled.gaps, now_ms=loop.now_ms())


def _roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.flink_checkpoints, config.limits.checkpoints_every_s)


polled = Polled("collectors.flink", store.NAME, poll_in_turns, _roots)
