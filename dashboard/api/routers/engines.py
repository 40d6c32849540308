"""`/api/v1/flink-jobs` and `/api/v1/connectors`: Flink jobs, the commits that their checkpoints decided, and
the commits' fate; Kafka Connect's connectors and tasks; what engines' REST APIs report.
"""

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.schemas import Instant, OwnerOut
from dashboard.engines import flink_jobs as flink_queries
from dashboard.engines import queries as engines
from dashboard.engines.queries import ConnectorCriteria, connectors_after
from dashboard.models import FlinkJob
from dashboard.runtime.collector_names import ENGINES, FLINK
from dashboard.system import owners
from fenceline.engines.flink.restore import (
    CommitFate,
    Lingering,
    producer_pools,
    safe_parallelism,
)
from fenceline.facts import TransactionState


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

    resolve_checkpoints = staticmethod(lambda run: dict(run.counts))


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


router = Router(tags=["flink"])

#: The most pending commits of a checkpoint in one response.
_MOST_COMMITS = 10_000


class FlinkJobOut(Schema):
    """A folder with a job's checkpoints, or a savepoint; fields are null if the newest one cannot be read.

    `pending` counts the transactions that the newest checkpoint decided to commit, whatever their fate.
    `completed_at` is by the store's clock. `prefixes` are the transactional id prefixes of its Kafka sinks.
    """

    cluster: str = Field(validation_alias="cluster.name")
    id: str = Field(validation_alias="ident")
    path: str
    job_id: str
    prefixes: list[str]
    checkpoint_id: int | None
    completed_at: schemas.Instant | None = Field(validation_alias="completed_ms")
    is_savepoint: bool | None
    pending: int
    seen_at: schemas.Instant | None = Field(validation_alias="seen_ms")
    error: str
    rev: int


class CheckpointedCommitOut(Schema):
    """A transaction that the newest checkpoint decided to commit, as recorded in the checkpoint.

    `fate`: a `pending` transaction is still open and pre-committed, and a restore commits it; a `lost` one
    was aborted. `state` and `state_epoch` are the coordinator's newest, null if the id is unknown. At
    `expires_at` the coordinator aborts the transaction. `checkpoint_id` is null if an older format does not
    record it.
    """

    transactional_id: str = Field(validation_alias="committable.transactional_id")
    producer_id: int = Field(validation_alias="committable.producer_id")
    producer_epoch: int = Field(validation_alias="committable.producer_epoch")
    checkpoint_id: int | None = Field(validation_alias="committable.checkpoint_id")
    fate: CommitFate
    state: TransactionState | None
    state_epoch: int | None
    expires_at: schemas.Instant | None = Field(validation_alias="expires_ms")

    resolve_state = staticmethod(lambda commit: commit.row.state if commit.row else None)
    resolve_state_epoch = staticmethod(lambda commit: commit.row.producer_epoch if commit.row else None)


class LingeringTransactionOut(Schema):
    """An open transaction with one of the job's prefixes that is not in its newest checkpoint.

    A restore of the older sink aborts only the ids in its producer pools.
    """

    transactional_id: str = Field(validation_alias="row.transactional_id")
    kind: Lingering
    is_aborted_by_restore: bool
    producer_id: int = Field(validation_alias="row.producer_id")
    producer_epoch: int = Field(validation_alias="row.producer_epoch")
    started_at: schemas.Instant | None = Field(validation_alias="row.started_ms")


class ProducerPoolOut(Schema):
    """The ids of an older sink, `FlinkKafkaProducer`; a restore aborts open transactions of these ids only.

    The ids in `writing` were open when the checkpoint was taken. `next_free` is the number of the next id. A
    start without a checkpoint needs `safe_parallelism` subtasks to abort all of them.
    """

    prefix: str
    subtasks: int
    ids: list[str]
    writing: list[str]
    next_free: int | None
    safe_parallelism: int

    resolve_safe_parallelism = staticmethod(lambda pool: safe_parallelism(pool))


class FlinkCheckpointOut(Schema):
    """A completed checkpoint that still exists; `name` is "" for a savepoint that is the folder itself."""

    name: str
    checkpoint_id: int | None
    version: int | None
    is_savepoint: bool | None
    completed_at: schemas.Instant | None = Field(validation_alias="completed_ms")
    pending: int
    other_entries: int
    error: str

    resolve_pending = staticmethod(lambda row: len(row.committables))


class FlinkJobDetail(FlinkJobOut):
    """A job with its checkpoints, newest first, and the decisions of the newest one if it can be read.

    `run` is the JobManager's report, null if `rest` is not configured or no report was received.
    `api_errors` are JobManagers that cannot be read: the one of `run`, or any that may run the job.
    """

    owner: OwnerOut | None
    checkpoints: list[FlinkCheckpointOut]
    commits: list[CheckpointedCommitOut]
    other_open: list[LingeringTransactionOut]
    producer_pools: list[ProducerPoolOut]
    run: FlinkRunOut | None
    api_errors: list[EngineApiErrorOut]

    resolve_owner = staticmethod(lambda row: owners.find_owner(*row.prefixes, row.ident))


class FlinkJobFilters(schemas.ListFilters, flink_queries.FlinkJobCriteria):
    """The query string of the list; `q` is a part of a prefix, a job's id or its folder."""


@router.get("", response=schemas.list_of(FlinkJobOut), summary="List Flink jobs")
def list_flink_jobs(request: HttpRequest, wanted: Query[FlinkJobFilters]) -> dict[str, object]:
    """Jobs whose checkpoints are read, in the order in which they were first seen."""
    place = schemas.read_number(wanted.cursor, "flink-jobs") or 0
    rows = flink_queries.jobs_after(wanted, place=place, limit=wanted.limit + 1)
    return schemas.list_answer(*schemas.cut_page("flink-jobs", rows, wanted.limit), wanted.cluster, FLINK)


@router.get("/{cluster}/{text:job}", response=FlinkJobDetail, summary="One Flink job")
def get_flink_job(request: HttpRequest, cluster: schemas.Name, job: schemas.Name) -> FlinkJob:
    """Return a job by its `id`."""
    unknown = f"No Flink job '{job}' is known on cluster '{cluster}'."
    row = schemas.known(flink_queries.find_job(cluster, job), unknown)
    checkpoints = flink_queries.checkpoints_of(row)
    newest = flink_queries.newest_checkpoint(checkpoints)
    run, troubles = engines.job_report(row)
    return schemas.add_fields(
        row,
        checkpoints=checkpoints,
        commits=flink_queries.pending_commits(row, newest)[:_MOST_COMMITS],
        other_open=flink_queries.other_open_transactions(row, checkpoints),
        producer_pools=producer_pools(flink_queries.writers_of(newest) if newest else ()),
        run=run,
        api_errors=troubles,
    )


connectors_router = Router(tags=["connectors"])


class ConnectorFilters(schemas.ListFilters, ConnectorCriteria):
    """The query string of the list; `q` is a part of a connector's name or class."""


@connectors_router.get("", response=schemas.list_of(ConnectorOut), summary="List connectors of Kafka Connect")
def list_connectors(request: HttpRequest, wanted: Query[ConnectorFilters]) -> dict[str, object]:
    """Connectors reported by the configured `[[connect]]` APIs, in the order in which they were first seen.

    An API that does not answer is also a gap with the scope `api:URL`.
    """
    place = schemas.read_number(wanted.cursor, "connectors") or 0
    connectors = connectors_after(wanted, place=place, limit=wanted.limit + 1)
    page = schemas.cut_page("connectors", connectors, wanted.limit, lambda connector: (connector.row.pk,))
    return schemas.list_answer(*page, wanted.cluster, ENGINES)
