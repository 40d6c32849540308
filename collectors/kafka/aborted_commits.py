"""Search the log of a committed transaction for an abort marker that another client wrote into it.

It uses neither the database nor Celery. Its driver passes the places to search, and stores the result.
"""

from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.losses.aborted_commits import CommittedTransaction, lost_before_commit
from fenceline.losses.recoveries import LostRecords
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Bytes of one request, and requests per partition for a suspected transaction.
_BYTES_AT_ONCE = 256 * 1024
MOST_REQUESTS = 64


class CommitSearch(NamedTuple):
    """A place to search: the log of one partition for a committed transaction's records."""

    where: TopicPartition
    transaction: CommittedTransaction
    #: No record of the transaction is before this offset.
    floor: int
    #: The offset of a record of the open transaction, if one was seen.
    first_offset: int | None = None


def find_lost_before_commit(
    reads: ClusterReads, search: CommitSearch, *, requests: int = MOST_REQUESTS
) -> LostRecords | None:
    """Return the lost records of a partition; None if the log does not show the commit marker within bounds.

    If the log after the floor is too long, the search starts at the record that was seen open. Raises
    `AdminUnavailable`.
    """
    lost = _search(reads, search, search.floor, requests)
    if lost is None and search.first_offset is not None and search.first_offset > search.floor:
        lost = _search(reads, search, search.first_offset, requests)
    return lost


def _search(reads: ClusterReads, search: CommitSearch, start: int, requests: int) -> LostRecords | None:
    batches: list[RecordBatch] = []
    at = start
    for _ in range(requests):
        answer = reads.batch_headers(search.where, at, most_bytes=_BYTES_AT_ONCE)
        if isinstance(answer, Unseen):
            return None
        batches += (batch for batch in answer.batches if batch.producer_id == search.transaction.producer_id)
        lost = lost_before_commit(search.where, batches, search.transaction, search.first_offset)
        if lost is not None or answer.next <= at:
            return lost
        at = answer.next
    return None
