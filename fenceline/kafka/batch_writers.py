"""Who wrote records of a partition: in transactions, with idempotence alone, or with neither. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.compat import SLOTS
from fenceline.decode.record_batches import RecordBatch

#: Maximum idempotent producers that are named.
_MOST_PRODUCERS = 100
_NO_PRODUCER = -1


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
