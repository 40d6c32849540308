"""The fate of an offset in sentences: what happened to its record, and its readers."""

from collections.abc import Sequence

from fenceline.decode.record_batches import BatchWriters, SequenceBreak, SequenceStep, sequence_step
from fenceline.formatting import count_noun
from fenceline.kafka.partitions import ProducerState
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of
from fenceline.text.sentences import Instant, Sentence

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
