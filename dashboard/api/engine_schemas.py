"""Schemas of reports from engines' REST APIs, shared by several routers."""

from ninja import Schema
from pydantic import Field

from dashboard.api.schemas import Instant
from dashboard.engines.queries import ReportedRun


class EngineApiErrorOut(Schema):
    """A REST API that cannot be read, with the start of the failure and its reason."""

    url: str
    since: Instant = Field(validation_alias="since_ms")
    error: str = Field(validation_alias="reason")


class FlinkOperatorOut(Schema):
    """Chained operators of a job; `state` is Flink's term."""

    name: str
    parallelism: int
    state: str = Field(validation_alias="status")


class ReportedCheckpointOut(Schema):
    """A completed, failed or restored checkpoint; `at` is by the JobManager's clock.

    `duration_ms` is null if not reported; `error` is "" unless the checkpoint failed.
    """

    checkpoint_id: int
    at: Instant | None = Field(validation_alias="at_ms")
    duration_ms: int | None
    error: str = Field(validation_alias="reason")


class FlinkRunOut(Schema):
    """A run of a job as its JobManager reported it at `reported_at`; `state` is Flink's term.

    `checkpoints` counts the run's checkpoints by Flink's terms. `completed`, `failed` and `restored` are the
    last checkpoint of each kind, or null. `ended_at` is null while the run goes on.
    """

    url: str = Field(validation_alias="row.url")
    version: str = Field(validation_alias="row.version")
    name: str = Field(validation_alias="row.name")
    state: str = Field(validation_alias="row.state")
    started_at: Instant | None = Field(validation_alias="row.started_ms")
    ended_at: Instant | None = Field(validation_alias="row.ended_ms")
    operators: list[FlinkOperatorOut]
    checkpoints: dict[str, int]
    completed: ReportedCheckpointOut | None
    failed: ReportedCheckpointOut | None
    restored: ReportedCheckpointOut | None
    reported_at: Instant | None = Field(validation_alias="row.seen_ms")

    @staticmethod
    def resolve_checkpoints(run: ReportedRun) -> dict[str, int]:
        return dict(run.counts)


class ConnectorTaskOut(Schema):
    """A task; `state` is Connect's term, `error` the first line of a failed task's trace."""

    task: int = Field(validation_alias="number")
    state: str
    worker: str
    error: str = Field(validation_alias="reason")


class DebeziumTopicsOut(Schema):
    """The topic names of a Debezium connector; "" for a topic that it does not use.

    `prefix` is also the topic of schema changes; the topics of tables begin with it.
    """

    prefix: str
    heartbeat: str
    transactions: str
    schema_history: str
    signals: str


class ConnectorOut(Schema):
    """A connector of Kafka Connect, as a worker reported it at `reported_at`; `state` is Connect's term.

    `group` is the group configured for its REST API, or "". `type` is `source` or `sink`. `debezium` is null
    unless it is a Debezium connector. `api_error` is null while the REST API answers; else the other fields
    are from its last report.
    """

    cluster: str = Field(validation_alias="row.cluster.name")
    group: str = Field(validation_alias="row.group")
    name: str = Field(validation_alias="row.name")
    type: str = Field(validation_alias="row.kind")
    connector_class: str = Field(validation_alias="row.connector")
    state: str = Field(validation_alias="row.state")
    worker: str = Field(validation_alias="row.worker")
    error: str = Field(validation_alias="row.reason")
    tasks: list[ConnectorTaskOut]
    debezium: DebeziumTopicsOut | None
    url: str = Field(validation_alias="row.url")
    version: str = Field(validation_alias="row.version")
    reported_at: Instant | None = Field(validation_alias="row.seen_ms")
    api_error: EngineApiErrorOut | None = Field(validation_alias="trouble")
