"""Record batches: what their headers contain. Their records are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS

#: Maximum idempotent producers that are named.
_MOST_PRODUCERS = 100
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
    #: The largest timestamp in it, in milliseconds; of a marker: by the clock of the leader that wrote it.
    max_timestamp_ms: int = -1
    #: The producer's number of its first record, by which a leader tells a resend; -1 for none.
    base_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        """Return the number of its last record; it wraps around behind 2147483647 (`DefaultRecordBatch`)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last - self.first) % 2**31


@dataclass(frozen=True, **SLOTS)
class BatchWriters:
    """How many records of some offsets each kind of producer wrote, by the headers of their batches."""

    from_offset: int
    #: The first offset that was not looked at.
    to_offset: int
    transactional: int = 0
    idempotent: int = 0
    plain: int = 0
    #: Producer ids without a transaction and their records, the most first.
    producers: tuple[tuple[int, int], ...] = ()


def count_writers(batches: Sequence[RecordBatch]) -> BatchWriters:
    """Return who wrote some batches, in the order of the log; markers are nobody's records."""
    kinds: Counter[str] = Counter()
    producers: Counter[int] = Counter()
    for batch in batches:
        if batch.marker:
            continue
        kinds[_kind(batch)] += batch.records
        if _kind(batch) == "idempotent":
            producers[batch.producer_id] += batch.records
    start, end = (batches[0].first, batches[-1].last + 1) if batches else (0, 0)
    return BatchWriters(start, end, **kinds, producers=tuple(producers.most_common(_MOST_PRODUCERS)))


def _kind(batch: RecordBatch) -> str:
    if batch.transactional:
        return "transactional"
    return "plain" if batch.producer_id == _NO_PRODUCER else "idempotent"
