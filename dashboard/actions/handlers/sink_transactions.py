"""Transactions of our sink in a decision: read their current state, and end them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from dashboard.actions.connections import ClusterConnections
from dashboard.actions.results import RequestResult, Result, SubjectOutcome, failed_result
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import TransactionState
from fenceline.formatting import list_names
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from transaction_admin.api import Ending, grant_command

#: Seconds during which requests are repeated after temporary errors; less than a worker's lease.
_PATIENCE_S = 8.0
_FORBIDDEN = 53
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class SinkTransactionState(StrEnum):
    """The current state of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    #: It no longer exists: aborted, timed out, or replaced by another transaction of its id.
    GONE = "gone"
    #: Its coordinator did not answer.
    UNSEEN = "not to be seen"


class Opened(NamedTuple):
    """The fields that identify a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int


class CurrentTransaction(NamedTuple):
    """The current state of a transaction, its coordinator's answer as text, and its timeout if reported."""

    standing: SinkTransactionState
    words: str
    timeout_ms: int = 0


Found = Mapping[Opened, CurrentTransaction]


def current_states(wanted: Sequence[Opened], connections: ClusterConnections) -> Found:
    """Return the current state of each transaction. Raises `AdminUnavailable`."""
    ids = [opened.transactional_id for opened in wanted]
    described = connections.admin.describe_transactions(ids, listed=True) if ids else {}
    return {opened: _now(opened, described[opened.transactional_id]) for opened in wanted}


def as_planned(states: Found, *standing: SinkTransactionState) -> list[Opened]:
    """Return the transactions in one of these states."""
    return [opened for opened, now in states.items() if now.standing in standing]


def _now(wanted: Opened, described: Described | NotDescribed) -> CurrentTransaction:
    if isinstance(described, NotDescribed):
        return CurrentTransaction(
            SinkTransactionState.GONE
            if described.obstacle is Obstacle.UNKNOWN
            else SinkTransactionState.UNSEEN,
            described.text,
        )
    words = f"it is {described.state.value}, epoch {wanted.producer_epoch} → {described.producer_epoch}"
    same = described.producer_id == wanted.producer_id
    if same and described.state in _COMMITTED and described.producer_epoch - wanted.producer_epoch in (0, 1):
        # Transaction protocol 2 raises the epoch with each end (KIP-890).
        return CurrentTransaction(SinkTransactionState.COMMITTED, words, described.timeout_ms)
    now = described.state, described.producer_epoch, described.started_ms
    if same and now == (TransactionState.ONGOING, wanted.producer_epoch, wanted.started_ms):
        return CurrentTransaction(SinkTransactionState.OPEN, words, described.timeout_ms)
    return CurrentTransaction(SinkTransactionState.GONE, words, described.timeout_ms)


def end_transactions(
    wanted: Sequence[Opened], connections: ClusterConnections, *, commit: bool
) -> tuple[RequestResult, ...]:
    """End all transactions as decided; return their coordinators' answers."""
    endings = [Ending(*opened[:3], commit=commit) for opened in wanted]
    answers = connections.admin.end_transactions(endings, timeout_s=_PATIENCE_S)
    word = "committed" if commit else "aborted"
    return tuple(RequestResult(name, ended.code, ended.word or word) for name, ended in answers.items())


def confirmed_decisions(
    ended: Sequence[Opened], parts: Sequence[RequestResult], *, commit: bool
) -> tuple[WrittenRecord, ...]:
    """Return the decisions that coordinators confirmed, for transactions that were open right before."""
    confirmed = {part.where for part in parts if part.code == 0}
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    # EndTxn before version 5 keeps the epoch (KIP-890).
    return tuple(
        WrittenRecord(
            opened.transactional_id, opened.producer_id, opened.producer_epoch, state.value, fence=False
        )
        for opened in ended
        if opened.transactional_id in confirmed
    )


def not_ended(
    waiting: Sequence[Opened],
    states: Found,
    parts: tuple[RequestResult, ...],
    connections: ClusterConnections,
    so: str,
) -> Result:
    """Return the outcome for transactions that are still open or cannot be read, with the reason."""
    names = [opened.transactional_id for opened in waiting]
    answered = {part.where: part for part in parts}
    forbidden = next((name for name in names if name in answered and answered[name].code == _FORBIDDEN), None)
    if forbidden is not None:
        remedy = grant_command(connections.admin.principal, "WRITE", f"--transactional-id '{forbidden}'")
        return failed_result(
            f"no WRITE on {list_names(names)}; grant it: {remedy}. {so.capitalize()}", *parts
        )
    unseen = [opened for opened in waiting if states[opened].standing is SinkTransactionState.UNSEEN]
    if unseen:
        words = f"{unseen[0].transactional_id}: {states[unseen[0]].words}. {so.capitalize()}"
        return Result(SubjectOutcome.UNKNOWN, words, parts)
    return failed_result(
        f"still open: {list_names(names)}. {so.capitalize()}; check again, and make a new plan", *parts
    )
