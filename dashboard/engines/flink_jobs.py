"""Flink's jobs for pages, API and plans: their checkpoints, and the fates of the decided transactions."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from django.db.models import F, Q, QuerySet
from django.db.models.expressions import OrderBy

from dashboard.models import IS_OPEN, FlinkCheckpointRecord, FlinkJob, Transaction
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Criteria, Name, Number, Page, Search, Sorted, page_of
from dashboard.runtime.sql import in_portions
from fenceline.decode.typed import read_json
from fenceline.engines.flink.records import Committable, TransactionOwnership, WriterState
from fenceline.engines.flink.restore import (
    CommitFate,
    CoordinatorView,
    Lingering,
    commit_fate,
    decision_sentence,
    is_of_prefix,
    is_pooled,
    lingering_kind,
)
from fenceline.facts import TransactionState
from fenceline.formatting import format_clock
from fenceline.grouping import grouped
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.plans.flink_commits import FlinkHold

#: A job whose last poll is older than this may have changed since.
_OUTDATED_MS = 60_000
#: Maximum shown open transactions of a job's prefixes.
MOST_OPEN = 1_000


class FlinkJobCriteria(Criteria):
    cluster: Name = ""
    #: A part of a prefix, a job's id or its folder.
    q: Search = ""


class SortedFlinkJobs(Sorted, FlinkJobCriteria):
    """The filter and the order of a list of jobs."""

    sort: Literal["age", "name", "pending"] = "age"


@dataclass(frozen=True, slots=True)
class CheckpointedCommit:
    """A transaction that a checkpoint decided to commit, and its fate."""

    committable: Committable
    fate: CommitFate
    #: The coordinator's newest state of its id; None if unknown.
    row: Transaction | None

    @property
    def expires_ms(self) -> int | None:
        """Return when its coordinator aborts it; None if it is not open as decided."""
        if self.fate is not CommitFate.PENDING or self.row is None or self.row.started_ms is None:
            return None
        return self.row.started_ms + self.row.timeout_ms


@dataclass(frozen=True, slots=True)
class LingeringTransaction:
    """An open transaction of a job's prefix that its newest checkpoint does not hold."""

    row: Transaction
    kind: Lingering
    #: False if its id is in no pool of the older sink: it stays open until its timeout.
    is_aborted_by_restore: bool = True


def job_page(wanted: SortedFlinkJobs, *, page: Number, size: int) -> Page[FlinkJob]:
    column = {"age": "completed_ms", "name": "path", "pending": "pending"}[wanted.sort]
    # The youngest checkpoint was completed last.
    descending = wanted.descending != (wanted.sort == "age")
    first = OrderBy(F(column), descending=descending, nulls_last=True)
    rows = _filtered(wanted).select_related("cluster").order_by(first, "ident", "cluster_id")
    return page_of(rows, page, size)


def jobs_after(wanted: FlinkJobCriteria, *, place: int, limit: int) -> Sequence[FlinkJob]:
    """Return the next jobs after a row's key, in the order in which they were first seen."""
    return list(_filtered(wanted).filter(pk__gt=place).select_related("cluster").order_by("pk")[:limit])


def job_count(cluster: str) -> int:
    return visibility.rows_in(FlinkJob, cluster).count()


def find_job(cluster: str, ident: str) -> FlinkJob | None:
    return visibility.rows_in(FlinkJob, cluster).select_related("cluster").filter(ident=ident).first()


def checkpoints_of(job: FlinkJob) -> Sequence[FlinkCheckpointRecord]:
    """Return a job's checkpoints, newest first."""
    rows = FlinkCheckpointRecord.objects.filter(job=job)
    return list(rows.order_by(OrderBy(F("completed_ms"), descending=True, nulls_last=True), "-checkpoint_id"))


def newest_checkpoints(jobs: Sequence[FlinkJob]) -> Mapping[int, FlinkCheckpointRecord]:
    """Return each job's newest readable checkpoint, by the job's key."""
    rows = FlinkCheckpointRecord.objects.filter(job__in=[job.pk for job in jobs], error="")
    newest: dict[int, FlinkCheckpointRecord] = {}
    for row in rows.order_by(OrderBy(F("completed_ms"), nulls_first=True), "checkpoint_id"):
        newest[row.job_id] = row
    return newest


def newest_checkpoint(checkpoints: Sequence[FlinkCheckpointRecord]) -> FlinkCheckpointRecord | None:
    """Return a job's newest checkpoint; None if it cannot be read, even if an older one can."""
    return checkpoints[0] if checkpoints and not checkpoints[0].error else None


def committables_of(row: FlinkCheckpointRecord) -> Sequence[Committable]:
    """Return the transactions that a checkpoint decided to commit."""
    return [Committable(*packed) for packed in row.committables]


def writers_of(row: FlinkCheckpointRecord) -> Sequence[WriterState]:
    return read_json(tuple[WriterState, ...], row.writers)


def pending_commits(job: FlinkJob, row: FlinkCheckpointRecord | None) -> Sequence[CheckpointedCommit]:
    """Return the fates of the transactions in a job's checkpoint, worst first."""
    if row is None:
        return ()
    committables = committables_of(row)
    known = _transactions(job.cluster_id, [committable.transactional_id for committable in committables])
    rows = [known.get(committable.transactional_id) for committable in committables]
    fates = _fates(row, known)
    commits = [
        CheckpointedCommit(committable, fate, now)
        for committable, fate, now in zip(committables, fates, rows, strict=True)
    ]
    order = list(CommitFate)
    return sorted(commits, key=lambda commit: (order.index(commit.fate), commit.committable.transactional_id))


def fates_by_job(jobs: Sequence[FlinkJob]) -> Mapping[int, Sequence[CommitFate]]:
    """Return the fates of the transactions in each job's newest checkpoint, by the job's key."""
    newest = newest_checkpoints([job for job in jobs if job.checkpoint_id is not None])
    held = {job.pk: committables_of(newest[job.pk]) if job.pk in newest else () for job in jobs}
    fates: dict[int, Sequence[CommitFate]] = {job.pk: () for job in jobs}
    for cluster_id in {job.cluster_id for job in jobs}:
        mine = {job.pk: held[job.pk] for job in jobs if job.cluster_id == cluster_id}
        names = {
            committable.transactional_id for committables in mine.values() for committable in committables
        }
        known = _transactions(cluster_id, sorted(names))
        for pk, committables in mine.items():
            fates[pk] = _fates(newest[pk], known) if committables else ()
    return fates


def _fates(checkpoint: FlinkCheckpointRecord, known: Mapping[str, Transaction]) -> Sequence[CommitFate]:
    """Return the fates of a checkpoint's decided transactions, in its order; `known` are rows by id."""
    pools = {writer.prefix for writer in writers_of(checkpoint) if is_pooled([writer.ownership])}
    return [
        commit_fate(
            committable,
            _view(known.get(committable.transactional_id)),
            of_pool=is_of_prefix(committable.transactional_id, pools),
        )
        for committable in committables_of(checkpoint)
    ]


def other_open_transactions(
    job: FlinkJob, rows: Sequence[FlinkCheckpointRecord]
) -> Sequence[LingeringTransaction]:
    """Return open transactions of a job's prefixes that its newest checkpoint does not hold.

    `rows` are its checkpoints, the newest first; none if the newest could not be read.
    """
    newest = newest_checkpoint(rows)
    if newest is None:
        return ()
    held = {committable.transactional_id for committable in committables_of(newest)}
    completed = [checkpoint.completed_ms for checkpoint in rows if checkpoint.completed_ms is not None]
    lingering = []
    for row, prefix in _open_of(job):
        if row.transactional_id not in held:
            opened, number = (row.transactional_id, row.started_ms), newest.checkpoint_id or 0
            kind = lingering_kind(*opened, prefix, _ownerships(newest, prefix), number, completed)
            pool = _pool_of(newest, prefix)
            lingering.append(LingeringTransaction(row, kind, not pool or row.transactional_id in pool))
    return lingering


def holds_of(cluster_id: int, names: Collection[str], *, now_ms: int) -> Mapping[str, FlinkHold]:
    """Return what checkpoints of Flink's jobs record about transactional ids (escaped text).

    Of several jobs with an id's prefix, the job whose newest checkpoint holds the id counts, else the newest
    job.
    """
    jobs = list(FlinkJob.objects.filter(cluster_id=cluster_id).exclude(prefixes=[]))
    of_name = {
        name: matching
        for name in names
        if (matching := [job for job in jobs if is_of_prefix(name, job.prefixes)])
    }
    wanted = {job.pk: job for matching in of_name.values() for job in matching}
    newest = newest_checkpoints(list(wanted.values()))
    held = {
        pk: {committable.transactional_id: committable for committable in committables_of(row)}
        for pk, row in newest.items()
    }
    completions = _completions(list(wanted.values()))
    return {
        name: _hold(name, matching, newest, held, completions, now_ms) for name, matching in of_name.items()
    }


@dataclass(frozen=True, slots=True)
class FlinkDecision:
    """A job's decision about one of its transactional ids, from its checkpoints."""

    hold: FlinkHold
    #: Its fate; None if the newest checkpoint holds no transaction of the id.
    fate: CommitFate | None

    @property
    def sentence(self) -> str:
        if self.hold.trouble:
            return f"What its checkpoints decided is not known: {self.hold.trouble}."
        return decision_sentence(self.hold.checkpoint, self.fate)


def decision_of(row: Transaction, *, now_ms: int) -> FlinkDecision | None:
    """Return a Flink job's decision about an id's transaction; None for an id without a job."""
    hold = holds_of(row.cluster_id, [row.transactional_id], now_ms=now_ms).get(row.transactional_id)
    if hold is None:
        return None
    of_pool = is_pooled(hold.ownerships)
    return FlinkDecision(
        hold,
        None if hold.committable is None else commit_fate(hold.committable, _view(row), of_pool=of_pool),
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
    prefix = next(candidate for candidate in job.prefixes if is_of_prefix(name, [candidate]))
    later = next(newer_jobs(job, by_age), None)
    return FlinkHold(
        job.ident,
        str(job),
        (checkpoint.name or job.ident) if checkpoint else job.ident,
        checkpoint.checkpoint_id if checkpoint else None,
        checkpoint.completed_ms if checkpoint else None,
        checkpoint.is_savepoint if checkpoint else None,
        held.get(job.pk, {}).get(name),
        _trouble(job, now_ms),
        later.ident if later else "",
        prefix,
        _ownerships(checkpoint, prefix) if checkpoint else frozenset(),
        tuple(completions.get(job.pk, ())),
    )


def newer_jobs(job: FlinkJob, jobs: Iterable[FlinkJob]) -> Iterator[FlinkJob]:
    """Yield the jobs that completed a checkpoint later than a job."""
    completed_ms = job.completed_ms or 0
    for other in jobs:
        if other.pk != job.pk and not other.is_savepoint and (other.completed_ms or 0) > completed_ms:
            yield other


def _ownerships(row: FlinkCheckpointRecord, prefix: str) -> frozenset[TransactionOwnership]:
    return frozenset(writer.ownership for writer in writers_of(row) if writer.prefix == prefix)


def _pool_of(row: FlinkCheckpointRecord, prefix: str) -> frozenset[str]:
    """Return the ids of the older sink's pools; empty for another sink."""
    return frozenset(name for writer in writers_of(row) if writer.prefix == prefix for name in writer.pool)


def _completions(jobs: Sequence[FlinkJob]) -> Mapping[int, Sequence[int]]:
    """Return the completions of each job's checkpoints, the newest first, by the job's key."""
    rows = FlinkCheckpointRecord.objects.filter(job__in=[job.pk for job in jobs], completed_ms__isnull=False)
    return grouped(
        (pk, completed_ms or 0)
        for pk, completed_ms in rows.order_by("-completed_ms").values_list("job_id", "completed_ms")
    )


def _trouble(job: FlinkJob, now_ms: int) -> str:
    """Return the reason why the stored state of a job may be outdated, as a clause."""
    if job.error:
        return job.error
    if now_ms - job.seen_ms > _OUTDATED_MS:
        return (
            f"its checkpoints were polled last at {format_clock(job.seen_ms)}; see System for the collector"
        )
    return ""


def _open_of(job: FlinkJob) -> Iterator[tuple[Transaction, str]]:
    """Yield open transactions of a job's prefixes, each with its prefix."""
    for prefix in job.prefixes:
        rows = Transaction.objects.filter(
            IS_OPEN,
            cluster_id=job.cluster_id,
            transactional_id__startswith=f"{prefix.removesuffix('-')}-",
        ).select_related("cluster")
        matching = (
            row for row in rows.order_by("transactional_id") if is_of_prefix(row.transactional_id, [prefix])
        )
        for row in islice(matching, MOST_OPEN):
            yield row, prefix


def _transactions(cluster_id: int, names: Sequence[str]) -> Mapping[str, Transaction]:
    keys = {key_of_name(name): name for name in names}
    ids = Transaction.objects.filter(cluster_id=cluster_id).select_related("cluster")
    return {keys[bytes(row.key)]: row for rows in in_portions(ids, "key", keys) for row in rows}


def _view(row: Transaction | None) -> CoordinatorView | None:
    if row is None:
        return None
    return CoordinatorView(TransactionState(row.state), row.producer_id, row.producer_epoch)


def _filtered(wanted: FlinkJobCriteria) -> QuerySet[FlinkJob]:
    rows = visibility.rows_in(FlinkJob, wanted.cluster)
    if not wanted.q:
        return rows
    return rows.filter(
        Q(path__icontains=wanted.q) | Q(ident__icontains=wanted.q) | Q(prefixes__icontains=wanted.q)
    )
