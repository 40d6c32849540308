"""Facts for the rules that follow from rows of several collectors: unread records of deleted partitions,
groups and queries that open transactions block, and transactions that Flink's jobs decided and that are not
committed.

The jobs are read each second. A checkpoint's decision is unpacked once. A job whose newest checkpoint has no
open or lost transactions is not read again before its next checkpoint, because a committed transaction stays
committed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboard.engines.flink_jobs import CheckpointedCommit, newer_jobs, newest_checkpoints, pending_commits
from dashboard.models import (
    DeletedPartition,
    DroppedOffset,
    FlinkJob,
    GroupOffset,
    PartitionRecord,
    Transaction,
)
from fenceline.engines.flink.restore import CommitFate, DecidedTransaction, FlinkJobFacts
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, TopicPartition
from fenceline.kafka.coordinator import start_ms
from fenceline.kafka.groups import Waiting
from fenceline.rules.partitions import waits_since
from fenceline.snapshot import BlockedGroup, BlockedQueryFacts, DeletedRead, PinnedPartition
from fenceline.spark.queries import QueryStatus

_DAY_MS = 86_400_000
#: Coordinators drop the offsets of a deleted topic; two collectors notice both within this time.
_TOGETHER_MS = 120_000


def deleted_reads(cluster_id: int, now_ms: int) -> Iterator[DeletedRead]:
    """Yield the unread records of partitions that were deleted within a day."""
    rows = DeletedPartition.objects.filter(cluster_id=cluster_id, deleted_ms__gte=now_ms - _DAY_MS)
    deleted = {TopicPartition(row.topic, row.partition): row for row in rows}
    if not deleted:
        return
    topics = {where.topic for where in deleted}
    dropped = DroppedOffset.objects.filter(cluster_id=cluster_id, dropped_ms__gte=now_ms - 2 * _DAY_MS)
    for dropped_offset in dropped.filter(topic__in=topics):
        row = deleted.get(TopicPartition(dropped_offset.topic, dropped_offset.partition))
        if row is not None and abs(row.deleted_ms - dropped_offset.dropped_ms) <= _TOGETHER_MS:
            yield _deleted_read(dropped_offset.group_id, row, dropped_offset.offset)
    again = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=topics)
    gone = topics - set(again.values_list("topic", flat=True))
    kept = GroupOffset.objects.filter(group__cluster_id=cluster_id, topic__in=gone)
    for offset in kept.exclude(offset=None).select_related("group"):
        row = deleted.get(TopicPartition(offset.topic, offset.partition))
        if row is not None and offset.offset != row.high_watermark:
            yield _deleted_read(offset.group.group_id, row, offset.offset or 0)


def _deleted_read(group_id: str, row: DeletedPartition, offset: int) -> DeletedRead:
    end = row.high_watermark
    unread = None if end is None else max(0, end - max(offset, row.log_start or 0))
    return DeletedRead(group_id, row.topic, row.partition, unread, row.deleted_ms)


def blocked_groups(groups: Iterable[BlockedGroup]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups at an LSO by the blocking id."""
    groups_by_id: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        for offset in group.offsets:
            if offset.waiting is Waiting.PROBABLY:
                for blocker in offset.blockers:
                    groups_by_id[blocker.transactional_id].add(group.group_id)
    return {name: tuple(sorted(group_ids)) for name, group_ids in groups_by_id.items()}


def blocked_queries(
    queries: Iterable[QueryStatus], partitions: Iterable[PinnedPartition]
) -> Mapping[str, tuple[BlockedQueryFacts, ...]]:
    """Return the queries at an LSO by the blocking id, that of the first open transaction there."""
    held = {(partition.topic, partition.partition): partition for partition in partitions if partition.pins}
    queries_by_id: dict[str, dict[BlockedQueryFacts, None]] = defaultdict(dict)
    for query in queries:
        for position in query.positions:
            pinned = held.get((position.topic, position.partition))
            if pinned is not None and waits_since(position, pinned) is not None:
                queries_by_id[pinned.pins[0].transactional_id][BlockedQueryFacts(query.ident, query.name)] = (
                    None
                )
    return {name: tuple(blocked) for name, blocked in queries_by_id.items()}


#: The lead of our clock over the coordinator's, by partition of `__transaction_state`.
Clocks = Mapping[int, int | None]
_SETTLED = (CommitFate.COMMITTED, CommitFate.ENDED, CommitFate.SUPERSEDED)
#: An id that is still unknown this long after its checkpoint counts as forgotten by its coordinator.
_FORGOTTEN_MS = 86_400_000
_REPORTED = (CommitFate.PENDING, CommitFate.LOST)


class FlinkCommits:
    """Reads the jobs of one cluster, and remembers the settled ones."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        #: Jobs whose newest checkpoint is carried out, with the revision of that state.
        self._settled: dict[int, int] = {}

    def read_jobs(self, clocks: Clocks, *, now_ms: int) -> tuple[FlinkJobFacts, ...]:
        """Return the jobs with decided transactions that are pending or lost, by identity.

        A savepoint decides only for a job that is restored from it (FLIP-203), so savepoints are omitted.
        """
        jobs = list(FlinkJob.objects.filter(cluster_id=self._cluster_id).order_by("ident"))
        self._settled = {job.pk: job.rev for job in jobs if self._settled.get(job.pk) == job.rev}
        wanted = [
            job
            for job in jobs
            if job.pending and not job.error and not job.is_savepoint and job.pk not in self._settled
        ]
        newest = newest_checkpoints(wanted) if wanted else {}
        facts = []
        for job in wanted:
            row = newest.get(job.pk)
            commits = pending_commits(job, row)
            if _is_settled(job, commits, now_ms):
                self._settled[job.pk] = job.rev
            decided = tuple(_decided(commits, job.completed_ms, clocks, now_ms))
            if row is not None and decided:
                facts.append(
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
        return tuple(facts)


def _is_settled(job: FlinkJob, commits: Sequence[CheckpointedCommit], now_ms: int) -> bool:
    is_old = job.completed_ms is not None and now_ms - job.completed_ms > _FORGOTTEN_MS
    fates = (*_SETTLED, CommitFate.UNKNOWN) if is_old else _SETTLED
    return all(commit.fate in fates for commit in commits)


def _decided(
    commits: Sequence[CheckpointedCommit], completed_ms: int | None, clocks: Clocks, now_ms: int
) -> Iterator[DecidedTransaction]:
    for commit in sorted(commits, key=lambda commit: commit.committable.transactional_id):
        if commit.row is None or commit.fate not in _REPORTED or _began_later(commit.row, completed_ms):
            continue
        expires_ms = _expires_ms(commit.row, clocks, now_ms) if commit.fate is CommitFate.PENDING else None
        aborted_ms = commit.row.updated_ms if commit.fate is CommitFate.LOST else None
        yield DecidedTransaction(commit.committable.transactional_id, commit.fate, expires_ms, aborted_ms)


def _began_later(row: Transaction, completed_ms: int | None) -> bool:
    """Return whether an id was used again: without KIP-890 its epoch stays the same."""
    return row.started_ms is not None and completed_ms is not None and row.started_ms > completed_ms


def _expires_ms(row: Transaction, clocks: Clocks, now_ms: int) -> int | None:
    if row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return None
    ahead_ms = clocks.get(row.log_partition)
    began_ms = start_ms(row.started_ms, now_ms=now_ms, ahead_ms=ahead_ms, since_ms=None)
    return None if began_ms is None else began_ms + row.timeout_ms


def _newer_job(job: FlinkJob, jobs: Sequence[FlinkJob]) -> str:
    """Return a job with a common prefix that completed a checkpoint later, or ""."""
    own = set(job.prefixes)
    return next((other.ident for other in newer_jobs(job, jobs) if own.intersection(other.prefixes)), "")
