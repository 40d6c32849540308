"""Poll the REST APIs of engines, as a Celery task."""

from collections.abc import Sequence

from django.conf import settings

from collectors.engines import EnginesCollector
from dashboard.config import EngineEndpoint
from dashboard.engines import store
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import PerCluster, Polled, entries_of

#: Collectors by cluster, kept from slice to slice with their pending requests.
_collectors = PerCluster(lambda cluster: EnginesCollector(_apis(cluster)))


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    groups = {api.url: api.group for api in _apis(lease.cluster)}
    collector = _collectors.get_or_make(lease.cluster)
    while True:
        yield collector.wait_s()
        polled = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.engines_every_s)
        store.save_engines(lease, polled.answers, groups, gaps=polled.gaps, now_ms=loop.now_ms())


def _apis(cluster: str) -> Sequence[EngineEndpoint]:
    config = settings.FENCELINE
    return entries_of(cluster, config.engines, config.limits.engines_every_s)


polled = Polled("collectors.engines", store.NAME, poll_in_turns, _apis)
