"""What the REST APIs of engines reported, for pages and API: runs of Flink's jobs and connectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.models import ConnectorRecord, FlinkJob, FlinkRunRecord, GapRecord
from dashboard.runtime.collector_names import ENGINES
from fenceline.connect.connectors import ConnectorTask
from fenceline.connect.debezium import DebeziumTopics
from fenceline.flink.job_status import FlinkOperator, ReportedCheckpoint

#: How scopes of gaps begin that name an API.
_API = "api:"


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run of a Flink job, as its JobManager reported it."""

    row: FlinkRunRecord
    operators: Sequence[FlinkOperator]
    #: Checkpoints since it was started, by Flink's word.
    counts: Sequence[tuple[str, int]]
    completed: ReportedCheckpoint | None
    failed: ReportedCheckpoint | None
    restored: ReportedCheckpoint | None


@dataclass(frozen=True, slots=True)
class ReportedConnector:
    """A connector, as a worker reported it, and the task of it that is asked about."""

    row: ConnectorRecord
    tasks: Sequence[ConnectorTask]
    task: ConnectorTask | None
    debezium: DebeziumTopics | None = None


def api_troubles(cluster_id: int) -> Mapping[str, str]:
    """Return why APIs of a cluster's engines cannot be read now, by URL."""
    rows = GapRecord.objects.filter(cluster_id=cluster_id, source=ENGINES, until_ms=None)
    return {
        scope.removeprefix(_API): reason
        for scope, reason in rows.order_by("source", "scope").values_list("scope", "reason")
        if scope.startswith(_API)
    }


def run_of(job: FlinkJob) -> ReportedRun | None:
    """Return what a JobManager reported of a job, None where none did."""
    if not job.job_id:
        return None
    row = FlinkRunRecord.objects.filter(cluster_id=job.cluster_id, job_id=job.job_id).first()
    if row is None:
        return None
    found = row.checkpoints
    counts = sorted(found["counts"].items())
    last = (_checkpoint(found[kind]) for kind in ("completed", "failed", "restored"))
    return ReportedRun(row, [FlinkOperator(*each) for each in row.operators], counts, *last)


def connector_of(cluster_id: int, group: str, name: str, task: str) -> ReportedConnector | None:
    """Return what a worker of a group reported of a connector, None where none did.

    One of an API whose group is not configured counts where no other has the name.
    """
    rows = list(ConnectorRecord.objects.filter(cluster_id=cluster_id, name=name, group__in=[group, ""]))
    row = max(rows, key=lambda row: row.group == group, default=None)
    if row is None or (not row.group and len(rows) > 1):
        return None
    tasks = [ConnectorTask(*each) for each in row.tasks]
    own = next((each for each in tasks if str(each.number) == task), None)
    return ReportedConnector(row, tasks, own, None if row.debezium is None else DebeziumTopics(*row.debezium))


def _checkpoint(packed: Sequence[object] | None) -> ReportedCheckpoint | None:
    return None if packed is None else ReportedCheckpoint(*packed)  # type: ignore[arg-type]
