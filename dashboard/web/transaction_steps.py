"""The steps of a transaction from its id to its end (KIP-98), with the evidence for each step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dashboard.labels.transition import TRANSITION_STYLES
from dashboard.models import Transaction
from dashboard.web.transaction_timeline import NewestTransaction
from fenceline.decode import text
from fenceline.facts import (
    NOT_FROM_LOG,
    NOT_REPORTED,
    OPEN_STATES,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Confidence,
    TopicPartitions,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.formatting import count_noun, format_duration
from fenceline.kafka.added_offsets import NOTHING_ADDED, TransactionOffsets
from fenceline.kafka.commits import TOPIC as OFFSETS
from fenceline.kafka.coordinator import java_hash
from fenceline.text import explain_transition

#: Maximum later additions that are listed one by one.
_MOST_ADDED = 6
_PREPARED = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}
_COMPLETE = {TransactionState.COMPLETE_COMMIT: "committed", TransactionState.COMPLETE_ABORT: "aborted"}


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """One step: done at `at_ms`, waiting since `since_ms`, in the future, or unknown."""

    state: str
    words: str
    evidence: str = ""
    at_ms: int | None = None
    since_ms: int | None = None
    #: For the step that adds offsets: the known offsets, and why others are unknown.
    offsets: TransactionOffsets | None = None


def lifecycle_steps(
    row: Transaction,
    partitions: Sequence[TopicPartitions],
    log_partitions: int,
    newest: NewestTransaction,
    broker: int | None = None,
    actions: Mapping[int, str] = MappingProxyType({}),
    observed: TransactionOffsets = NOTHING_ADDED,
) -> Sequence[TransactionStep]:
    """Return the steps that follow from the newest record and the transitions before it.

    `actions` has, by the offset of a transition, our action that caused it; `observed` are the known offsets
    of the transaction.

    `log_partitions` is the number of partitions of `__transaction_state`, 0 if unknown; `broker` leads the
    id's.
    """
    coordinator = TransactionStep(
        "done", "Coordinator found by the id", _place(row, log_partitions) + _led(row, broker)
    )
    epoch = "" if row.producer_epoch == NOT_REPORTED else f", epoch {row.producer_epoch}"
    producer = TransactionStep(
        "done",
        f"Producer id {row.producer_id}{epoch}",
        f"{_initialised(newest)}; {_session(row)}",
        at_ms=newest.initialised_ms,
    )
    begun = _begun(row, partitions, newest, observed)
    return list(_in_order([coordinator, producer, *begun, *_ended(row, newest, actions)]))


def _in_order(steps: Iterable[TransactionStep]) -> Iterator[TransactionStep]:
    """Yield steps with ascending instants; an earlier instant than before is replaced by the reason.

    Each record has an instant of the broker that coordinated the id then. The steps are in the order of the
    log, so an earlier instant is from another broker's clock, or the clock was set back.
    """
    latest_ms: int | None = None
    for step in steps:
        if step.at_ms is None or latest_ms is None or step.at_ms >= latest_ms:
            latest_ms = latest_ms if step.at_ms is None else step.at_ms
            yield step
        else:
            back = (
                f"its instant is {format_duration(latest_ms - step.at_ms)} before the step above: "
                f"{_ANOTHER_CLOCK}"
            )
            yield replace(step, at_ms=None, evidence="; ".join(filter(None, (step.evidence, back))))


_ANOTHER_CLOCK = "another broker coordinates the id since then, or its clock was set back"


def _place(row: Transaction, log_partitions: int) -> str:
    if row.log_offset == NOT_FROM_LOG:
        return "state reported by the coordinator; no record in the log"
    where = f"__transaction_state-{row.log_partition}, offset {row.log_offset:,}"
    if not log_partitions:
        return where
    hashed = abs(java_hash(text.unescape_text(row.transactional_id)))
    return f"hash {hashed:,} mod {log_partitions} → {where}"


def _led(row: Transaction, broker: int | None) -> str:
    if broker is not None:
        return f" → broker {broker}"
    # Without a known partition, its leader cannot be missing.
    return "" if row.log_partition == NOT_REPORTED else "; its leader is not known yet"


def _initialised(newest: NewestTransaction) -> str:
    if newest.initialised is None:
        return "InitProducerId precedes the recorded history"
    before = newest.initialised.previous_epoch
    was = "" if before is None else f", after epoch {before}"
    return f"InitProducerId: {TRANSITION_STYLES[newest.initialised.kind].words}{was}"


def _session(row: Transaction) -> str:
    if row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return "two-phase commit: no timeout"
    if row.timeout_ms == NOT_REPORTED:
        return "timeout not known yet"
    return f"transaction timeout {format_duration(row.timeout_ms)}"


def _begun(
    row: Transaction,
    partitions: Sequence[TopicPartitions],
    newest: NewestTransaction,
    observed: TransactionOffsets,
) -> Iterator[TransactionStep]:
    if row.state == TransactionState.EMPTY:
        fenced = (
            newest.initialised is not None and newest.initialised.reason is TransitionReason.FENCED_BY_ACTION
        )
        yield TransactionStep(
            "waiting",
            "Waiting for a producer" if fenced else "Waiting for the first record",
            "fenced; no producer has initialised it since" if fenced else "initialised, nothing sent yet",
            since_ms=row.updated_ms,
        )
        yield TransactionStep("ahead", "Partitions added")
        return
    if newest.end is not None and newest.end.kind is TransitionKind.EMPTY_ABORT:
        yield TransactionStep("done", "Nothing begun", "aborted before the first record")
        return
    begun = "" if newest.begun is None else f"first partition added, {_offset(newest.begun)}"
    yield TransactionStep("done", "Begun", begun, at_ms=row.started_ms)
    data = [part for part in partitions if part.topic != OFFSETS]
    if data:
        number = sum(len(part.partitions) for part in data)
        yield TransactionStep("done", f"{count_noun(number, 'partition')} added", _topics(data))
    yield from _added(newest)
    if observed.offsets or len(data) < len(partitions):
        kind = "a read-process-write transaction"
        yield TransactionStep("done", "Offsets added", kind, offsets=observed)
    elif observed.missing:
        yield TransactionStep("unknown", "Offsets: not known", offsets=observed)
    if not partitions and row.state in OPEN_STATES:
        yield TransactionStep("ahead", "Partitions added")


def _added(newest: NewestTransaction) -> Iterator[TransactionStep]:
    """Yield the additions of partitions after the start; only the newest record has all partitions."""
    for extended in newest.extended[:_MOST_ADDED]:
        yield TransactionStep("done", "More added", _offset(extended), at_ms=extended.at_ms)
    if len(newest.extended) > _MOST_ADDED:
        rest = newest.extended[_MOST_ADDED:]
        yield TransactionStep("done", f"And {count_noun(len(rest), 'time')} more", at_ms=rest[-1].at_ms)


def _offset(transition: Transition) -> str:
    """Return the offset of a transition's record in the log; inferred transitions have none."""
    known = transition.partition != NOT_FROM_LOG
    return f"offset {transition.offset:,}" if known else "by its coordinator's report"


def _topics(data: Sequence[TopicPartitions]) -> str:
    shown = ", ".join(part.topic for part in data[:4])
    return shown if len(data) <= 4 else f"{shown} and {len(data) - 4:,} more topics"


def _ended(
    row: Transaction, newest: NewestTransaction, actions: Mapping[int, str]
) -> Iterator[TransactionStep]:
    state = TransactionState(row.state)
    if state in _COMPLETE or state in _PREPARED:
        yield _decided(row, state, newest.end, actions)
    if state in _COMPLETE:
        # This record was stamped before the first marker was sent, so it lacks later events.
        yield TransactionStep("done", "Markers sent", _marked(newest.end), at_ms=row.updated_ms)
        yield TransactionStep("done", "Complete", "every marker is written")
    elif state in _PREPARED:
        yield TransactionStep("waiting", "Markers being written to its partitions", since_ms=row.updated_ms)
        yield TransactionStep("ahead", "Complete")
    else:
        if state is TransactionState.ONGOING:
            yield TransactionStep("waiting", "Waiting for the producer to end it", since_ms=row.started_ms)
        yield TransactionStep("ahead", "End transaction")
        yield TransactionStep("ahead", "Markers written")
        yield TransactionStep("ahead", "Complete")


def _decided(
    row: Transaction, state: TransactionState, end: Transition | None, actions: Mapping[int, str]
) -> TransactionStep:
    """The decision: commit or abort, its cause as far as the records show it, and the evidence."""
    words = f"Ended: {_COMPLETE[state]}" if state in _COMPLETE else f"Decided: {_PREPARED[state]}"
    if end is None:
        known = state in _PREPARED
        why = "only the coordinator can complete it" if known else "time not recorded, only the completion"
        return TransactionStep("done", words, why, at_ms=row.updated_ms if known else None)
    sure = "" if end.confidence is Confidence.CERTAIN else f" ({end.confidence})"
    cause = "" if end.kind is TransitionKind.COMMIT else f" · {TRANSITION_STYLES[end.kind].words}{sure}"
    return TransactionStep(
        "done", f"{words}{cause}", explain_transition(end, actions.get(end.offset, "")), at_ms=end.at_ms
    )


def _marked(end: Transition | None) -> str:
    if end is None or end.completed_ms is None or end.completed_ms < end.at_ms:
        return ""
    return f"from {format_duration(end.completed_ms - end.at_ms)} after the decision on"
