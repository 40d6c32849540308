"""What became of the transactions of a sink's batch, by their coordinators' records; and its rows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import ABORTS, TransactionState, Transition, TransitionKind
from fenceline.spark.records import Decided, Decision, Done, SinkTransaction


class Coordinated(NamedTuple):
    """The newest that is known of a transactional id: its coordinator's own words."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    #: By its coordinator's clock.
    updated_ms: int
    #: When its newest transaction began; None where the record has no start.
    started_ms: int | None = None
    #: 2 where its last writer spoke transaction protocol 2 (KIP-890).
    client_version: int = 0


class TransactionFate(StrEnum):
    """What became of one transaction of a batch."""

    OPEN = "open"
    #: Decided by its coordinator, its markers are being written.
    COMMITTING = "committing"
    COMMITTED = "committed"
    #: Aborted, or being aborted: whatever it wrote is not read by anybody who reads committed.
    ABORTED = "aborted"
    #: The id has gone on, or nothing is known of it.
    UNKNOWN = "unknown"


#: A commit that is decided is never undone, and neither is an abort.
_FATES = {
    TransactionState.ONGOING: TransactionFate.OPEN,
    TransactionState.PREPARE_COMMIT: TransactionFate.COMMITTING,
    TransactionState.COMPLETE_COMMIT: TransactionFate.COMMITTED,
    TransactionState.PREPARE_ABORT: TransactionFate.ABORTED,
    TransactionState.COMPLETE_ABORT: TransactionFate.ABORTED,
}
_ENDS = {TransitionKind.COMMIT: TransactionFate.COMMITTED, **dict.fromkeys(ABORTS, TransactionFate.ABORTED)}
_ABORTS = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)


class EndedTransaction(NamedTuple):
    """A transaction of the batch, what became of it, and when by its coordinator's clock."""

    transactional_id: str
    fate: TransactionFate
    at_ms: int | None = None
    #: Where its fate is unknown: whether the id's newest record is of a later transaction.
    id_used_again: bool = False


def outcome_by_coordinator(written: SinkTransaction, now: Coordinated | None) -> EndedTransaction:
    """Return the outcome of a transaction, from the newest state that its coordinator reported for its id.

    A client of protocol 2 commits under the next epoch, and a coordinator aborts under it. Clients of older
    ones keep theirs from transaction to transaction: it is ours only if it began when ours did.
    """
    name = written.transactional_id
    if now is None:
        return EndedTransaction(name, TransactionFate.UNKNOWN)
    if not _is_same(written, now):
        return EndedTransaction(name, TransactionFate.UNKNOWN, id_used_again=_is_later(written, now))
    fate = _FATES.get(now.state, TransactionFate.UNKNOWN)
    return EndedTransaction(name, fate, now.updated_ms, id_used_again=fate is TransactionFate.UNKNOWN)


def outcome_by_history(written: SinkTransaction, past: Iterable[Transition]) -> EndedTransaction:
    """Return what became of a transaction by the history of its id: the end of what began when it did."""
    for transition in past:
        fate = _ENDS.get(transition.kind)
        if fate is None or transition.open_ms is None or transition.producer_id != written.producer_id:
            continue
        if transition.at_ms - transition.open_ms == written.started_ms:
            return EndedTransaction(
                written.transactional_id, fate, transition.completed_ms or transition.at_ms
            )
    return EndedTransaction(written.transactional_id, TransactionFate.UNKNOWN)


def rows_written(decision: Decision, done: Done | None) -> int | None:
    """Return the records of a batch that its sink has committed, as its ledger counts them.

    None while it is not committed to the end, and of a round that was aborted. What is lost does not count.
    """
    if decision.decided is not Decided.PREPARED or done is None:
        return None
    lost = set(done.lost)
    return sum(
        transaction.records
        for transaction in decision.transactions
        if transaction.transactional_id not in lost
    )


def _is_same(written: SinkTransaction, now: Coordinated) -> bool:
    """Whether an id's newest record belongs to this very transaction."""
    if now.producer_id != written.producer_id:
        return False
    if now.started_ms is not None and now.started_ms != written.started_ms:
        return False
    bumps = 1 if now.client_version >= 2 or now.state in _ABORTS else 0
    return 0 <= now.producer_epoch - written.producer_epoch <= bumps


def _is_later(written: SinkTransaction, now: Coordinated) -> bool:
    """Whether an id's newest record was written after this transaction; an older one confirms nothing."""
    if now.producer_id == written.producer_id and now.producer_epoch < written.producer_epoch:
        return False
    return now.updated_ms > written.started_ms
