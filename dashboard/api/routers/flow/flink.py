"""`/api/v1/flink-jobs`: Flink jobs, the commits that their checkpoints decided, and the commits' fate."""

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import cursors, schemas
from dashboard.api.engine_schemas import EngineApiErrorOut, FlinkRunOut
from dashboard.api.schemas import OwnerOut
from dashboard.engines import flink_jobs as flink_queries
from dashboard.engines import queries as engines
from dashboard.models import FlinkCheckpointRecord, FlinkJob
from dashboard.runtime.collector_names import FLINK
from dashboard.system import owners
from fenceline.engines.flink.restore import (
    CommitFate,
    Lingering,
    ProducerPool,
    producer_pools,
    safe_parallelism,
)
from fenceline.facts import TransactionState

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

    @staticmethod
    def resolve_state(commit: flink_queries.CheckpointedCommit) -> str | None:
        return commit.row.state if commit.row else None

    @staticmethod
    def resolve_state_epoch(commit: flink_queries.CheckpointedCommit) -> int | None:
        return commit.row.producer_epoch if commit.row else None


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

    @staticmethod
    def resolve_safe_parallelism(pool: ProducerPool) -> int:
        return safe_parallelism(pool)


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

    @staticmethod
    def resolve_pending(row: FlinkCheckpointRecord) -> int:
        return len(row.committables)


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

    @staticmethod
    def resolve_owner(row: FlinkJob) -> object:
        return owners.find_owner(*row.prefixes, row.ident)


class FlinkJobList(schemas.Listing):
    items: list[FlinkJobOut]


class FlinkJobFilters(schemas.ListFilters, flink_queries.FlinkJobCriteria):
    """The query string of the list; `q` is a part of a prefix, a job's id or its folder."""


@router.get("", response=FlinkJobList, summary="List Flink jobs")
def list_flink_jobs(request: HttpRequest, wanted: Query[FlinkJobFilters]) -> dict[str, object]:
    """Jobs whose checkpoints are read, in the order in which they were first seen."""
    place = cursors.read_number(wanted.cursor, "flink-jobs") or 0
    rows = flink_queries.jobs_after(wanted, place=place, limit=wanted.limit + 1)
    return schemas.list_answer(*cursors.cut_page("flink-jobs", rows, wanted.limit), wanted.cluster, FLINK)


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
