"""`/api/v1/flink-jobs`: what the checkpoints of Flink's jobs decided to commit, and what became of it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import OwnerOut
from dashboard.api.engine_schemas import EngineApiErrorOut, FlinkRunOut
from dashboard.models import FlinkCheckpointRecord, FlinkJob
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import FLINK
from dashboard.streaming import engines
from dashboard.streaming import flink_jobs as flink_queries
from dashboard.system import owners
from fenceline.facts import TransactionState
from fenceline.flink.restore import CommitFate, Lingering

router = Router(tags=["flink"])

#: More pending commits of a checkpoint than these are not returned at once.
_MOST_COMMITS = 10_000


class FlinkJobOut(Schema):
    """A folder that holds a job's checkpoints, or a savepoint; null where its newest one cannot be read.

    `pending` counts what its newest checkpoint decided to commit, whatever has become of it. `completed_at`
    is by the store's clock. `prefixes` are those of transactional ids of its Kafka sinks.
    """

    cluster: str
    id: str
    path: str
    job_id: str
    prefixes: list[str]
    checkpoint_id: int | None
    completed_at: str | None
    is_savepoint: bool | None
    pending: int
    seen_at: str | None
    error: str
    rev: int


class CheckpointedCommitOut(Schema):
    """A transaction that the newest checkpoint decided to commit, as it recorded it.

    `fate`: `pending` is open as it was pre-committed, and a restore commits it; `lost` was aborted. `state`
    and `state_epoch` are its coordinator's newest, null where its id is not known. `expires_at`: when its
    coordinator aborts it. `checkpoint_id` is null where an older format does not record it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    checkpoint_id: int | None
    fate: CommitFate
    state: TransactionState | None
    state_epoch: int | None
    expires_at: str | None


class LingeringTransactionOut(Schema):
    """An open transaction of the job's prefixes that its newest checkpoint does not hold."""

    transactional_id: str
    kind: Lingering
    producer_id: int
    producer_epoch: int
    started_at: str | None


class FlinkCheckpointOut(Schema):
    """A completed checkpoint that is still there; `name` is "" for a savepoint that is the folder itself."""

    name: str
    checkpoint_id: int | None
    version: int | None
    is_savepoint: bool | None
    completed_at: str | None
    pending: int
    other_entries: int
    error: str


class FlinkJobDetail(FlinkJobOut):
    """A job with its checkpoints, the newest first, and what the newest decided if it can be read.

    `run` is what a JobManager reports of it, null where `rest` is not configured or no report has come.
    `api_errors` are JobManagers that cannot be read: the one of `run`, or any that may have the job.
    """

    owner: OwnerOut | None
    checkpoints: list[FlinkCheckpointOut]
    commits: list[CheckpointedCommitOut]
    other_open: list[LingeringTransactionOut]
    run: FlinkRunOut | None
    api_errors: list[EngineApiErrorOut]


class FlinkJobList(schemas.Listing):
    items: list[FlinkJobOut]


class FlinkJobFilters(schemas.ListFilters, flink_queries.FlinkJobCriteria):
    """The query string of the list; `q` is a part of a prefix, of a job's id or of its folder."""


@router.get("", response=FlinkJobList, summary="List Flink jobs")
def list_flink_jobs(request: HttpRequest, wanted: Query[FlinkJobFilters]) -> dict[str, object]:
    """Every job whose checkpoints are read, as it was first seen."""
    schemas.refuse_range(request, "Flink jobs")
    place = cursors.read_number(wanted.cursor, "flink-jobs") or 0
    found = flink_queries.jobs_after(wanted, place=place, limit=wanted.limit + 1)
    page, following = cursors.cut_page("flink-jobs", found, wanted.limit, cursors.by_key)
    return {
        "items": [FlinkJobOut(**_fields(row)) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, FLINK)),
    }


@router.get("/{cluster}/{text:job}", response=FlinkJobDetail, summary="One Flink job")
def get_flink_job(request: HttpRequest, cluster: schemas.Name, job: schemas.Name) -> FlinkJobDetail:
    """One job by its `id`."""
    row = flink_queries.find_job(cluster, job)
    if row is None:
        raise Http404(f"No Flink job '{job}' is known on cluster '{cluster}'.")
    checkpoints = flink_queries.checkpoints_of(row)
    newest = flink_queries.newest_checkpoint(checkpoints)
    commits = flink_queries.pending_commits(row, newest)[:_MOST_COMMITS]
    others = flink_queries.other_open_transactions(row, checkpoints)
    run, troubles = engines.job_report(row)
    return FlinkJobDetail(
        **_fields(row),
        owner=OwnerOut.from_owner(owners.find_owner(*row.prefixes, row.ident)),
        checkpoints=[_checkpoint(each) for each in checkpoints],
        commits=[_commit(each) for each in commits],
        other_open=[_other(each) for each in others],
        run=FlinkRunOut.from_run(run),
        api_errors=[error for each in troubles if (error := EngineApiErrorOut.from_trouble(each))],
    )


def _fields(row: FlinkJob) -> dict[str, Any]:
    return {
        "cluster": row.cluster.name,
        "id": row.ident,
        "path": row.path,
        "job_id": row.job_id,
        "prefixes": row.prefixes,
        "checkpoint_id": row.checkpoint_id,
        "completed_at": schemas.format_iso(row.completed_ms),
        "is_savepoint": row.is_savepoint,
        "pending": row.pending,
        "seen_at": schemas.format_iso(row.seen_ms),
        "error": row.error,
        "rev": row.rev,
    }


def _checkpoint(row: FlinkCheckpointRecord) -> FlinkCheckpointOut:
    return FlinkCheckpointOut(
        name=row.name,
        checkpoint_id=row.checkpoint_id,
        version=row.version,
        is_savepoint=row.is_savepoint,
        completed_at=schemas.format_iso(row.completed_ms),
        pending=len(row.committables),
        other_entries=row.other_entries,
        error=row.error,
    )


def _commit(each: flink_queries.CheckpointedCommit) -> CheckpointedCommitOut:
    held, now = each.committable, each.row
    return CheckpointedCommitOut(
        transactional_id=held.transactional_id,
        producer_id=held.producer_id,
        producer_epoch=held.producer_epoch,
        checkpoint_id=held.checkpoint_id,
        fate=each.fate,
        state=TransactionState(now.state) if now else None,
        state_epoch=now.producer_epoch if now else None,
        expires_at=schemas.format_iso(each.expires_ms),
    )


def _other(each: flink_queries.LingeringTransaction) -> LingeringTransactionOut:
    return LingeringTransactionOut(
        transactional_id=each.row.transactional_id,
        kind=each.kind,
        producer_id=each.row.producer_id,
        producer_epoch=each.row.producer_epoch,
        started_at=schemas.format_iso(each.row.started_ms),
    )
