"""The coordinators' own lists, held against our rows, as a Celery task."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from collectors.kafka.reconcile import Reconciler
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import ANSWER_S, POLL_TTL, Warm, goes_on, poll_repeatedly, wait_leased
from dashboard.tasks.tails import tail_name
from dashboard.transactions import reconcile_store
from transaction_admin.kafka_python import KafkaPythonAdmin

_reconcilers = Warm(lambda properties: Reconciler(KafkaPythonAdmin(properties, ANSWER_S)))


def start() -> None:
    """Send a first slice where nobody holds rows against lists, unless the limits turn that off."""
    if settings.FENCELINE.limits.reconcile_every_s:
        loop.start_missing(reconcile_cluster, reconcile_store.NAME)


@shared_task(name="collectors.reconcile")
def reconcile_cluster(cluster: str, previous: int | None = None) -> None:
    """Hold a cluster's rows against its coordinators' lists, for one slice."""
    loop.run_slice(
        reconcile_cluster, cluster, reconcile_store.NAME, reconcile_until, previous=previous, ttl=POLL_TTL
    )


def reconcile_until(lease: leases.Lease, end: float) -> None:
    """Hold rows against lists as the holder of `lease` until `time.monotonic()` passes `end`."""
    ours = reconcile_store.ReconciledRows(lease, [tail_name(shard) for shard in range(settings.SHARDS)])

    def poll() -> None:
        reconciler = _reconcilers.get_or_make(lease.cluster)
        wait_leased(lease, max(reconciler.wait_s(), settings.FENCELINE.limits.reconcile_every_s), end)
        if goes_on(end):
            found = reconciler.poll(loop.now_ms(), ours)
            reconcile_store.save_reconciliation(lease, found, now_ms=loop.now_ms())

    poll_repeatedly(lease, end, poll, _reconcilers.discard)
