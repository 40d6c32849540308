"""What the REST APIs of engines reported, as several nouns of the API show it."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from dashboard.api.schemas import Instant
from dashboard.engines.queries import ReportedRun


class EngineApiErrorOut(Schema):
    """A REST API that cannot be read: since when, and what to do."""

    url: str
    since: Instant = Field(validation_alias="since_ms")
    error: str = Field(validation_alias="reason")


class FlinkOperatorOut(Schema):
    """Chained operators of a job; `state` is Flink's own word."""

    name: str
    parallelism: int
    state: str = Field(validation_alias="status")


class ReportedCheckpointOut(Schema):
    """A checkpoint that was completed, failed or restored from at `at`, by the JobManager's clock.

    `duration_ms` is null where it is not reported, `error` is "" where it did not fail.
    """

    checkpoint_id: int
    at: Instant | None = Field(validation_alias="at_ms")
    duration_ms: int | None
    error: str = Field(validation_alias="reason")


class FlinkRunOut(Schema):
    """A run of a job as its JobManager reported it at `reported_at`; `state` is Flink's own word.

    `checkpoints` counts those since its start by Flink's words. `completed`, `failed` and `restored` are the
    last of each, null for none; `ended_at` is null while it goes on.
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
    """A task; `state` is Connect's own word, `error` the first line of its trace where it has failed."""

    task: int = Field(validation_alias="number")
    state: str
    worker: str
    error: str = Field(validation_alias="reason")


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
