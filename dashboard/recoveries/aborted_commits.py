"""Committed transactions that lost records before their commit, stored once the log has proved it."""

from collections.abc import Iterable, Iterator

from dashboard.models import AbortedCommit
from dashboard.recoveries.commit_watch import EndedCommit
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.losses.recoveries import LostRecords
from fenceline.snapshot import AbortedCommitFacts

#: A loss is reported for this long.
_REPORTED_MS = 86_400_000
_MOST_REPORTED = 1_000


def deleted_records(ended: EndedCommit) -> Iterator[LostRecords]:
    """Yield the records in topics that were deleted before the transaction's commit, where known."""
    watched = ended.watched
    for where, first in sorted(watched.first_offsets.items()):
        note, known_ms = watched.deleted.get(where.topic, ("", 0))
        if note and known_ms <= ended.committed_ms:
            last = watched.ends[where] - 1
            yield LostRecords(*where, first, last, None, False, note, deleted=True)


@retry_write
def save_aborted_commit(lease: Lease, ended: EndedCommit, lost: Iterable[LostRecords]) -> None:
    """Save the lost records of a committed transaction."""
    watched = ended.watched
    with write_transaction(lease, lock_cluster=False) as write:
        AbortedCommit.objects.update_or_create(
            cluster_id=lease.cluster_id,
            key=watched.key,
            producer_id=watched.producer_id,
            started_ms=watched.started_ms,
            defaults={
                "transactional_id": watched.transactional_id,
                "application": watched.application,
                "committed_ms": ended.committed_ms,
                "lost": [list(records) for records in lost],
            },
        )
        write.notify_after_commit("recoveries")


def read_aborted_commits(cluster_id: int, now_ms: int) -> Iterator[AbortedCommitFacts]:
    """Yield the commits that lost records within a day, newest first."""
    rows = AbortedCommit.objects.filter(cluster_id=cluster_id, committed_ms__gt=now_ms - _REPORTED_MS)
    for row in rows.order_by("-committed_ms", "-pk")[:_MOST_REPORTED]:
        transaction = row.transactional_id, row.producer_id, row.started_ms, row.committed_ms
        yield AbortedCommitFacts(*transaction, tuple(written_records(row)))
