"""Reports of engines' REST APIs for pages and API: runs of Flink's jobs, and connectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from dashboard.models import ConnectorRecord, FlinkJob, FlinkRunRecord, GapRecord
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import ENGINES
from dashboard.runtime.criteria import Criteria, Name, Search
from fenceline.engines.status import (
    ConnectorTask,
    DebeziumTopics,
    EngineKind,
    FlinkOperator,
    ReportedCheckpoint,
)
from fenceline.kafka.producer_identity import ProducerIdentity

#: The beginning of the scopes of gaps about an API.
_API = "api:"


class ConnectorCriteria(Criteria):
    cluster: Name = ""
    group: Name = ""
    #: A part of its name or of its class.
    q: Search = ""


class ApiTrouble(NamedTuple):
    """An API that is unreadable now, with the start and the reason."""

    url: str
    since_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run of a Flink job, reported by its JobManager."""

    row: FlinkRunRecord
    operators: Sequence[FlinkOperator]
    #: Flink's counts of checkpoints since its start.
    counts: Sequence[tuple[str, int]]
    completed: ReportedCheckpoint | None
    failed: ReportedCheckpoint | None
    restored: ReportedCheckpoint | None


@dataclass(frozen=True, slots=True)
class ReportedConnector:
    """A connector reported by a worker, with the requested task."""

    row: ConnectorRecord
    tasks: Sequence[ConnectorTask]
    task: ConnectorTask | None
    debezium: DebeziumTopics | None = None
    #: None while its API answers.
    trouble: ApiTrouble | None = None


def api_troubles(cluster_id: int) -> Mapping[str, ApiTrouble]:
    """Return the unreadable APIs of a cluster's engines, by URL."""
    rows = GapRecord.objects.filter(cluster_id=cluster_id, source=ENGINES, until_ms=None)
    columns = rows.order_by("source", "scope").values_list("scope", "since_ms", "reason")
    return {
        (url := scope.removeprefix(_API)): ApiTrouble(url, since_ms, reason)
        for scope, since_ms, reason in columns
        if scope.startswith(_API)
    }


def job_report(job: FlinkJob) -> tuple[ReportedRun | None, Sequence[ApiTrouble]]:
    """Return a JobManager's report of a job, and the unreadable APIs: its own, or all candidates."""
    managers = [
        engine.url
        for engine in settings.FENCELINE.engines
        if engine.kind is EngineKind.FLINK and engine.cluster == job.cluster.name
    ]
    if not managers:
        return None, ()
    run = run_of(job)
    troubles = api_troubles(job.cluster_id)
    return run, [troubles[url] for url in ([run.row.url] if run else managers) if url in troubles]


def run_of(job: FlinkJob) -> ReportedRun | None:
    if not job.job_id:
        return None
    row = FlinkRunRecord.objects.filter(cluster_id=job.cluster_id, job_id=job.job_id).first()
    if row is None:
        return None
    checkpoints = row.checkpoints
    counts = sorted(checkpoints["counts"].items())
    packed_last = (checkpoints[kind] for kind in ("completed", "failed", "restored"))
    last = (None if packed is None else ReportedCheckpoint(*packed) for packed in packed_last)
    return ReportedRun(row, [FlinkOperator(*packed) for packed in row.operators], counts, *last)


def connector_of(cluster_id: int, group: str, name: str, task: str) -> ReportedConnector | None:
    """Return a worker's report of a group's connector and one of its tasks, None without one. A report from
    an API without a configured group counts if no other has the name.
    """
    rows = list(
        ConnectorRecord.objects.filter(
            cluster_id=cluster_id, name=name, group__in=[group, ""]
        ).select_related("cluster")
    )
    row = max(rows, key=lambda row: row.group == group, default=None)
    if row is None or (not row.group and len(rows) > 1):
        return None
    return _connector(row, api_troubles(cluster_id), task)


def producer_connector(cluster_id: int, producer: ProducerIdentity | None) -> ReportedConnector | None:
    """Return a worker's report of the connector whose task uses an id, None if unknown."""
    parts = dict(producer.parts) if producer else {}
    if producer is None or "connector" not in parts:
        return None
    return connector_of(cluster_id, producer.application, parts["connector"], parts["task"])


def connectors_after(wanted: ConnectorCriteria, *, place: int, limit: int) -> Sequence[ReportedConnector]:
    """Return the next connectors after a row's key, in the order in which they were first seen."""
    matching = visibility.rows_in(ConnectorRecord, wanted.cluster)
    if wanted.group:
        matching = matching.filter(group=wanted.group)
    if wanted.q:
        matching = matching.filter(Q(name__icontains=wanted.q) | Q(connector__icontains=wanted.q))
    rows = matching.filter(pk__gt=place).select_related("cluster").order_by("pk")[:limit]
    troubles = {cluster_id: api_troubles(cluster_id) for cluster_id in {row.cluster_id for row in rows}}
    return [_connector(row, troubles[row.cluster_id]) for row in rows]


def _connector(row: ConnectorRecord, troubles: Mapping[str, ApiTrouble], task: str = "") -> ReportedConnector:
    tasks = [ConnectorTask(*packed) for packed in row.tasks]
    asked = next((one for one in tasks if str(one.number) == task), None)
    debezium = None if row.debezium is None else DebeziumTopics(*row.debezium)
    return ReportedConnector(row, tasks, asked, debezium, troubles.get(row.url))
