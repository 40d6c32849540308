"""The fates of a sink batch's transactions, by their coordinators' records; and the batch's rows."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import ABORTED_STATES, ABORTS, TransactionState, Transition, TransitionKind
from fenceline.spark.records import Decided, Decision, Done, SinkTransaction


class Coordinated(NamedTuple):
    """The newest state of a transactional id, from its coordinator."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    #: By its coordinator's clock.
    updated_ms: int
    #: The start of its newest transaction; None if the record has no start.
    started_ms: int | None = None
    #: 2 if its last writer used transaction protocol 2 (KIP-890).
    client_version: int = 0


class TransactionFate(StrEnum):
    OPEN = "open"
    #: Decided by its coordinator; its markers are being written.
    COMMITTING = "committing"
    COMMITTED = "committed"
    #: Aborted, or being aborted: no reader of committed records gets its records.
    ABORTED = "aborted"
    #: The id has continued, or nothing is known of it.
    UNKNOWN = "unknown"


#: A decided commit is never undone, nor is an abort.
_FATES = {
    TransactionState.ONGOING: TransactionFate.OPEN,
    TransactionState.PREPARE_COMMIT: TransactionFate.COMMITTING,
    TransactionState.COMPLETE_COMMIT: TransactionFate.COMMITTED,
    TransactionState.PREPARE_ABORT: TransactionFate.ABORTED,
    TransactionState.COMPLETE_ABORT: TransactionFate.ABORTED,
}
_ENDS = {TransitionKind.COMMIT: TransactionFate.COMMITTED, **dict.fromkeys(ABORTS, TransactionFate.ABORTED)}


class EndedTransaction(NamedTuple):
    """A transaction of the batch, its fate, and the instant by its coordinator's clock."""

    transactional_id: str
    fate: TransactionFate
    at_ms: int | None = None
    #: For an unknown fate: whether the id's newest record belongs to a later transaction.
    id_used_again: bool = False


def outcome_by_coordinator(written: SinkTransaction, now: Coordinated | None) -> EndedTransaction:
    """Return the fate of a transaction, from its coordinator's newest state of the id.

    A client of protocol 2 commits with the next epoch, and a coordinator aborts with it. Clients of older
    protocols keep theirs from transaction to transaction: then the transaction is ours only if it has the
    same start.
    """
    name = written.transactional_id
    if now is None:
        return EndedTransaction(name, TransactionFate.UNKNOWN)
    if not _is_same(written, now):
        return EndedTransaction(name, TransactionFate.UNKNOWN, id_used_again=_is_later(written, now))
    fate = _FATES.get(now.state, TransactionFate.UNKNOWN)
    return EndedTransaction(name, fate, now.updated_ms, id_used_again=fate is TransactionFate.UNKNOWN)


def outcome_by_history(written: SinkTransaction, past: Iterable[Transition]) -> EndedTransaction:
    """Return the fate of a transaction from the history of its id: the end of the one with the same start."""
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
    """Return the records of a batch that its sink has committed, from the counts in its ledger.

    None before it is completely committed, and for an aborted round. Lost records do not count.
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
    """Whether an id's newest record belongs to this transaction."""
    if now.producer_id != written.producer_id:
        return False
    if now.started_ms is not None and now.started_ms != written.started_ms:
        return False
    bumps = 1 if now.client_version >= 2 or now.state in ABORTED_STATES else 0
    return 0 <= now.producer_epoch - written.producer_epoch <= bumps


def _is_later(written: SinkTransaction, now: Coordinated) -> bool:
    """Whether an id's newest record was written after this transaction; an older one confirms nothing."""
    if now.producer_id == written.producer_id and now.producer_epoch < written.producer_epoch:
        return False
    return now.updated_ms > written.started_ms
