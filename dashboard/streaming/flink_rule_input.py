"""What rules know of Flink's jobs: decided transactions that are not committed. Read each second.

What a checkpoint decided is unpacked once. A job whose newest checkpoint has nothing that is open or lost is
not read again before its next one: what is committed stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dashboard.models import FlinkJob, Transaction
from dashboard.streaming.flink_jobs import CheckpointedCommit, newest_checkpoints, pending_commits
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS
from fenceline.flink.commits import DecidedTransaction, FlinkJobFacts
from fenceline.flink.restore import CommitFate
from fenceline.kafka.clock_skew import start_ms

#: By partition of `__transaction_state`: how far our clock is ahead of its coordinator's.
Clocks = Mapping[int, int | None]
_SETTLED = (CommitFate.COMMITTED, CommitFate.ENDED)
#: An id that is not known so long after its checkpoint is forgotten by its coordinator.
_FORGOTTEN_MS = 86_400_000
_REPORTED = (CommitFate.PENDING, CommitFate.LOST)


class FlinkCommits:
    """Reads the jobs of one cluster, and keeps which of them are settled."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        #: Jobs whose newest checkpoint is carried out, with the revision for which that is so.
        self._settled: dict[int, int] = {}

    def read_jobs(self, clocks: Clocks, *, now_ms: int) -> tuple[FlinkJobFacts, ...]:
        """Return the jobs with decided transactions that are pending or lost, by identity.

        A savepoint decides only for a job that is restored from it (FLIP-203), so it is left out.
        """
        jobs = list(FlinkJob.objects.filter(cluster_id=self._cluster_id).order_by("ident"))
        self._settled = {job.pk: job.rev for job in jobs if self._settled.get(job.pk) == job.rev}
        wanted = [
            job
            for job in jobs
            if job.pending and not job.error and not job.is_savepoint and job.pk not in self._settled
        ]
        newest = newest_checkpoints(wanted) if wanted else {}
        found = []
        for job in wanted:
            row = newest.get(job.pk)
            commits = pending_commits(job, row)
            if _is_settled(job, commits, now_ms):
                self._settled[job.pk] = job.rev
            decided = tuple(_decided(commits, job.completed_ms, clocks, now_ms))
            if row is not None and decided:
                found.append(
                    FlinkJobFacts(
                        job.ident,
                        str(job),
                        row.name or job.ident,
                        job.completed_ms,
                        tuple(job.prefixes),
                        decided,
                        _newer_job(job, jobs),
                    )
                )
        return tuple(found)


def _is_settled(job: FlinkJob, commits: Sequence[CheckpointedCommit], now_ms: int) -> bool:
    is_old = job.completed_ms is not None and now_ms - job.completed_ms > _FORGOTTEN_MS
    fates = (*_SETTLED, CommitFate.UNKNOWN) if is_old else _SETTLED
    return all(each.fate in fates for each in commits)


def _decided(
    commits: Sequence[CheckpointedCommit], completed_ms: int | None, clocks: Clocks, now_ms: int
) -> Iterator[DecidedTransaction]:
    for each in sorted(commits, key=lambda each: each.committable.transactional_id):
        if each.row is None or each.fate not in _REPORTED or _began_later(each.row, completed_ms):
            continue
        expires_ms = _expires_ms(each.row, clocks, now_ms) if each.fate is CommitFate.PENDING else None
        aborted_ms = each.row.updated_ms if each.fate is CommitFate.LOST else None
        yield DecidedTransaction(each.committable.transactional_id, each.fate, expires_ms, aborted_ms)


def _began_later(row: Transaction, completed_ms: int | None) -> bool:
    """Return whether an id is used again: without KIP-890 that leaves its epoch as it was."""
    return row.started_ms is not None and completed_ms is not None and row.started_ms > completed_ms


def _expires_ms(row: Transaction, clocks: Clocks, now_ms: int) -> int | None:
    if row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return None
    ahead_ms = clocks.get(row.log_partition)
    began_ms = start_ms(row.started_ms, now_ms=now_ms, ahead_ms=ahead_ms, since_ms=None)
    return None if began_ms is None else began_ms + row.timeout_ms


def _newer_job(job: FlinkJob, jobs: Sequence[FlinkJob]) -> str:
    """Return a job with one of the same prefixes that has completed a checkpoint since; "" for none."""
    own = set(job.prefixes)
    later = (
        each.ident
        for each in jobs
        if each.pk != job.pk
        and not each.is_savepoint
        and (each.completed_ms or 0) > (job.completed_ms or 0)
        and own.intersection(each.prefixes)
    )
    return next(later, "")
