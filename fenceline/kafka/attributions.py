"""Attribute transitions to our own actions: joined by producer id and epoch, never by time.

A coordinator's answer to InitProducerId has the producer id and epoch that it wrote; an EndTxn request has
the producer id and epoch that it ends. The request's record in `__transaction_state` is the record of the
same id with the same numbers, in the state the request leads to. So the join needs neither clocks nor order:
transitions derived before the answer is stored (`attribute_past`) and after it (`attribute_step`) read alike.

A fence is certain, because nobody else is given its epoch. Our EndTxn and the producer's own leave the same
record, so an abort that we requested is only probable; a commit is a commit either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fenceline.facts import (
    ABORTS,
    ACTION_REASONS,
    Confidence,
    Tombstone,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.transitions import IdHistory, TransitionStep

#: Producer id, epoch and state of a record that a coordinator wrote for one transactional id at our request.
#: Empty: initialised. PrepareAbort: by a fence or an EndTxn. PrepareCommit: by an EndTxn.
RecordIdentity = tuple[int, int, TransactionState]


class ActionCause(NamedTuple):
    """The action that caused a record, and whether by a fence (InitProducerId) or by an EndTxn."""

    action: int
    fence: bool


#: The records of our actions on one transactional id.
CausesByRecord = Mapping[RecordIdentity, ActionCause]

_PROBABLE = Confidence.PROBABLE
#: Kinds of an initialisation before it is attributed to us. A new producer id stays a rotation.
_INITIALISATIONS = frozenset(
    {TransitionKind.REINIT, TransitionKind.ADMIN_FENCE, TransitionKind.TAKEOVER, TransitionKind.SELF_RECOVERY}
)


def attribute_step(
    life: IdHistory, record: TransactionRecord | Tombstone, step: TransitionStep, records: CausesByRecord
) -> TransitionStep:
    """Attribute the step of `transitions.derive_transition` to the action that caused its record."""
    if isinstance(record, Tombstone):
        return step
    ours = records.get((record.producer_id, record.producer_epoch, record.state))
    if ours is None:
        return step
    if record.state is TransactionState.EMPTY:
        return _initialised(life, record, step)
    return step if step.made is None else step._replace(made=_ended(step.made, ours))


def attribute_past(
    transitions: Sequence[Transition], records: CausesByRecord
) -> Sequence[tuple[Transition, Transition | None]]:
    """Return the transitions that change, with their revisions, newest first like `transitions`.

    A revision of None: the initialisation is part of the abort before it, because a fence is one transition.
    """
    changed: dict[int, tuple[Transition, Transition | None]] = {}
    following: Transition | None = None
    for index, transition in enumerate(transitions):
        after = _attributed(transition, following, records)
        if after is not None and following is not None and _is_part(following, after, records):
            changed[index - 1] = following, None
        if after is not None and after != transition:
            changed[index] = transition, after
        following = transition
    return [changed[index] for index in sorted(changed)]


def action_of(transition: Transition, records: CausesByRecord) -> int | None:
    """Return the number of the action that caused a transition, None if no action of ours did."""
    if transition.reason not in ACTION_REASONS:
        return None
    record = records.get(_identity(transition)) or records.get(_initialisation_after(transition))
    return None if record is None else record.action


def _attributed(
    transition: Transition, following: Transition | None, records: CausesByRecord
) -> Transition | None:
    """Return a transition as revised by an action of ours; None if no action of ours caused it."""
    ours = records.get(_identity(transition))
    if ours is None:
        holds = _holds_our_initialisation(transition, following, records)
        return _fenced(transition, _PROBABLE) if holds else None
    if transition.open_ms is None:
        return _fenced(transition) if transition.kind in _INITIALISATIONS else None
    after = _ended(transition, ours)
    if ours.fence and following is not None and records.get(_identity(following)) == ours:
        part = _is_part(following, after, records)
        return after._replace(gap_ms=following.gap_ms if part else None)
    return after


def _holds_our_initialisation(
    transition: Transition, following: Transition | None, records: CausesByRecord
) -> bool:
    """Whether a foreign abort ends with our initialisation, which made no transition of its own."""
    identity = _initialisation_after(transition)
    if transition.kind not in ABORTS or transition.gap_ms is None or identity not in records:
        return False
    return following is None or _identity(following) != identity


def _is_part(following: Transition, abort: Transition, records: CausesByRecord) -> bool:
    """Whether an initialisation belongs to the abort before it: both come from the same fence."""
    ours = records.get(_identity(following))
    if ours is None or following.open_ms is not None or following.kind not in _INITIALISATIONS:
        return False
    return abort.open_ms is not None and records.get(_identity(abort)) == ours


def _initialised(life: IdHistory, record: TransactionRecord, step: TransitionStep) -> TransitionStep:
    last, newest = life.record, life.newest
    if step.made is not None and step.made.kind not in _INITIALISATIONS:
        return step
    if last is not None and newest is not None and _is_fenced_abort(last, newest):
        return TransitionStep(None, newest._replace(gap_ms=record.updated_ms - last.updated_ms))
    if step.made is None:
        # The abort before our initialisation is not ours: its origin is unknown.
        return TransitionStep(None, step.revised and _fenced(step.revised, _PROBABLE))
    return step._replace(made=_fenced(step.made))


def _is_fenced_abort(last: TransactionRecord, newest: Transition) -> bool:
    ended = last.state is TransactionState.COMPLETE_ABORT and newest.open_ms is not None
    return ended and newest.reason is TransitionReason.FENCED_BY_ACTION


def _fenced(transition: Transition, confidence: Confidence = Confidence.CERTAIN) -> Transition:
    return transition._replace(
        kind=TransitionKind.ADMIN_FENCE, confidence=confidence, reason=TransitionReason.FENCED_BY_ACTION
    )


def _ended(transition: Transition, ours: ActionCause) -> Transition:
    if transition.kind is TransitionKind.COMMIT:
        return transition._replace(reason=TransitionReason.COMMITTED_BY_ACTION)
    if transition.kind not in ABORTS:
        return transition
    if ours.fence:
        return _fenced(transition)
    return transition._replace(
        kind=TransitionKind.ADMIN_ABORT,
        confidence=Confidence.PROBABLE,
        reason=TransitionReason.ABORTED_BY_ACTION,
    )


def _identity(transition: Transition) -> RecordIdentity:
    """Return a transition's record: the decision (Prepare*) if it ended a transaction, else its own."""
    state = TransactionState.EMPTY
    if transition.open_ms is not None:
        state = (
            TransactionState.PREPARE_COMMIT
            if transition.kind is TransitionKind.COMMIT
            else TransactionState.PREPARE_ABORT
        )
    return (transition.producer_id, transition.producer_epoch, state)


def _initialisation_after(transition: Transition) -> RecordIdentity:
    """Return the identity of the initialisation that follows an abort: the next epoch."""
    return (transition.producer_id, transition.producer_epoch + 1, TransactionState.EMPTY)
