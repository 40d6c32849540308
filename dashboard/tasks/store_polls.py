"""Poll checkpoints of Spark and Flink, engines' REST APIs and the audit job's results, as Celery tasks."""

import time
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from django.conf import settings

from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from collectors.engines import EnginesCollector
from collectors.flink import FlinkCollector, ObservedFlinkJobs
from dashboard.config import CheckpointRoot, EngineEndpoint
from dashboard.engines import flink_store
from dashboard.engines import store as engine_store
from dashboard.history import audit_store
from dashboard.history.audits import read_audits
from dashboard.runtime import leases, loop
from dashboard.streaming import checkpoint_store
from dashboard.tasks.slice import ANSWER_S, RETRY_S, PerCluster, Polled, entries_of, report_failure

Observed = TypeVar("Observed", ObservedCheckpoints, ObservedFlinkJobs)

#: Seconds from poll to poll of audits, short enough that pages do not show the collector as late.
AUDITS_EVERY_S = 8.0

#: Collectors by cluster, kept from slice to slice with the checkpoints that they have read, or with their
#: pending requests.
checkpoint_collectors: dict[str, CheckpointsCollector] = {}
flink_collectors = PerCluster(lambda cluster: FlinkCollector(_flink_roots(cluster)))
engine_collectors = PerCluster(lambda cluster: EnginesCollector(_engine_apis(cluster)))


def poll_checkpoints(lease: leases.Lease) -> loop.Turns:
    """Poll checkpoints of streaming queries, in turns."""
    while True:
        collector = checkpoint_collectors.get(lease.cluster)
        if collector is None:
            collector = CheckpointsCollector(
                _checkpoint_roots(lease.cluster), checkpoint_store.known_folders(lease)
            )
            checkpoint_collectors[lease.cluster] = collector
        polled = yield from _poll_roots(lease, collector.wait_s, collector.poll)
        checkpoint_store.save_checkpoints(
            lease,
            polled.observations,
            polled.gone,
            gaps=polled.gaps,
            skipped=polled.skipped,
            now_ms=loop.now_ms(),
        )
        collector.mark_saved()


def poll_flink(lease: leases.Lease) -> loop.Turns:
    """Poll checkpoints of Flink jobs, in turns."""
    collector = flink_collectors[lease.cluster]
    while True:
        polled = yield from _poll_roots(lease, collector.wait_s, collector.poll)
        flink_store.save_jobs(
            lease, polled.observations, polled.searched, gaps=polled.gaps, now_ms=loop.now_ms()
        )


def poll_engines(lease: leases.Lease) -> loop.Turns:
    """Poll the REST APIs of engines, in turns."""
    groups = {api.url: api.group for api in _engine_apis(lease.cluster)}
    collector = engine_collectors[lease.cluster]
    while True:
        yield collector.wait_s()
        polled = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.engines_every_s)
        engine_store.save_engines(lease, polled.answers, groups, gaps=polled.gaps, now_ms=loop.now_ms())


def poll_audits(lease: leases.Lease) -> loop.Turns:
    """Poll the audit job's results, in turns."""
    while True:
        began = time.monotonic()
        polled = read_audits(settings.FENCELINE.audit_url, lease.cluster, patience_s=ANSWER_S)
        if (blind := polled.why_blind) is not None:
            report_failure(lease, f"{blind.why} {blind.remedy}")
        else:
            audit_store.save_audits(lease, polled, now_ms=loop.now_ms())
        yield max(0.0, AUDITS_EVERY_S - (time.monotonic() - began))


def _poll_roots(
    lease: leases.Lease, wait_s: Callable[[], float], poll: Callable[..., Observed]
) -> Generator[float, None, Observed]:
    """Poll folders of checkpoints, in turns, until a root can be read; save why none can."""
    while True:
        yield wait_s()
        polled = poll(loop.now_ms(), every_s=settings.FENCELINE.limits.checkpoints_every_s)
        if not polled.blind:
            return polled
        report_failure(lease, polled.blind)
        yield RETRY_S


def _checkpoint_roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.checkpoints, config.limits.checkpoints_every_s)


def _flink_roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.flink_checkpoints, config.limits.checkpoints_every_s)


def _engine_apis(cluster: str) -> Sequence[EngineEndpoint]:
    config = settings.FENCELINE
    return entries_of(cluster, config.engines, config.limits.engines_every_s)


checkpoints = Polled("collectors.checkpoints", checkpoint_store.NAME, poll_checkpoints, _checkpoint_roots)
audits = Polled("collectors.audits", audit_store.NAME, poll_audits, lambda _: settings.FENCELINE.audit_url)
POLLED = (
    checkpoints,
    Polled("collectors.flink", flink_store.NAME, poll_flink, _flink_roots),
    Polled("collectors.engines", engine_store.NAME, poll_engines, _engine_apis),
    audits,
)
