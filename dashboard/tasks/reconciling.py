"""Compare the coordinators' own lists with the stored rows, as a Celery task."""

from django.conf import settings

from collectors.kafka.marker_tail import MarkerTail
from collectors.kafka.reconcile import Reconciler
from dashboard.config import ClusterConfig
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import Polled, Warm, open_admin, open_reads, poll_repeatedly
from dashboard.tasks.tails import tail_name
from dashboard.transactions import reconcile_store


def _open_reconciler(config: ClusterConfig) -> Reconciler:
    def open_markers() -> MarkerTail:
        return MarkerTail(open_reads(config), settings.FENCELINE.limits.markers_mb)

    return Reconciler(open_admin(config), open_markers, config.scope)


_reconcilers = Warm(_open_reconciler)


def reconcile_in_turns(lease: leases.Lease) -> loop.Turns:
    """Compare rows with lists as the holder of `lease`, in turns."""
    rows = reconcile_store.ReconciledRows(lease, [tail_name(shard) for shard in range(settings.SHARDS)])

    def poll() -> loop.Turns:
        reconciler = _reconcilers.get_or_make(lease.cluster)
        yield max(reconciler.wait_s(), settings.FENCELINE.limits.reconcile_every_s)
        polled = reconciler.poll(loop.now_ms(), rows)
        reconcile_store.save_reconciliation(lease, polled, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, _reconcilers.discard)


polled = Polled(
    "collectors.reconcile",
    reconcile_store.NAME,
    reconcile_in_turns,
    lambda _: settings.FENCELINE.limits.reconcile_every_s,
)
