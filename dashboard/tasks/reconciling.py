"""The coordinators' own lists, held against our rows, as a Celery task."""

from __future__ import annotations

from django.conf import settings

from collectors.kafka.marker_tail import MarkerTail
from collectors.kafka.reconcile import Reconciler
from dashboard.config import ClusterConfig
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import Polled, Warm, goes_on, open_admin, open_reads, poll_repeatedly, wait_leased
from dashboard.tasks.tails import tail_name
from dashboard.transactions import reconcile_store


def _open_reconciler(config: ClusterConfig) -> Reconciler:
    def open_markers() -> MarkerTail:
        return MarkerTail(open_reads(config), settings.FENCELINE.limits.markers_mb)

    return Reconciler(open_admin(config), open_markers, config.scope)


_reconcilers = Warm(_open_reconciler)


def reconcile_until(lease: leases.Lease, end: float) -> None:
    """Hold rows against lists as the holder of `lease` until `time.monotonic()` passes `end`."""
    ours = reconcile_store.ReconciledRows(lease, [tail_name(shard) for shard in range(settings.SHARDS)])

    def poll() -> None:
        reconciler = _reconcilers.get_or_make(lease.cluster)
        wait_leased(lease, max(reconciler.wait_s(), settings.FENCELINE.limits.reconcile_every_s), end)
        if goes_on(end):
            polled = reconciler.poll(loop.now_ms(), ours)
            reconcile_store.save_reconciliation(lease, polled, now_ms=loop.now_ms())

    poll_repeatedly(lease, end, poll, _reconcilers.discard)


polled = Polled(
    "collectors.reconcile",
    reconcile_store.NAME,
    reconcile_until,
    lambda _: settings.FENCELINE.limits.reconcile_every_s,
)
