"""Records that an abort marker removed from a transaction before its owner committed it.

An administrator may write an abort marker into a live transaction (`Admin.abortTransaction`,
`kafka-transactions.sh abort`). Its coordinator does not know: the owner continues, commits, and gets no
error. Its records before the marker stay invisible to read_committed readers for ever.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import ABORTS, TopicPartition, Transition, TransitionKind
from fenceline.formatting import count_noun
from fenceline.losses.recoveries import LostRecords

_ENDS = ABORTS | {TransitionKind.COMMIT}


class CommittedTransaction(NamedTuple):
    """A transaction that its coordinator decided to commit. Instants are by the coordinator's clock."""

    producer_id: int
    #: The epoch of its records.
    producer_epoch: int
    begun_ms: int
    committed_ms: int
    #: Whether no other transaction has its epoch (KIP-890).
    own_epoch: bool = False


def end_of(ring: Iterable[Transition], begun_ms: int) -> Transition | None:
    """Return the end of the transaction that began at an instant; None without one yet."""
    for transition in ring:
        if (
            transition.kind in _ENDS
            and transition.open_ms is not None
            and transition.at_ms - transition.open_ms == begun_ms
        ):
            return transition
    return None


#: Batches, and the abort marker that ended them.
_Aborted = tuple[Sequence[RecordBatch], RecordBatch]


def lost_before_commit(
    where: TopicPartition,
    batches: Iterable[RecordBatch],
    transaction: CommittedTransaction,
    first_offset: int | None = None,
) -> LostRecords | None:
    """Return the records that a transaction lost to abort markers before its commit marker; None without that
    marker.

    `first_offset`: a record of it, if one was seen open. Later markers belong to this transaction.
    """
    written: list[RecordBatch] = []
    aborted: list[_Aborted] = []
    for batch in batches:
        if batch.producer_id != transaction.producer_id or not batch.transactional:
            continue
        is_known = first_offset is not None and batch.first > first_offset
        if not batch.marker:
            written += [batch] if batch.producer_epoch == transaction.producer_epoch else []
        elif batch.marker == "abort":
            aborted += [(written, batch)] if written else []
            written = []
        elif is_known or _is_its_commit(batch, transaction):
            return _lost(where, [*_its_own(aborted, batch, transaction, first_offset)])
        else:
            written, aborted = [], []
    return None


def _its_own(
    aborted: Iterable[_Aborted],
    commit: RecordBatch,
    transaction: CommittedTransaction,
    first_offset: int | None,
) -> Iterator[_Aborted]:
    """Yield the batches aborted within the transaction, not those that its own coordinator aborted earlier.

    An earlier transaction of the same epoch leaves the same markers. The commit marker shows the maximum
    advance of the leader's clock over the coordinator's: batches stamped later than the beginning by more
    than that were written after it.
    """
    ahead_ms = commit.max_timestamp_ms - transaction.committed_ms
    for batches, marker in aborted:
        is_known = first_offset is not None and marker.first > first_offset
        is_later = marker.max_timestamp_ms > transaction.begun_ms + ahead_ms
        if transaction.own_epoch or is_known or is_later:
            yield batches, marker


def _is_its_commit(marker: RecordBatch, transaction: CommittedTransaction) -> bool:
    """Whether a commit marker is nearer to this commit than to the beginning: an earlier one is older."""
    return marker.max_timestamp_ms > (transaction.begun_ms + transaction.committed_ms) // 2


def _lost(where: TopicPartition, aborted: Sequence[_Aborted]) -> LostRecords:
    lost = [batch for batches, _ in aborted for batch in batches]
    if not lost:
        return LostRecords(*where, None, None, 0, True)
    records, marker = sum(batch.records for batch in lost), aborted[-1][1]
    return LostRecords(*where, lost[0].first, lost[-1].last, records, True, marker_ms=marker.max_timestamp_ms)


def lost_words(lost: Collection[LostRecords]) -> str:
    """Return the number of lost records in words: a maximum if only offsets are known."""
    exact = [records.records for records in lost if records.records is not None]
    if len(exact) == len(lost):
        return count_noun(sum(exact), "record")
    bounds = (
        records.last - records.first + 1
        for records in lost
        if records.first is not None and records.last is not None
    )
    return f"at most {count_noun(sum(bounds), 'record')}"
