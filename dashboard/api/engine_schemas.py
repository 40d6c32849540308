"""What the REST APIs of engines reported, as several nouns of the API show it."""

from __future__ import annotations

from ninja import Schema

from dashboard.api.schemas import format_iso
from dashboard.streaming.engines import ApiTrouble, ReportedConnector, ReportedRun
from fenceline.flink.job_status import ReportedCheckpoint


class EngineApiErrorOut(Schema):
    """A REST API that cannot be read: since when, and what to do."""

    url: str
    since: str
    error: str

    @classmethod
    def from_trouble(cls, trouble: ApiTrouble | None) -> EngineApiErrorOut | None:
        """Return it as its schema, None for none."""
        if trouble is None:
            return None
        return cls(url=trouble.url, since=format_iso(trouble.since_ms) or "", error=trouble.reason)


class FlinkOperatorOut(Schema):
    """Chained operators of a job; `state` is Flink's own word."""

    name: str
    parallelism: int
    state: str


class ReportedCheckpointOut(Schema):
    """A checkpoint that was completed, failed or restored from at `at`, by the JobManager's clock.

    `duration_ms` is null where it is not reported, `error` is "" where it did not fail.
    """

    checkpoint_id: int
    at: str | None
    duration_ms: int | None
    error: str


class FlinkRunOut(Schema):
    """A run of a job as its JobManager reported it at `reported_at`; `state` is Flink's own word.

    `checkpoints` counts those since its start by Flink's words. `completed`, `failed` and `restored` are the
    last of each, null for none; `ended_at` is null while it goes on.
    """

    url: str
    version: str
    name: str
    state: str
    started_at: str | None
    ended_at: str | None
    operators: list[FlinkOperatorOut]
    checkpoints: dict[str, int]
    completed: ReportedCheckpointOut | None
    failed: ReportedCheckpointOut | None
    restored: ReportedCheckpointOut | None
    reported_at: str | None

    @classmethod
    def from_run(cls, run: ReportedRun | None) -> FlinkRunOut | None:
        """Return it as its schema, None for none."""
        if run is None:
            return None
        return cls(
            url=run.row.url,
            version=run.row.version,
            name=run.row.name,
            state=run.row.state,
            started_at=format_iso(run.row.started_ms),
            ended_at=format_iso(run.row.ended_ms),
            operators=[
                FlinkOperatorOut(name=each.name, parallelism=each.parallelism, state=each.status)
                for each in run.operators
            ],
            checkpoints=dict(run.counts),
            completed=_checkpoint(run.completed),
            failed=_checkpoint(run.failed),
            restored=_checkpoint(run.restored),
            reported_at=format_iso(run.row.seen_ms),
        )


class ConnectorTaskOut(Schema):
    """A task; `state` is Connect's own word, `error` the first line of its trace where it has failed."""

    task: int
    state: str
    worker: str
    error: str


class DebeziumTopicsOut(Schema):
    """How the topics of a Debezium connector are called; "" where it has none.

    `prefix` is also the topic of schema changes; those of tables begin with it.
    """

    prefix: str
    heartbeat: str
    transactions: str
    schema_history: str
    signals: str


class ConnectorOut(Schema):
    """A connector of Kafka Connect, as a worker reported it at `reported_at`; `state` is Connect's own word.

    `group` is the configured one of the API, "" where none is. `type` is `source` or `sink`. `debezium` is
    null for every other class. `api_error` is null while its API answers; else all is as it was reported
    last.
    """

    cluster: str
    group: str
    name: str
    type: str
    connector_class: str
    state: str
    worker: str
    error: str
    tasks: list[ConnectorTaskOut]
    debezium: DebeziumTopicsOut | None
    url: str
    version: str
    reported_at: str | None
    api_error: EngineApiErrorOut | None

    @classmethod
    def from_connector(cls, found: ReportedConnector) -> ConnectorOut:
        """Return it as its schema."""
        row = found.row
        return cls(
            cluster=row.cluster.name,
            group=row.group,
            name=row.name,
            type=row.kind,
            connector_class=row.connector,
            state=row.state,
            worker=row.worker,
            error=row.reason,
            tasks=[
                ConnectorTaskOut(task=each.number, state=each.state, worker=each.worker, error=each.reason)
                for each in found.tasks
            ],
            debezium=DebeziumTopicsOut(**found.debezium._asdict()) if found.debezium else None,
            url=row.url,
            version=row.version,
            reported_at=format_iso(row.seen_ms),
            api_error=EngineApiErrorOut.from_trouble(found.trouble),
        )


def _checkpoint(found: ReportedCheckpoint | None) -> ReportedCheckpointOut | None:
    if found is None:
        return None
    return ReportedCheckpointOut(
        checkpoint_id=found.checkpoint_id,
        at=format_iso(found.at_ms),
        duration_ms=found.duration_ms,
        error=found.reason,
    )
