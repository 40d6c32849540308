"""The headers of record batches, and statistics of their writers. Their records are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS, StrEnum

#: Maximum idempotent producers that are named.
_MOST_PRODUCERS = 100
#: Maximum batches out of sequence that are named.
_MOST_BREAKS = 20
_NO_PRODUCER = -1


class RecordBatch(NamedTuple):
    """The header of one record batch (message format v2), offsets inclusive."""

    first: int
    last: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    #: "commit" or "abort" for an end-of-transaction marker, "" for data.
    marker: str
    records: int
    #: The largest timestamp in it, in milliseconds; for a marker, by the clock of the leader that wrote it.
    max_timestamp_ms: int = -1
    #: The sequence of its first record, by which a leader recognises a resend; -1 for none.
    base_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of its last record; it wraps around after 2147483647 (`DefaultRecordBatch`)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last - self.first) % 2**31


class SequenceStep(StrEnum):
    """How a sequence follows the last one of the same producer and epoch."""

    NEXT = "next"
    #: Sequences between the two are missing.
    GAP = "gap"
    #: The sequence has occurred before.
    REPEAT = "repeat"


def sequence_step(last: int, found: int) -> SequenceStep:
    """Return how a batch's sequence follows the last one; both wrap around after 2147483647."""
    step = (found - last) % 2**31
    if step == 1:
        return SequenceStep.NEXT
    return SequenceStep.GAP if 1 < step < 2**30 else SequenceStep.REPEAT


class SequenceBreak(NamedTuple):
    """A stored batch whose first sequence is not the last sequence of its producer and epoch plus one."""

    offset: int
    producer_id: int
    producer_epoch: int
    #: The last sequence of the batch before.
    last: int
    found: int
    step: SequenceStep


@dataclass(frozen=True, **SLOTS)
class BatchWriters:
    """The number of records by kind of producer in a span of offsets, from the headers of their batches."""

    from_offset: int
    #: The first offset after the span.
    to_offset: int
    transactional: int = 0
    idempotent: int = 0
    plain: int = 0
    #: Non-transactional producer ids with their records, the most first.
    producers: tuple[tuple[int, int], ...] = ()
    #: Batches after an earlier one of their producer and epoch in the span.
    following: int = 0
    #: Number of them out of sequence, and the first of these.
    broken: int = 0
    breaks: tuple[SequenceBreak, ...] = ()


def count_writers(batches: Sequence[RecordBatch]) -> BatchWriters:
    """Count the records of batches, in log order, by kind of producer; markers do not count."""
    kinds: Counter[str] = Counter()
    producers: Counter[int] = Counter()
    for batch in batches:
        if batch.marker:
            continue
        kinds[_kind(batch)] += batch.records
        if _kind(batch) == "idempotent":
            producers[batch.producer_id] += batch.records
    start, end = (batches[0].first, batches[-1].last + 1) if batches else (0, 0)
    steps = list(_steps(batches))
    breaks = [step for step in steps if step.step is not SequenceStep.NEXT]
    return BatchWriters(
        start,
        end,
        **kinds,
        producers=tuple(producers.most_common(_MOST_PRODUCERS)),
        following=len(steps),
        broken=len(breaks),
        breaks=tuple(breaks[:_MOST_BREAKS]),
    )


def _steps(batches: Sequence[RecordBatch]) -> Iterator[SequenceBreak]:
    """Yield how each batch follows the previous one of its producer and epoch, in sequence or not."""
    last: dict[tuple[int, int], int] = {}
    for batch in batches:
        if batch.marker or batch.base_sequence < 0:
            continue
        whose, found = (batch.producer_id, batch.producer_epoch), batch.base_sequence
        if whose in last:
            yield SequenceBreak(batch.first, *whose, last[whose], found, sequence_step(last[whose], found))
        last[whose] = batch.last_sequence


def _kind(batch: RecordBatch) -> str:
    if batch.transactional:
        return "transactional"
    return "plain" if batch.producer_id == _NO_PRODUCER else "idempotent"
