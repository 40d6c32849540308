"""Flink's jobs for pages, API and plans: their checkpoints, and what became of these decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from django.db.models import F, Q, QuerySet
from django.db.models.expressions import OrderBy

from dashboard.models import IS_OPEN, FlinkCheckpointRecord, FlinkJob, Transaction
from dashboard.runtime.criteria import Criteria, Name, Sorted
from dashboard.runtime.paging import Number, Page, page_of
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.flink.records import Committable, TransactionOwnership, WriterState
from fenceline.flink.restore import (
    CommitFate,
    CoordinatorView,
    Lingering,
    OpenOfPrefix,
    commit_fate,
    decision_sentence,
    is_of_prefix,
    lingering_kind,
)
from fenceline.formatting import format_clock
from fenceline.kafka.transactional_ids import key_of
from fenceline.plans.flink_commits import FlinkHold

#: A job that was polled so long ago may have gone on since.
_OUTDATED_MS = 60_000
#: Ids in one question: SQLite takes 32,766 parameters.
_AT_ONCE = 5_000
#: So many open transactions of a job's prefixes are shown.
MOST_OPEN = 1_000


class FlinkJobCriteria(Criteria):
    """Which jobs a list is asked for."""

    cluster: Name = ""
    #: A part of a prefix, a job's id or its folder.
    q: Name = ""


class SortedFlinkJobs(Sorted, FlinkJobCriteria):
    """Jobs in an order."""

    sort: Literal["age", "name", "pending"] = "age"


@dataclass(frozen=True, slots=True)
class CheckpointedCommit:
    """A transaction that a checkpoint decided to commit, and what has become of it."""

    committable: Committable
    fate: CommitFate
    #: The coordinator's newest state of its id; None where it is not known.
    row: Transaction | None

    @property
    def expires_ms(self) -> int | None:
        """Return when its coordinator aborts it; None where it is not open as it was."""
        if self.fate is not CommitFate.PENDING or self.row is None or self.row.started_ms is None:
            return None
        return self.row.started_ms + self.row.timeout_ms


@dataclass(frozen=True, slots=True)
class LingeringTransaction:
    """An open transaction of a job's prefix that its newest checkpoint does not hold."""

    row: Transaction
    kind: Lingering


def job_page(wanted: SortedFlinkJobs, *, page: Number, size: int) -> Page[FlinkJob]:
    """Return one page of the jobs that `wanted` describes."""
    return page_of(_filtered(wanted).select_related("cluster").order_by(*_order(wanted)), page, size)


def jobs_after(wanted: FlinkJobCriteria, *, place: int, limit: int) -> Sequence[FlinkJob]:
    """Return the next jobs behind a row's key, in the order in which they were first seen."""
    return list(_filtered(wanted).filter(pk__gt=place).select_related("cluster").order_by("pk")[:limit])


def job_count(cluster: str = "") -> int:
    """Return how many jobs are known."""
    return _all(cluster).count()


def find_job(cluster: str, ident: str) -> FlinkJob | None:
    """Return one job by its identity, None where it is not known."""
    return _all(cluster).select_related("cluster").filter(ident=ident).first()


def checkpoints_of(job: FlinkJob) -> Sequence[FlinkCheckpointRecord]:
    """Return a job's checkpoints, the newest first."""
    rows = FlinkCheckpointRecord.objects.filter(job=job)
    return list(rows.order_by(OrderBy(F("completed_ms"), descending=True, nulls_last=True), "-checkpoint_id"))


def newest_checkpoints(jobs: Sequence[FlinkJob]) -> Mapping[int, FlinkCheckpointRecord]:
    """Return each job's newest checkpoint that could be read, by the job's key."""
    rows = FlinkCheckpointRecord.objects.filter(job__in=[job.pk for job in jobs], error="")
    found: dict[int, FlinkCheckpointRecord] = {}
    for row in rows.order_by(OrderBy(F("completed_ms"), nulls_first=True), "checkpoint_id"):
        found[row.job_id] = row
    return found


def newest_checkpoint(checkpoints: Sequence[FlinkCheckpointRecord]) -> FlinkCheckpointRecord | None:
    """Return the newest of a job's checkpoints; None where it cannot be read: no older one stands for it."""
    return checkpoints[0] if checkpoints and not checkpoints[0].error else None


def committables_of(row: FlinkCheckpointRecord) -> Sequence[Committable]:
    """Return what a checkpoint decided to commit."""
    return [Committable(*each) for each in row.committables]


def writers_of(row: FlinkCheckpointRecord) -> Sequence[WriterState]:
    """Return the states of a checkpoint's writers."""
    return [
        WriterState(prefix, subtask, subtasks, TransactionOwnership(ownership), tuple(names), operator)
        for prefix, subtask, subtasks, ownership, names, operator in row.writers
    ]


def pending_commits(job: FlinkJob, row: FlinkCheckpointRecord | None) -> Sequence[CheckpointedCommit]:
    """Return what has become of the transactions that a job's checkpoint holds, the worst first."""
    if row is None:
        return ()
    committables = committables_of(row)
    known = _transactions(job.cluster_id, [each.transactional_id for each in committables])
    rows = [known.get(each.transactional_id) for each in committables]
    found = [
        CheckpointedCommit(each, commit_fate(each, _view(now)), now)
        for each, now in zip(committables, rows, strict=True)
    ]
    order = list(CommitFate)
    return sorted(found, key=lambda each: (order.index(each.fate), each.committable.transactional_id))


def fates_by_job(jobs: Sequence[FlinkJob]) -> Mapping[int, Sequence[CommitFate]]:
    """Return what has become of what each job's newest checkpoint decided to commit, by the job's key."""
    newest = newest_checkpoints([job for job in jobs if job.checkpoint_id is not None])
    held = {job.pk: committables_of(newest[job.pk]) if job.pk in newest else () for job in jobs}
    found: dict[int, Sequence[CommitFate]] = {job.pk: () for job in jobs}
    for cluster_id in {job.cluster_id for job in jobs}:
        mine = {job.pk: held[job.pk] for job in jobs if job.cluster_id == cluster_id}
        names = {each.transactional_id for some in mine.values() for each in some}
        known = _transactions(cluster_id, sorted(names))
        for pk, some in mine.items():
            found[pk] = [commit_fate(each, _view(known.get(each.transactional_id))) for each in some]
    return found


def other_open_transactions(
    job: FlinkJob, rows: Sequence[FlinkCheckpointRecord]
) -> Sequence[LingeringTransaction]:
    """Return open transactions of a job's prefixes that its newest checkpoint does not hold.

    `rows` are its checkpoints, the newest first; none where the newest could not be read.
    """
    newest = newest_checkpoint(rows)
    if newest is None:
        return ()
    held = {each.transactional_id for each in committables_of(newest)}
    completed = [each.completed_ms for each in rows if each.completed_ms is not None]
    found = []
    for row, prefix in _open_of(job):
        if row.transactional_id not in held:
            each = OpenOfPrefix(row.transactional_id, row.started_ms)
            ownerships = _ownerships(newest, prefix)
            kind = lingering_kind(each, prefix, ownerships, newest.checkpoint_id or 0, completed)
            found.append(LingeringTransaction(row, kind))
    return found


def holds_of(cluster_id: int, names: Collection[str], *, now_ms: int) -> Mapping[str, FlinkHold]:
    """Return what checkpoints record about transactional ids (escaped text), of those of Flink's jobs.

    Of several jobs with an id's prefix the one whose newest checkpoint holds the id counts, else the newest.
    """
    jobs = list(FlinkJob.objects.filter(cluster_id=cluster_id).exclude(prefixes=[]))
    of_name = {
        name: those for name in names if (those := [job for job in jobs if is_of_prefix(name, job.prefixes)])
    }
    wanted = {job.pk: job for those in of_name.values() for job in those}
    newest = newest_checkpoints(list(wanted.values()))
    held = {pk: {each.transactional_id: each for each in committables_of(row)} for pk, row in newest.items()}
    completions = _completions(list(wanted.values()))
    return {name: _hold(name, those, newest, held, completions, now_ms) for name, those in of_name.items()}


@dataclass(frozen=True, slots=True)
class FlinkDecision:
    """What the checkpoints of the job behind a transactional id record about it."""

    hold: FlinkHold
    #: What has become of it; None where the newest checkpoint holds no transaction of the id.
    fate: CommitFate | None

    @property
    def sentence(self) -> str:
        """Return that in words."""
        if self.hold.trouble:
            return f"What its checkpoints decided is not known: {self.hold.trouble}."
        return decision_sentence(self.hold.checkpoint, self.fate)


def decision_of(row: Transaction, *, now_ms: int) -> FlinkDecision | None:
    """Return what a Flink job decided about an id's transaction; None for an id of no job."""
    hold = holds_of(row.cluster_id, [row.transactional_id], now_ms=now_ms).get(row.transactional_id)
    if hold is None:
        return None
    return FlinkDecision(
        hold, None if hold.committable is None else commit_fate(hold.committable, _view(row))
    )


def _hold(
    name: str,
    jobs: Sequence[FlinkJob],
    newest: Mapping[int, FlinkCheckpointRecord],
    held: Mapping[int, Mapping[str, Committable]],
    completions: Mapping[int, Sequence[int]],
    now_ms: int,
) -> FlinkHold:
    by_age = sorted(jobs, key=lambda job: job.completed_ms or 0, reverse=True)
    job = next((job for job in by_age if name in held.get(job.pk, ())), by_age[0])
    checkpoint = newest.get(job.pk)
    prefix = next(each for each in job.prefixes if is_of_prefix(name, [each]))
    later = [
        each
        for each in by_age
        if each.pk != job.pk and not each.is_savepoint and (each.completed_ms or 0) > (job.completed_ms or 0)
    ]
    return FlinkHold(
        job.ident,
        str(job),
        (checkpoint.name or job.ident) if checkpoint else job.ident,
        checkpoint.checkpoint_id if checkpoint else None,
        checkpoint.completed_ms if checkpoint else None,
        checkpoint.is_savepoint if checkpoint else None,
        held.get(job.pk, {}).get(name),
        _trouble(job, now_ms),
        later[0].ident if later else "",
        prefix,
        _ownerships(checkpoint, prefix) if checkpoint else frozenset(),
        tuple(completions.get(job.pk, ())),
    )


def _ownerships(row: FlinkCheckpointRecord, prefix: str) -> frozenset[TransactionOwnership]:
    return frozenset(each.ownership for each in writers_of(row) if each.prefix == prefix)


def _completions(jobs: Sequence[FlinkJob]) -> Mapping[int, Sequence[int]]:
    """Return when each job's checkpoints were completed, the newest first, by the job's key."""
    rows = FlinkCheckpointRecord.objects.filter(job__in=[job.pk for job in jobs], completed_ms__isnull=False)
    found: dict[int, list[int]] = {}
    for pk, completed_ms in rows.order_by("-completed_ms").values_list("job_id", "completed_ms"):
        found.setdefault(pk, []).append(completed_ms or 0)
    return found


def _trouble(job: FlinkJob, now_ms: int) -> str:
    """Return why what is stored of a job may not be so any more, as a clause."""
    if job.error:
        return job.error
    if now_ms - job.seen_ms > _OUTDATED_MS:
        return (
            f"its checkpoints were polled last at {format_clock(job.seen_ms)}; see System for the collector"
        )
    return ""


def _open_of(job: FlinkJob) -> Iterator[tuple[Transaction, str]]:
    """Yield open transactions whose ids begin with a prefix of a job's sinks, each with that prefix."""
    for prefix in job.prefixes:
        rows = Transaction.objects.filter(
            IS_OPEN, cluster_id=job.cluster_id, transactional_id__startswith=f"{prefix}-"
        ).select_related("cluster")
        found = (
            row for row in rows.order_by("transactional_id") if is_of_prefix(row.transactional_id, [prefix])
        )
        for row in islice(found, MOST_OPEN):
            yield row, prefix


def _transactions(cluster_id: int, names: Sequence[str]) -> Mapping[str, Transaction]:
    keys = {key_of(text.unescape_text(name)): name for name in names}
    wanted = list(keys)
    return {
        keys[bytes(row.key)]: row
        for start in range(0, len(wanted), _AT_ONCE)
        for row in Transaction.objects.filter(
            cluster_id=cluster_id, key__in=wanted[start : start + _AT_ONCE]
        ).select_related("cluster")
    }


def _view(row: Transaction | None) -> CoordinatorView | None:
    if row is None:
        return None
    return CoordinatorView(TransactionState(row.state), row.producer_id, row.producer_epoch)


def _all(cluster: str) -> QuerySet[FlinkJob]:
    rows = FlinkJob.objects.filter(cluster__configured=True)
    return rows.filter(cluster__name=cluster) if cluster else rows


def _filtered(wanted: FlinkJobCriteria) -> QuerySet[FlinkJob]:
    rows = _all(wanted.cluster)
    if not wanted.q:
        return rows
    return rows.filter(
        Q(path__icontains=wanted.q) | Q(ident__icontains=wanted.q) | Q(prefixes__icontains=wanted.q)
    )


def _order(wanted: SortedFlinkJobs) -> Sequence[OrderBy]:
    chosen = {"age": "completed_ms", "name": "path", "pending": "pending"}[wanted.sort]
    # The youngest was completed last.
    descending = wanted.descending != (wanted.sort == "age")
    first = OrderBy(F(chosen), descending=descending, nulls_last=True)
    return [first, OrderBy(F("ident")), OrderBy(F("cluster_id"))]
