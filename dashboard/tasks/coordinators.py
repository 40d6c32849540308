"""Poll the coordinators of transactional ids and their moves, as a Celery task."""

from collectors.kafka.coordinators import CoordinatorCollector
from dashboard.config import ClusterConfig
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import Polled, Warm, open_admin, open_reads, poll_repeatedly
from dashboard.transactions import coordinator_store


def _open_collector(config: ClusterConfig) -> CoordinatorCollector:
    rows = coordinator_store.CoordinatorRows(config.name)
    return CoordinatorCollector(open_reads(config), open_admin(config), rows)


_collectors = Warm(_open_collector)
#: The token of the last lease by cluster.
_tokens: dict[str, int] = {}


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    if not lease.is_unbroken_since(_tokens.get(lease.cluster, 0)):
        # Another process has polled meanwhile, so this collector's memory is outdated.
        _collectors.discard(lease.cluster)
    _tokens[lease.cluster] = lease.token

    def poll() -> loop.Turns:
        collector = _collectors.get_or_make(lease.cluster)
        yield collector.wait_s()
        coordinator_store.save_coordinators(lease, collector.poll(loop.now_ms()), now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, _collectors.discard)


polled = Polled("collectors.coordinators", coordinator_store.NAME, poll_in_turns)
