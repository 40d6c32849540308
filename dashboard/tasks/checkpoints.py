"""Poll checkpoints of streaming queries, as a Celery task."""

from collections.abc import Sequence

from django.conf import settings

from collectors.checkpoints.collector import CheckpointsCollector
from dashboard.config import CheckpointRoot
from dashboard.runtime import leases, loop
from dashboard.streaming import checkpoint_store
from dashboard.tasks.slice import RETRY_S, Polled, entries_of, report_failure

#: Collectors by cluster, kept from slice to slice with the checkpoints that they have read.
_collectors: dict[str, CheckpointsCollector] = {}


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    while True:
        collector = _collectors.get(lease.cluster) or _begin(lease)
        yield collector.wait_s()
        polled = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.checkpoints_every_s)
        if polled.blind:
            report_failure(lease, polled.blind)
            yield RETRY_S
            continue
        checkpoint_store.save_checkpoints(
            lease,
            polled.observations,
            polled.gone,
            gaps=polled.gaps,
            skipped=polled.skipped,
            now_ms=loop.now_ms(),
        )
        collector.mark_saved()


def _begin(lease: leases.Lease) -> CheckpointsCollector:
    collector = CheckpointsCollector(_roots(lease.cluster), checkpoint_store.known_folders(lease))
    _collectors[lease.cluster] = collector
    return collector


def _roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.checkpoints, config.limits.checkpoints_every_s)


polled = Polled("collectors.checkpoints", checkpoint_store.NAME, poll_in_turns, _roots)
