"""The page of a transaction in a sentence: its block and the start of it, else its state."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dashboard.evaluation.blocking import NamedPartition, Waits
from dashboard.models import Transaction
from dashboard.web.headlines.detail import BlockedConsumer, DetailHeadline, blocked_words
from fenceline.facts import (
    NOT_REPORTED,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Confidence,
    TransactionState,
    Transition,
    TransitionKind,
)
from fenceline.formatting import format_duration, list_names
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.plans.producers import DECIDED
from fenceline.text import Age, Instant, Sentence

_NAMED = 2
#: How a transaction ended without a commit: the words before and after the instant.
_CAUSES: Mapping[TransitionKind, tuple[str, str]] = {
    TransitionKind.TAKEOVER: ("Its producer was fenced at ", " by another one with the same id"),
    TransitionKind.ADMIN_FENCE: ("Its producer was fenced at ", " by an administrator"),
    TransitionKind.ADMIN_ABORT: ("It was aborted at ", " by an action of Fenceline"),
    TransitionKind.TIMEOUT: ("Its coordinator aborted it at ", " because its timeout had passed"),
    TransitionKind.CLIENT_ABORT: ("Its producer aborted it at ", ""),
    TransitionKind.ABORT: (
        "It was aborted at ",
        ", by its producer or its coordinator: records cannot decide",
    ),
}


def transaction_headline(
    row: Transaction,
    waits: Waits,
    places: Sequence[NamedPartition],
    *,
    median_ms: float | None = None,
    fenced_by: str = "",
    recent: Sequence[Transition] = (),
    now_ms: int,
) -> DetailHeadline:
    """Return the current state of a transactional id in words.

    `median_ms` is the usual open time of its
    transactions. `fenced_by` is the user who fenced it by an action, "" for none or if its producer has
    returned. `recent` are its last transitions, newest first.
    """
    ended, cause = _explanation(row, waits, now_ms), _last_cause(recent)
    if cause and row.is_open:
        ended = (*ended, " Before: ", *_lowered(cause))
    if blocked := [place for place in places if place.blocked_ms is not None]:
        return DetailHeadline(_blocks(blocked, waits), ended)
    if row.state == TransactionState.ONGOING:
        return DetailHeadline(_open(row, median_ms), (*ended, *_before_end(row)))
    if decision := DECIDED.get(TransactionState(row.state)):
        sentence = f"Its coordinator decided to {decision} it "
        return DetailHeadline((sentence, Age(row.updated_ms), " ago."), ended)
    if row.state == TransactionState.COMPLETE_COMMIT:
        readable = "read_committed consumers can read its records."
        return DetailHeadline(("It was committed ", Age(row.updated_ms), " ago."), ended or (readable,))
    if row.state == TransactionState.COMPLETE_ABORT:
        lost = "read_committed consumers do not get its records."
        return DetailHeadline(cause or ("It was aborted ", Age(row.updated_ms), " ago."), ended or (lost,))
    return _idle(row, fenced_by, cause)


def _last_cause(recent: Sequence[Transition]) -> Sentence:
    """Return how its last transaction ended; empty after a commit, and if unknown."""
    ends = (move for move in recent if move.kind in _CAUSES or move.kind is TransitionKind.COMMIT)
    last = next(ends, None)
    if last is None or last.kind not in _CAUSES:
        return ()
    before, after = _CAUSES[last.kind]
    doubt = "" if last.confidence is Confidence.CERTAIN else f" ({last.confidence})"
    return (before, Instant(last.at_ms), f"{after}{doubt}.")


def _lowered(sentence: Sentence) -> Sentence:
    first = str(sentence[0])
    return (f"{first[:1].lower()}{first[1:]}", *sentence[1:])


def expired_headline(expired_ms: int | None) -> DetailHeadline:
    """Return the headline of an id that its coordinator has expired; None if the time is unknown."""
    when: Sentence = (".",) if expired_ms is None else (" ", Age(expired_ms), " ago.")
    why = "Kafka expires an id that was idle for 7 days (transactional.id.expiration.ms); "
    return DetailHeadline(("Its coordinator expired it", *when), (f"{why}its recorded history is below.",))


def _blocks(blocked: Sequence[NamedPartition], waits: Waits) -> Sentence:
    names = list_names([f"{place.topic}-{place.partition}" for place in blocked], _NAMED)
    since_ms = min(place.blocked_ms for place in blocked if place.blocked_ms is not None)
    return (f"It has blocked {names} for ", Age(since_ms), f"; {blocked_words(_consumers(waits))}.")


def _consumers(waits: Waits) -> Sequence[BlockedConsumer]:
    """Return the groups and queries at its LSOs, each with the sum of its lags there."""
    behind: dict[str, list[int]] = defaultdict(list)
    for wait in waits.waiting:
        if not wait.pending:
            behind[wait.group] += [] if wait.behind is None else [wait.behind]
    groups = [(name, sum(known) if known else None) for name, known in behind.items()]
    names = dict.fromkeys(query.name for query in waits.queries)
    return [*groups, *((name, None) for name in names)]


def _open(row: Transaction, median_ms: float | None) -> Sentence:
    if row.started_ms is None:
        return ("It is open; its start is unknown.",)
    usual = "" if median_ms is None else f"; its own median is {format_duration(round(median_ms))}"
    return ("It has been open for ", Age(row.started_ms), f"{usual}.")


def _before_end(row: Transaction) -> Sentence:
    if not row.partition_count:
        return ()
    return (" Until then read_committed consumers of its partitions stop at its first record.",)


def _idle(row: Transaction, fenced_by: str, cause: Sentence) -> DetailHeadline:
    if fenced_by:
        sentence = (f"It is idle, fenced by {fenced_by} at ", Instant(row.updated_ms), ".")
        return DetailHeadline(sentence, ("No producer has initialised it since.",))
    since = " ago and has not begun a transaction since."
    return DetailHeadline(
        cause or ("It is idle.",),
        ("It is idle. " if cause else "", "Its producer initialised ", Age(row.updated_ms), since),
    )


def _explanation(row: Transaction, waits: Waits, now_ms: int) -> Sentence:
    """Return how it will end; empty if it has ended."""
    if waits.verdict == PartitionVerdict.HANGING:
        return ("It is orphaned: its coordinator will not complete it. Abort markers end it.",)
    if decision := DECIDED.get(TransactionState(row.state)):
        return (f"The coordinator is writing the markers of its {decision}; this cannot be cancelled.",)
    if row.state != TransactionState.ONGOING:
        return ()
    if row.started_ms is None or row.timeout_ms == NOT_REPORTED:
        return ("When it times out is unknown.",)
    if row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return ("It is part of a two-phase commit and does not time out.",)
    ends_ms = row.started_ms + row.timeout_ms
    if ends_ms < now_ms:
        passed = f"Its timeout of {format_duration(row.timeout_ms)} passed at "
        return (passed, Instant(ends_ms), "; its coordinator has not aborted it yet.")
    return ("Its coordinator aborts it at ", Instant(ends_ms), " unless its producer ends it first.")
