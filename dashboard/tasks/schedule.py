"""The tasks of the dashboard itself (evaluation, alerts, deliveries, actions, retention); what starts all."""

import time

from celery import shared_task
from django.conf import settings

from dashboard.actions import execute, follow_up
from dashboard.alerts import deliver
from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.runtime import collector_names, leases, loop, retention
from dashboard.tasks import polls, recoveries, tails
from dashboard.tasks.slice import PerCluster, Polled, each_second

#: Seconds between two portions while there are rows to prune, and while there are none.
_BETWEEN_PORTIONS_S = 0.1
_IDLE_S = 30.0
#: Seconds between two polls for due messages: per cluster, at most, and while messages are being sent; and
#: between two renewals of the lease.
_POLL_S, _MOST_IDLE_S, _BUSY_S, _RENEW_S = 0.5, 3.0, 0.1, 1.0
#: Senders by cluster, kept from slice to slice, because a slow receiver may outlast a slice.
_senders = PerCluster(lambda _: deliver.Sender())
#: The evaluator's readers by cluster, kept from slice to slice with their cached data.
_readers = PerCluster(SnapshotReader)


@shared_task(name=execute.TASK)
def execute_action(number: int, token: str) -> None:
    """Execute a confirmed plan, once: a repeated message does nothing."""
    execute.run_action(number, token)


@shared_task(name="dashboard.export_metrics")
def export_metrics() -> None:
    """Push the metrics by OTLP; beat sends this task only if an endpoint is configured."""
    # Imported here, because its libraries take memory that most workers never need.
    from dashboard.system.metrics_export import export_families

    export_families(loop.now_ms())


def _follow(lease: leases.Lease) -> loop.Turns:
    try:
        yield from each_second(lambda: follow_up.follow_actions(lease, now_ms=loop.now_ms()))
    finally:
        follow_up.close_connections(lease.cluster)


def _deliver(lease: leases.Lease) -> loop.Turns:
    sender = _senders[lease.cluster]
    renewed = 0.0
    try:
        while True:
            if time.monotonic() > renewed + _RENEW_S:
                leases.renew(lease, seen_through_ms=loop.now_ms())
                renewed = time.monotonic()
            # The senders of all clusters poll for the same messages.
            idle_s = min(_POLL_S * len(settings.FENCELINE.clusters), _MOST_IDLE_S)
            yield _BUSY_S if sender.start_due() else idle_s
    finally:
        if loop.stop_requested.is_set():
            _senders.pop(lease.cluster, None)
            sender.close()


def _prune(lease: leases.Lease) -> loop.Turns:
    while True:
        pruned = retention.prune(lease, settings.FENCELINE.retention, now_ms=loop.now_ms())
        yield _BETWEEN_PORTIONS_S if pruned else _IDLE_S


def _alert(lease: leases.Lease) -> loop.Turns:
    return each_second(lambda: evaluate_alerts.evaluate_alerts(lease, now_ms=loop.now_ms()))


def _tick(lease: leases.Lease) -> loop.Turns:
    reader = _readers[lease.cluster]
    return each_second(lambda: evaluate_rules.evaluate_cluster(lease, reader, now_ms=loop.now_ms()))


#: Sends due messages to channels, of any cluster.
deliveries = Polled("dashboard.deliver", collector_names.DELIVERIES, _deliver, ttl=leases.TTL, asks=False)
JUDGES = (
    Polled("dashboard.judge", evaluate_rules.NAME, _tick, ttl=leases.TTL, asks=False),
    Polled("dashboard.alert", evaluate_alerts.NAME, _alert, ttl=leases.TTL, asks=False),
    Polled("dashboard.prune", retention.NAME, _prune, asks=False),
    deliveries,
    Polled("dashboard.follow_actions", follow_up.NAME, _follow, ttl=follow_up.TTL),
)
_ALL = (
    tails.tailed, tails.tailed_offsets, polls.polled, recoveries.polled, *polls.POLLED, *JUDGES,
)  # fmt: skip


@shared_task(name="collectors.start_missing")
def start_missing() -> None:
    """Send a first slice for every collector without a valid lease."""
    loop.start_missing(_ALL)
