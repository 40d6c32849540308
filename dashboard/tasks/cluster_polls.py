"""Poll groups, coordinators and capabilities, and compare coordinators' lists with rows, as Celery tasks."""

from django.conf import settings

from collectors.doctor.checks import Patient
from collectors.doctor.sight import probe_capabilities
from collectors.kafka.coordinators import CoordinatorCollector
from collectors.kafka.groups import GroupsCollector
from collectors.kafka.marker_tail import MarkerTail
from collectors.kafka.reconcile import Reconciler
from dashboard.config import ClusterConfig
from dashboard.groups import store as group_store
from dashboard.runtime import leases, loop
from dashboard.system import capabilities as capability_store
from dashboard.tasks.slice import ANSWER_S, Polled, Warm, open_admin, open_reads, poll_repeatedly
from dashboard.tasks.tails import tail_name
from dashboard.transactions import coordinator_store, reconcile_store
from transaction_admin.api import AdminUnavailable
from transaction_admin.properties import CannotTranslate

#: Milliseconds between two checks of capabilities; a new grant shows within this time.
_CAPABILITIES_EVERY_MS = 60_000
_CAPABILITIES_TICK_S = 5.0


def _open_coordinators(config: ClusterConfig) -> CoordinatorCollector:
    rows = coordinator_store.CoordinatorRows(config.name)
    return CoordinatorCollector(open_reads(config), open_admin(config), rows)


def _open_reconciler(config: ClusterConfig) -> Reconciler:
    def open_markers() -> MarkerTail:
        return MarkerTail(open_reads(config), settings.FENCELINE.limits.markers_mb)

    return Reconciler(open_admin(config), open_markers, config.scope)


group_collectors = Warm(lambda config: GroupsCollector(open_reads(config)))
reconcilers = Warm(_open_reconciler)
_coordinator_collectors = Warm(_open_coordinators)
#: The token of the last lease of coordinators by cluster.
_coordinator_tokens: dict[str, int] = {}


def poll_groups(lease: leases.Lease) -> loop.Turns:
    """Poll consumer groups, in turns."""

    def poll() -> loop.Turns:
        collector = group_collectors[lease.cluster]
        yield collector.wait_s()
        rows = group_store.GroupRows(lease, loop.now_ms())
        every_s = settings.FENCELINE.limits.groups_every_s
        polled = collector.poll(loop.now_ms(), rows, every_s=every_s)
        group_store.save_groups(lease, polled, rows, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, group_collectors.discard)


def poll_coordinators(lease: leases.Lease) -> loop.Turns:
    """Poll the coordinators of transactional ids and their moves, in turns."""
    if not lease.is_unbroken_since(_coordinator_tokens.get(lease.cluster, 0)):
        # Another process has polled meanwhile, so this collector's memory is outdated.
        _coordinator_collectors.discard(lease.cluster)
    _coordinator_tokens[lease.cluster] = lease.token

    def poll() -> loop.Turns:
        collector = _coordinator_collectors[lease.cluster]
        yield collector.wait_s()
        coordinator_store.save_coordinators(lease, collector.poll(loop.now_ms()), now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, _coordinator_collectors.discard)


def reconcile(lease: leases.Lease) -> loop.Turns:
    """Compare the coordinators' own lists with the stored rows, in turns."""
    rows = reconcile_store.ReconciledRows(lease, [tail_name(shard) for shard in range(settings.SHARDS)])

    def poll() -> loop.Turns:
        reconciler = reconcilers[lease.cluster]
        yield max(reconciler.wait_s(), settings.FENCELINE.limits.reconcile_every_s)
        polled = reconciler.poll(loop.now_ms(), rows)
        reconcile_store.save_reconciliation(lease, polled, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, reconcilers.discard)


def check_capabilities(lease: leases.Lease) -> loop.Turns:
    """Check supported requests, rights and internal topics whenever a check is due, in turns."""
    asked_ms = capability_store.cluster_capabilities(lease.cluster).asked_ms or 0
    while True:
        if loop.now_ms() - asked_ms >= _CAPABILITIES_EVERY_MS:
            look_over_cluster(lease)
            asked_ms = loop.now_ms()
        leases.renew(lease, seen_through_ms=loop.now_ms())
        yield _CAPABILITIES_TICK_S


def look_over_cluster(lease: leases.Lease) -> None:
    """Check the cluster's capabilities once, and save the result."""
    config = settings.FENCELINE.clusters[lease.cluster]
    checks, trouble = None, ""
    try:
        patient = Patient(config.properties, config.sees_all_transactional_ids, ANSWER_S, config.scope)
        checks = probe_capabilities(patient)
    except (AdminUnavailable, CannotTranslate) as blind:
        trouble = str(blind)
    capability_store.save_capabilities(lease, checks, trouble, now_ms=loop.now_ms())


POLLED = (
    Polled(
        "collectors.reconcile",
        reconcile_store.NAME,
        reconcile,
        lambda _: settings.FENCELINE.limits.reconcile_every_s,
    ),
    Polled("collectors.coordinators", coordinator_store.NAME, poll_coordinators),
    Polled(
        "collectors.groups",
        group_store.NAME,
        poll_groups,
        lambda _: settings.FENCELINE.limits.groups_every_s,
    ),
    Polled("collectors.capabilities", capability_store.NAME, check_capabilities),
)
