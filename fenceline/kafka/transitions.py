"""Derive transitions: the record before + this record -> Transition, with its confidence and its reason.

A verdict is certain only if no other cause leaves the same records (docs/history.md); the table of verdicts
with their alternatives is tests/unit/test_short_histories.py. Under transaction version 2 (KIP-890) a
client's own abort and the coordinator's leave the same bytes. The next record of the id may then revise the
verdict, and a verdict that no record decides stays ambiguous.

Hot path of the intake: each function compares two records and makes at most one transition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fenceline.facts import (
    PREPARED_STATES,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Confidence,
    Tombstone,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.tuples import new_tuple

#: From this epoch on the coordinator gives a new producer id instead of the next epoch
#: (`TransactionMetadata.isEpochExhausted`: Short.MaxValue - 1).
LAST_EPOCH = 32766
#: `request.timeout.ms` of Java's Admin, which its fenceProducers writes as the id's timeout.
ADMIN_TIMEOUT_MS = 30_000
#: The pause from an abort's first record to the retry of the client that got CONCURRENT_TRANSACTIONS.
#: franz-go retries after 20 ms, Java after 100 ms with 20 % jitter, librdkafka after 500 ms; a loaded host
#: delays all of them. A client that initialises sooner did not wait; one that does later more likely
#: restarted.
RETRY_MS = (15, 2_000)
#: The longest pause between two tries of any client.
LONGEST_RETRY_MS = 10_000

_CERTAIN, _PROBABLE, _AMBIGUOUS = Confidence.CERTAIN, Confidence.PROBABLE, Confidence.AMBIGUOUS
#: Verdicts on an abort that the next record of the id may revise.
_BROKERS_IN_TIME = frozenset({TransitionReason.BROKER_IN_TIME, TransitionReason.BROKER_AT_LAST_EPOCH})
_BROKERS_LATE = frozenset({TransitionReason.BROKER_LATE, TransitionReason.LATE_AT_LAST_EPOCH})
_LATE = _BROKERS_LATE | {TransitionReason.EITHER_LATE}
_OPEN_TO_REVISION = _BROKERS_IN_TIME | _LATE | {TransitionReason.EITHER_IN_TIME}
#: Verdicts on an initialisation that are settled when its producer begins a transaction.
_FENCE_LIKE = frozenset(
    {TransitionReason.ADMIN_TIMEOUT, TransitionReason.ADMIN_TIMEOUT_SOON, TransitionReason.DEFAULT_TIMEOUT}
)
_IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class IdHistory(NamedTuple):
    """The known history of an id, needed to interpret its next record: last record and newest transition.

    `record` is None before the id's first record, and after its tombstone.
    """

    record: TransactionRecord | None = None
    newest: Transition | None = None


class TransitionStep(NamedTuple):
    """The effect of one record: the transition it made, and the revision of an earlier transition."""

    made: Transition | None = None
    revised: Transition | None = None


_NOTHING = TransitionStep()
_Verdict = tuple[TransitionKind, Confidence, TransitionReason]


class _At(NamedTuple):
    partition: int
    offset: int


def derive_transition(
    life: IdHistory,
    record: TransactionRecord | Tombstone,
    partition: int,
    offset: int,
    *,
    whole: bool = False,
) -> TransitionStep:
    """Return the transition that a record makes after the history in `life`.

    `whole`: no record before this one is missing from its partition. Only then is the first record of an
    unknown id its true first record. Never raises; a step outside Kafka's state machine (`TransactionState`)
    is ambiguous.
    """
    at = new_tuple(_At, (partition, offset))
    if isinstance(record, Tombstone):
        return _expired(life, record, at)
    if life.record is None:
        return TransitionStep(_first(record, at, whole or life.newest is not None))
    return _BY_STATE[record.state](life.record, life.newest, record, at)


def next_history(life: IdHistory, record: TransactionRecord | Tombstone, step: TransitionStep) -> IdHistory:
    """Return the id's history after the step returned by `derive_transition`."""
    known = None if isinstance(record, Tombstone) else record
    return IdHistory(known, step.made or step.revised or life.newest)


def _first(record: TransactionRecord, at: _At, whole: bool) -> Transition:
    if whole and record.state is TransactionState.EMPTY and record.producer_epoch == 0:
        return _make(TransitionKind.INIT, _CERTAIN, TransitionReason.NEW_ID, record, None, at)
    return _make(TransitionKind.BASELINE, _CERTAIN, TransitionReason.FIRST_SEEN, record, None, at)


def _expired(life: IdHistory, record: Tombstone, at: _At) -> TransitionStep:
    last = life.record
    if last is None:
        return _NOTHING
    idle = last.state in _IDLE
    confidence, reason = (
        (_CERTAIN, TransitionReason.FORGOTTEN) if idle else (_AMBIGUOUS, TransitionReason.NO_SUCH_STEP)
    )
    expired = _make(TransitionKind.EXPIRY, confidence, reason, last, last, at)
    at_ms = last.updated_ms if record.at_ms is None else record.at_ms
    return TransitionStep(expired._replace(at_ms=at_ms, open_ms=None))


def _ongoing(
    last: TransactionRecord, newest: Transition | None, record: TransactionRecord, at: _At
) -> TransitionStep:
    same = last.producer_id == record.producer_id and last.producer_epoch == record.producer_epoch
    if last.state is TransactionState.ONGOING and same and last.started_ms == record.started_ms:
        return TransitionStep(
            _make(TransitionKind.EXTEND, _CERTAIN, TransitionReason.PARTITION_ADDED, record, last, at)
        )
    if same and last.state in _IDLE:
        begun = _make(TransitionKind.BEGIN, _CERTAIN, TransitionReason.PARTITION_ADDED, record, last, at)
        return TransitionStep(begun, newest and _settled_by_going_on(newest, last))
    return TransitionStep(
        _make(TransitionKind.BEGIN, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP, record, last, at)
    )


def _prepare_commit(
    last: TransactionRecord, newest: Transition | None, record: TransactionRecord, at: _At
) -> TransitionStep:
    raised = _raised(last, record) if last.state is TransactionState.ONGOING else None
    confidence, reason = _AMBIGUOUS, TransitionReason.NO_SUCH_STEP
    if raised == 0:
        confidence, reason = _CERTAIN, TransitionReason.SAME_EPOCH
    elif raised == 1 and record.client_version == 2:
        confidence, reason = _CERTAIN, TransitionReason.ROUTINE_BUMP
    return TransitionStep(_make(TransitionKind.COMMIT, confidence, reason, record, last, at))


def _prepare_abort(
    last: TransactionRecord, newest: Transition | None, record: TransactionRecord, at: _At
) -> TransitionStep:
    if last.state in _IDLE and not record.partitions:
        empty = _make(TransitionKind.EMPTY_ABORT, _CERTAIN, TransitionReason.NOTHING_OPEN, record, last, at)
        return TransitionStep(empty, newest and _settled_by_going_on(newest, last))
    if last.state is not TransactionState.ONGOING or last.started_ms != record.started_ms:
        return TransitionStep(
            _make(TransitionKind.ABORT, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP, record, last, at)
        )
    return TransitionStep(_make(*_abort(last, record), record, last, at))


def _abort(last: TransactionRecord, record: TransactionRecord) -> _Verdict:
    """Judge the abort of an open transaction by its two records alone."""
    raised = _raised(last, record)
    if raised == 0:
        return TransitionKind.CLIENT_ABORT, _CERTAIN, TransitionReason.SAME_EPOCH
    if raised == 1 and record.producer_epoch > LAST_EPOCH and record.next_producer_id is not None:
        return TransitionKind.CLIENT_ABORT, _CERTAIN, TransitionReason.CLIENT_AT_LAST_EPOCH
    # Kafka 4.0.0 raised the epoch twice for the coordinator's own aborts (KAFKA-19367).
    if not (raised == 1 or (raised == 2 and record.client_version == 2)):
        return TransitionKind.ABORT, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP
    if (_open_ms(record) or 0) < 0:
        return TransitionKind.ABORT, _AMBIGUOUS, TransitionReason.CLOCK_WENT_BACK
    late = _is_late(record)
    if last.client_version == 2 and raised == 1:
        if late:
            return TransitionKind.TIMEOUT, _PROBABLE, TransitionReason.EITHER_LATE
        return TransitionKind.ABORT, _AMBIGUOUS, TransitionReason.EITHER_IN_TIME
    if late:
        return TransitionKind.TIMEOUT, _PROBABLE, TransitionReason.BROKER_LATE
    return TransitionKind.TAKEOVER, _PROBABLE, TransitionReason.BROKER_IN_TIME


def _complete(
    last: TransactionRecord, newest: Transition | None, record: TransactionRecord, at: _At
) -> TransitionStep:
    committed = record.state is TransactionState.COMPLETE_COMMIT
    prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    if last.state is not prepared:
        kind = TransitionKind.COMMIT if committed else TransitionKind.ABORT
        lost = _make(kind, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP, record, last, at)
        return TransitionStep(lost._replace(open_ms=None, completed_ms=record.updated_ms))
    ended = None
    if newest is not None and _is_end(newest):
        ended = _at_last_epoch(newest, last, record)._replace(completed_ms=record.updated_ms)
    if record.producer_id != last.producer_id:
        return TransitionStep(_rotation(last, record, at), ended)
    return TransitionStep(None, ended)


def _at_last_epoch(ended: Transition, last: TransactionRecord, record: TransactionRecord) -> Transition:
    """Revise an abort at the last epoch, where the two ends differ.

    A client's end under version 2 goes on with a new producer id (`TransactionMetadata.prepareComplete`), the
    coordinator's own keeps the old one until the next InitProducerId.
    """
    if ended.reason not in _OPEN_TO_REVISION or last.producer_epoch <= LAST_EPOCH:
        return ended
    if record.producer_id != last.producer_id:
        return _revise(ended, TransitionKind.CLIENT_ABORT, _CERTAIN, TransitionReason.CLIENT_AT_LAST_EPOCH)
    if ended.reason is TransitionReason.EITHER_IN_TIME:
        return _revise(ended, TransitionKind.TAKEOVER, _PROBABLE, TransitionReason.BROKER_AT_LAST_EPOCH)
    if ended.reason is TransitionReason.EITHER_LATE:
        return _revise(ended, TransitionKind.TIMEOUT, _PROBABLE, TransitionReason.LATE_AT_LAST_EPOCH)
    return ended


def _empty(
    last: TransactionRecord, newest: Transition | None, record: TransactionRecord, at: _At
) -> TransitionStep:
    if last.state not in _IDLE:
        return TransitionStep(
            _make(TransitionKind.REINIT, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP, record, last, at)
        )
    gap_ms = record.updated_ms - last.updated_ms if last.state is TransactionState.COMPLETE_ABORT else None
    revised, own, unsure = None, False, False
    if record.names_own_epoch(last):
        revised = newest and _settled_by_going_on(newest, last)
    elif newest is not None and gap_ms is not None and _raised(last, record) in (None, 0, 1):
        unsure = newest.reason in _OPEN_TO_REVISION
        revised, own = _after_abort(newest, last, record, gap_ms) if unsure else (None, False)
    if record.producer_id != last.producer_id:
        return TransitionStep(_rotation(last, record, at), revised)
    if own:
        return TransitionStep(None, revised)
    made = _make(*_initialised(last, newest, record), record, last, at)
    if unsure and revised is not None and revised.confidence is _AMBIGUOUS:
        made = made._replace(confidence=_AMBIGUOUS, reason=TransitionReason.CAME_BACK)
    elif unsure and made.confidence is _CERTAIN:
        # A takeover that was retried late would have written it too.
        made = made._replace(confidence=_PROBABLE)
    return TransitionStep(made._replace(gap_ms=gap_ms), revised)


def _after_abort(
    abort: Transition, last: TransactionRecord, record: TransactionRecord, gap_ms: int
) -> tuple[Transition | None, bool]:
    """Revise an abort by the initialisation after it; return too whether that one belongs to the abort."""
    gapped = abort._replace(gap_ms=gap_ms)
    soon = RETRY_MS[0] <= record.updated_ms - abort.at_ms <= RETRY_MS[1]
    if abort.reason in _LATE:
        # A takeover just between the timeout and the coordinator's scan for it leaves the same.
        same = record.producer_epoch == last.producer_epoch
        late = _revise(gapped, TransitionKind.TIMEOUT, _PROBABLE, TransitionReason.CAME_BACK_SOON)
        return (late if soon and not same else None), False
    if record.producer_id == last.producer_id and record.producer_epoch == last.producer_epoch:
        return _revise(gapped, TransitionKind.SELF_RECOVERY, _PROBABLE, TransitionReason.OWN_EPOCH), True
    if abort.reason in _BROKERS_IN_TIME:
        mine = 0 <= gap_ms <= LONGEST_RETRY_MS
        return (_revise(gapped, *_taken_over(last, record)) if mine else None), mine
    if soon:
        return _revise(gapped, *_perhaps_taken_over(last, record)), True
    if gap_ms > LONGEST_RETRY_MS:
        return _revise(gapped, TransitionKind.CLIENT_ABORT, _PROBABLE, TransitionReason.CAME_BACK_LATE), False
    return _revise(gapped, TransitionKind.ABORT, _AMBIGUOUS, TransitionReason.CAME_BACK), False


def _taken_over(last: TransactionRecord, record: TransactionRecord) -> _Verdict:
    """Judge by the timeout whether a producer initialised the id, or an Admin that fences.

    Never certain: an Admin may be given another timeout, or have ended the transaction by a first request
    without the second one that a producer made instead. A producer may be configured with the Admin's
    timeout, and leaves the same records until it begins a transaction.
    """
    if record.timeout_ms != ADMIN_TIMEOUT_MS:
        return TransitionKind.TAKEOVER, _PROBABLE, TransitionReason.CAME_BACK_SOON
    if last.timeout_ms == ADMIN_TIMEOUT_MS:
        return TransitionKind.TAKEOVER, _AMBIGUOUS, TransitionReason.DEFAULT_TIMEOUT
    return TransitionKind.ADMIN_FENCE, _AMBIGUOUS, TransitionReason.ADMIN_TIMEOUT


def _perhaps_taken_over(last: TransactionRecord, record: TransactionRecord) -> _Verdict:
    """Judge an initialisation that came as soon after an abort as the retry of a takeover.

    Under version 2 it may as well have followed the client's own abort: some frameworks initialise their
    pooled ids before every transaction.
    """
    if record.timeout_ms == ADMIN_TIMEOUT_MS != last.timeout_ms:
        return TransitionKind.ADMIN_FENCE, _AMBIGUOUS, TransitionReason.ADMIN_TIMEOUT_SOON
    return TransitionKind.TAKEOVER, _AMBIGUOUS, TransitionReason.CAME_BACK_SOON


def _initialised(last: TransactionRecord, newest: Transition | None, record: TransactionRecord) -> _Verdict:
    """Judge an initialisation of an id that had nothing open, under the same producer id."""
    raised = record.producer_epoch - last.producer_epoch
    if raised == 0 or record.names_own_epoch(last):
        return TransitionKind.SELF_RECOVERY, _CERTAIN, TransitionReason.OWN_EPOCH
    if raised != 1:
        return TransitionKind.REINIT, _AMBIGUOUS, TransitionReason.NO_SUCH_STEP
    if record.timeout_ms != ADMIN_TIMEOUT_MS:
        return TransitionKind.REINIT, _CERTAIN, TransitionReason.INITIALISED
    fenced = newest is not None and newest.kind is TransitionKind.ADMIN_FENCE
    if last.timeout_ms == ADMIN_TIMEOUT_MS and not fenced:
        return TransitionKind.REINIT, _AMBIGUOUS, TransitionReason.DEFAULT_TIMEOUT
    return TransitionKind.ADMIN_FENCE, _AMBIGUOUS, TransitionReason.ADMIN_TIMEOUT


def _rotation(last: TransactionRecord, record: TransactionRecord, at: _At) -> Transition:
    if record.producer_epoch == 0 and last.producer_epoch >= LAST_EPOCH:
        return _make(TransitionKind.ROTATION, _CERTAIN, TransitionReason.EPOCH_USED_UP, record, last, at)
    return _make(TransitionKind.INIT, _AMBIGUOUS, TransitionReason.REBORN_UNSEEN, record, last, at)


def _settled_by_going_on(newest: Transition, last: TransactionRecord) -> Transition | None:
    """Revise what came before by the fact that its producer goes on.

    A client whose own abort ended the transaction goes on with the next epoch, but so does one whose abort
    came after a foreign InitProducerId had ended it: the coordinator answers both with success
    (`TransactionCoordinator.endTransaction` takes the second for a retry). The same holds for an abort after
    the timeout, where the coordinator was most likely first. An Admin that fences never begins a transaction.
    """
    if last.state is TransactionState.COMPLETE_ABORT and newest.reason is TransitionReason.EITHER_IN_TIME:
        return _revise(newest, TransitionKind.CLIENT_ABORT, _PROBABLE, TransitionReason.CLIENT_WENT_ON)
    if last.state is TransactionState.EMPTY and newest.reason in _FENCE_LIKE:
        kind = TransitionKind.REINIT if newest.open_ms is None else TransitionKind.TAKEOVER
        sure = _PROBABLE if kind is TransitionKind.TAKEOVER or newest.gap_ms is not None else _CERTAIN
        sure = _AMBIGUOUS if newest.reason is TransitionReason.ADMIN_TIMEOUT_SOON else sure
        return _revise(newest, kind, sure, TransitionReason.WENT_ON_TO_BEGIN)
    return None


def _raised(last: TransactionRecord, record: TransactionRecord) -> int | None:
    """Return by how much the epoch rose, None where the producer id is another one."""
    return record.producer_epoch - last.producer_epoch if record.producer_id == last.producer_id else None


def _is_late(record: TransactionRecord) -> bool:
    open_ms = _open_ms(record)
    never = record.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
    return open_ms is not None and not never and open_ms >= record.timeout_ms


def _open_ms(record: TransactionRecord) -> int | None:
    return None if record.started_ms is None else record.updated_ms - record.started_ms


def _is_end(transition: Transition) -> bool:
    return transition.open_ms is not None and transition.completed_ms is None


def _revise(
    transition: Transition, kind: TransitionKind, confidence: Confidence, reason: TransitionReason
) -> Transition:
    return transition._replace(kind=kind, confidence=confidence, reason=reason)


def _make(
    kind: TransitionKind,
    confidence: Confidence,
    reason: TransitionReason,
    record: TransactionRecord,
    last: TransactionRecord | None,
    at: _At,
) -> Transition:
    open_ms = _open_ms(record) if record.state in PREPARED_STATES else None
    epochs = record.producer_epoch, last.producer_epoch if last else None
    first = kind, confidence, reason, record.updated_ms, record.producer_id, *epochs, record.timeout_ms
    return new_tuple(Transition, (*first, open_ms, None, None, *at))


_BY_STATE: dict[
    TransactionState, Callable[[TransactionRecord, Transition | None, TransactionRecord, _At], TransitionStep]
] = {
    TransactionState.EMPTY: _empty,
    TransactionState.ONGOING: _ongoing,
    TransactionState.PREPARE_COMMIT: _prepare_commit,
    TransactionState.PREPARE_ABORT: _prepare_abort,
    TransactionState.COMPLETE_COMMIT: _complete,
    TransactionState.COMPLETE_ABORT: _complete,
}
