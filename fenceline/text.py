"""Sentences about a cluster, for pages and files. Pure.

Their instants and ages are parts of their own: a page keeps them ticking, a file writes them out. They
explain the verdict on a transition to an operator, and the fate of an offset: what happened to its record,
and its readers.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fenceline.decode.record_batches import BatchWriters, SequenceBreak, SequenceStep, sequence_step
from fenceline.facts import NOT_FROM_LOG, Confidence, Transition, TransitionKind, TransitionReason
from fenceline.formatting import count_noun, format_clock, format_duration
from fenceline.kafka.partitions import ProducerState, VerdictReason
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of

_WORDS: dict[TransitionReason, str] = {
    TransitionReason.FIRST_SEEN: (
        "The oldest record of this id that is still in the topic: what came before is not known."
    ),
    TransitionReason.NEW_ID: (
        "The first record of this id, and no earlier record is missing from its partition."
    ),
    TransitionReason.REBORN_UNSEEN: (
        "Producer id {producer_id} is new though epoch {before} was not used up: the coordinator had "
        "forgotten the id in between, and the record of that was not observed."
    ),
    TransitionReason.PARTITION_ADDED: (
        "The coordinator added a partition, or a group's offsets, at epoch {epoch}."
    ),
    TransitionReason.SAME_EPOCH: (
        "Ended at epoch {epoch}, the one it was begun with, after {open}: its producer, or a process that "
        "continues its session, ended it (EndTxn, transaction version 0 or 1)."
    ),
    TransitionReason.ROUTINE_BUMP: (
        "Ended after {open}; the epoch rose from {before} to {epoch}, as it does at each end under "
        "transaction version 2 (KIP-890). That is routine, not fencing."
    ),
    TransitionReason.BROKER_IN_TIME: (
        "The epoch rose from {before} to {epoch}, as in the coordinator's own abort, after {open} of the "
        "{timeout} allowed: consistent with an InitProducerId. The log does not record who sent it; the next "
        "record may show it."
    ),
    TransitionReason.BROKER_LATE: (
        "The epoch rose from {before} to {epoch}, as in the coordinator's own abort, after {open} where "
        "{timeout} were allowed."
    ),
    TransitionReason.EITHER_IN_TIME: (
        "Under transaction version 2 (KIP-890) a client's abort and the coordinator's leave the same record: "
        "epoch {before} to {epoch}, after {open} of the {timeout} allowed. The next record of the id may "
        "decide."
    ),
    TransitionReason.EITHER_LATE: (
        "Open for {open} where {timeout} were allowed. Under transaction version 2 (KIP-890) a client's "
        "abort and the coordinator's leave the same record, so a client's own abort shortly before the "
        "coordinator's is not ruled out."
    ),
    TransitionReason.CLOCK_WENT_BACK: (
        "Its end is stamped {back} before its start: two coordinators' clocks differ, so whether its time "
        "was up is not known."
    ),
    TransitionReason.CLIENT_WENT_ON: (
        "The next record continues with epoch {epoch}, which the coordinator returns to the client that "
        "aborts. A foreign InitProducerId just before that client's abort leaves the same records."
    ),
    TransitionReason.CAME_BACK_SOON: (
        "The id was initialised again {gap} after the abort was complete, within the time in which "
        "clients retry."
    ),
    TransitionReason.CAME_BACK: (
        "The id was initialised again {gap} after an abort was complete. Records cannot decide between the "
        "client's own abort followed by a new initialisation and a takeover whose client retried after "
        "CONCURRENT_TRANSACTIONS; clients retry after 20 ms to 2 s, which does not fit."
    ),
    TransitionReason.CAME_BACK_LATE: (
        "The id was next initialised {gap} after the abort was complete. No known client waits that long "
        "before it retries, so its own client most likely aborted; a takeover that was never retried leaves "
        "the same records."
    ),
    TransitionReason.OWN_EPOCH: (
        "Initialised again at epoch {epoch}, without a new one: the same producer recovered by itself "
        "(KIP-360)."
    ),
    TransitionReason.INITIALISED: (
        "Nothing was open, and the epoch rose from {before} to {epoch}: a restart, a takeover of the idle "
        "id, a producer's own bump or a fence with a timeout of its own leave the same record."
    ),
    TransitionReason.DEFAULT_TIMEOUT: (
        "Initialised again with a timeout of 30 s, which it had before and which is also what the Admin "
        "client writes when it fences: a producer or an operator."
    ),
    TransitionReason.ADMIN_TIMEOUT: (
        "The id's timeout became 30 s, which the Admin client writes when it fences, and nothing was begun "
        "since: a fence, or a producer that is configured with 30 s and waits for work."
    ),
    TransitionReason.ADMIN_TIMEOUT_SOON: (
        "The id was initialised again {gap} after the abort was complete, with a timeout of 30 s, which the "
        "Admin client writes when it fences: a fence, or a producer that is configured with 30 s. Under "
        "transaction version 2 (KIP-890) a client's own abort just before that is not ruled out."
    ),
    TransitionReason.WENT_ON_TO_BEGIN: (
        "Whoever initialised it went on with that epoch, which an operator's fence never does."
    ),
    TransitionReason.EPOCH_USED_UP: (
        "Epoch {before} was the last there is, so the coordinator went on with the new producer id "
        "{producer_id}."
    ),
    TransitionReason.NOTHING_OPEN: (
        "An abort with no transaction open and no partition: clients of transaction version 2 (KIP-890) "
        "write it for an abort of an empty transaction, or after a failed send."
    ),
    TransitionReason.FORGOTTEN: (
        "The coordinator wrote a tombstone: the id was idle for longer than transactional.id.expiration.ms."
    ),
    TransitionReason.NO_SUCH_STEP: (
        "Kafka's state machine has no such step from the record before (epoch {before} to {epoch}): records"
        " are missing."
    ),
    TransitionReason.CLIENT_AT_LAST_EPOCH: (
        "Epoch {before} was the last one, and the abort went on under a new producer id, as only the end "
        "that a client asks for does (EndTxn, transaction version 2)."
    ),
    TransitionReason.BROKER_AT_LAST_EPOCH: (
        "Epoch {before} was the last one, and the abort kept producer id {producer_id}, as only the "
        "coordinator's own abort does, after {open} of the {timeout} allowed: consistent with an "
        "InitProducerId. A client's abort leaves the same only where its coordinator moved meanwhile."
    ),
    TransitionReason.LATE_AT_LAST_EPOCH: (
        "Epoch {before} was the last one, and the abort kept producer id {producer_id}, as only the "
        "coordinator's own abort does, after {open} where {timeout} were allowed."
    ),
    TransitionReason.FENCED_BY_ACTION: (
        "Fenced by {action}: the coordinator answered its InitProducerId with this producer id and epoch."
    ),
    TransitionReason.ABORTED_BY_ACTION: (
        "Aborted by {action}: its EndTxn was confirmed for this producer id and epoch. The producer's own "
        "abort just before that would leave the same record."
    ),
    TransitionReason.COMMITTED_BY_ACTION: (
        "Committed after {open} by {action}: its EndTxn was confirmed for this producer id and epoch."
    ),
}

#: OWN_EPOCH for an initialisation that raised the epoch.
_OWN_EPOCH_RAISED = (
    "The epoch rose from {before} to {epoch}, and the record names {before} as the last epoch: the same "
    "producer, or a process that continues its session, initialised the id again (KIP-360)."
)

_GROUNDS: dict[VerdictReason, str] = {
    VerdictReason.OWNED: "its coordinator has it open in this partition and will end it",
    VerdictReason.TWO_PHASE: (
        "its coordinator has it open; it takes part in a two-phase commit and never times out"
    ),
    VerdictReason.PAST_TIMEOUT: "its coordinator has it open, but should have aborted it by now",
    VerdictReason.STUCK_IN_PREPARE: "it is decided, but its coordinator has not written its marker here",
    VerdictReason.NOT_ITS_PARTITION: "the coordinator of its id knows nothing of an open transaction here",
    VerdictReason.NO_SUCH_PRODUCER: (
        "no transactional id has this producer id, and none can be hidden from us"
    ),
    VerdictReason.MAY_BE_HIDDEN: "no id that we may see has this producer id, but some may be hidden from us",
    VerdictReason.UNSEEN: "a coordinator or the partition's leader could not be asked",
    VerdictReason.SEEN_ONCE: "it was seen once only; the second poll is to come",
}
_PLAIN: dict[RecordFate, str] = {
    RecordFate.PLAIN: "It was written outside any transaction.",
    RecordFate.COMPACTED: "There is no record at this offset: compaction removed it, or the log skips it.",
    RecordFate.OPEN: "Its transaction is open: it has no marker yet.",
    RecordFate.UNKNOWN: (
        "Whether its transaction was committed is not known: no marker was found in what was read behind it. "
        "It is known once the last stable offset has passed it."
    ),
}

_BREAKS = {
    SequenceStep.GAP: "batches between them were compacted, or the leader had lost its producer state",
    SequenceStep.REPEAT: "the leader had lost its producer state, and may have stored a resend",
}


class Instant(NamedTuple):
    """An instant within a sentence, in ms since 1970: `02:27:50 UTC`."""

    at_ms: int


class Age(NamedTuple):
    """The age of an instant: `12 min 2 s`."""

    since_ms: int


#: The parts of a sentence, in order.
Sentence = tuple[str | Instant | Age, ...]


def plain_text(sentence: Sequence[str | Instant | Age], *, now_ms: int) -> str:
    """Return a sentence as text, with its ages at an instant."""
    return "".join(_plain(part, now_ms) for part in sentence)


def as_of(sentence: Sequence[str | Instant | Age], at_ms: int) -> Sentence:
    """Return a sentence with fixed ages, as of an instant."""
    return tuple(_plain(part, at_ms) if isinstance(part, Age) else part for part in sentence)


def _plain(part: str | Instant | Age, now_ms: int) -> str:
    if isinstance(part, Instant):
        return format_clock(part.at_ms)
    if isinstance(part, Age):
        # Fractions of a second would only flicker.
        age_ms = max(0, now_ms - part.since_ms)
        return format_duration(age_ms // 1_000 * 1_000)
    return part


def verdict_reason(ground: VerdictReason) -> str:
    return _GROUNDS[ground]


def explain_transition(transition: Transition, action: str = "") -> str:
    """Return the evidence for a transition's kind and confidence, in one or two sentences.

    `action` names our action that caused it, "olga, action 12", "" if unknown.
    """
    text = _words_for(transition).format(
        action=action or "an action of Fenceline",
        producer_id=transition.producer_id,
        epoch=transition.producer_epoch,
        before="unknown" if transition.previous_epoch is None else transition.previous_epoch,
        timeout=format_duration(transition.timeout_ms),
        open=_span(transition.open_ms),
        back=_span(-(transition.open_ms or 0)),
        gap=_span(transition.gap_ms),
    )
    return " ".join(filter(None, (text, _alternative(transition), _source(transition))))


def _source(transition: Transition) -> str:
    """Return the source of a transition if it is not the log."""
    if transition.partition != NOT_FROM_LOG:
        return ""
    return (
        "Known from what its coordinator reports and from markers in topics, not from the log: "
        "transactions in between may be missing."
    )


def _words_for(transition: Transition) -> str:
    recovered = transition.reason is TransitionReason.OWN_EPOCH and transition.open_ms is None
    if recovered and transition.producer_epoch != transition.previous_epoch:
        return _OWN_EPOCH_RAISED
    return _WORDS[transition.reason]


def _alternative(transition: Transition) -> str:
    """Return what else leaves the same records, if the verdict depends on it; "" otherwise."""
    match transition.reason, transition.kind, transition.confidence:
        case TransitionReason.CAME_BACK_SOON, TransitionKind.TIMEOUT, _:
            opened, allowed = _span(transition.open_ms), format_duration(transition.timeout_ms)
            return (
                f"It was open for {opened} where {allowed} were allowed: a timeout, or a takeover after it."
            )
        case TransitionReason.CAME_BACK_SOON, _, Confidence.AMBIGUOUS:
            return (
                "A takeover whose client retried after CONCURRENT_TRANSACTIONS, a fence with a timeout of "
                "its own, or the client's own abort followed by a new initialisation: under transaction "
                "version 2 (KIP-890) records cannot decide."
            )
        case TransitionReason.CAME_BACK_SOON, _, _:
            return (
                "Consistent with a client retrying after CONCURRENT_TRANSACTIONS; a fence with a timeout of "
                "its own leaves the same records."
            )
        case TransitionReason.OWN_EPOCH, _, Confidence.PROBABLE:
            return "An abort by another's InitProducerId just before that leaves the same records."
    return ""


def _span(ms: int | None) -> str:
    return "an unknown time" if ms is None else format_duration(max(0, ms))


def explain_fate(look: OffsetLook) -> Sentence:
    fate = fate_of(look)
    if fate is RecordFate.DELETED:
        return (
            f"The log begins at offset {look.log_start:,} now: retention or a deletion removed this record.",
        )
    if fate is RecordFate.NOT_WRITTEN:
        return (f"The log ends at offset {look.high_watermark:,}: nothing is written here yet.",)
    batch = look.batch
    if fate is RecordFate.MARKER and batch is not None:
        whose = f"producer {batch.producer_id} at epoch {batch.producer_epoch}"
        return (f"This is the {batch.marker} marker of {whose}, which no consumer gets.",)
    if fate in (RecordFate.COMMITTED, RecordFate.ABORTED):
        return (f"Its transaction was {fate.value}{'' if look.marker else '.'}", *_by_marker(look))
    return (_PLAIN[fate],)


def _by_marker(look: OffsetLook) -> Sentence:
    if (marker := look.marker) is None:
        return (" Its marker lies beyond what was read.",)
    return (f" by the marker at offset {marker.first:,}, written at ", Instant(marker.max_timestamp_ms), ".")


def explain_readers(look: OffsetLook) -> Sequence[str]:
    """Return what consumers of each isolation level read, a sentence each; none without a record."""
    fate = fate_of(look)
    if fate in (RecordFate.DELETED, RecordFate.NOT_WRITTEN, RecordFate.COMPACTED, RecordFate.MARKER):
        return ()
    return ("Consumers with read_uncommitted get it.", _committed_readers(look, fate))


def explain_sequence(look: OffsetLook) -> str:
    """Describe how a batch's sequence follows its producer's last one; "" without a sequence.

    A leader stores a batch that begins with the last number plus one, drops a batch that it has stored
    already, and refuses a gap (KIP-98; `ProducerAppendInfo.checkSequence`).
    """
    batch, before = look.batch, look.batch_before
    if batch is None or batch.base_sequence < 0:
        return ""
    numbers = f"Sequence {batch.base_sequence:,} to {batch.last_sequence:,}"
    if before is None:
        started = batch.base_sequence == 0
        return f"{numbers}{', the first of its epoch' if started else '; the batch before it was not read'}."
    follows = f"{numbers} after {before.last_sequence:,} at offset {before.last:,}"
    step = sequence_step(before.last_sequence, batch.base_sequence)
    if step is SequenceStep.NEXT:
        return f"{follows}: the next one, so nothing was stored twice or left out."
    return f"{follows}: {_BREAKS[step]}."


def explain_sequences(writers: BatchWriters) -> str:
    """Return whether the newest batches of a partition are in sequence; "" if none can be compared."""
    if not writers.following:
        return ""
    number = count_noun(writers.following, "batch")
    if not writers.broken:
        return f"{number} checked: each begins with the next sequence of its producer, so none is a resend."
    return f"{writers.broken:,} of {number} do not begin with the next sequence of their producer."


def explain_break(of: SequenceBreak) -> str:
    return (
        f"Offset {of.offset:,}: producer {of.producer_id}, epoch {of.producer_epoch}, "
        f"sequence {of.found:,} after {of.last:,}: {_BREAKS[of.step]}."
    )


def explain_progress(before: ProducerState | None, now: ProducerState) -> str:
    """Describe a producer's progress since an earlier answer of the same replica."""
    if before is None:
        return "not known then"
    if now.producer_epoch != before.producer_epoch:
        return f"epoch {before.producer_epoch} → {now.producer_epoch}"
    if now.last_sequence == before.last_sequence:
        return "nothing new"
    if sequence_step(before.last_sequence, now.last_sequence) is SequenceStep.REPEAT:
        return f"went back from {before.last_sequence:,}: its state was lost"
    return f"+{(now.last_sequence - before.last_sequence) % 2**31:,}"


def _committed_readers(look: OffsetLook, fate: RecordFate) -> str:
    if fate is RecordFate.ABORTED:
        return "Consumers with read_committed never get it."
    if look.offset < look.lso:
        return "Consumers with read_committed get it." if fate is not RecordFate.UNKNOWN else ""
    waits = f"the last stable offset is {look.lso:,}"
    if fate in (RecordFate.COMMITTED, RecordFate.PLAIN):
        return f"Consumers with read_committed wait for an older transaction that is open here: {waits}."
    return f"Consumers with read_committed do not get it now: {waits}."
