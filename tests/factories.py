"""Batches of a tail, made of facts."""

from __future__ import annotations

from fenceline.facts import PositionMove, RawRecord, TailBatch, Tombstone, TransactionRecord
from tests.transaction_state_records import encode_key, encode_value


def tail_batch(
    partition: int,
    *facts: TransactionRecord | Tombstone,
    previous: int | None = None,
    end: int = 10,
    seen_through_ms: int | None = None,
    holes: tuple[int, ...] = (),
) -> TailBatch:
    """Return a batch of these records, the last of them just before `end`, which has read everything."""
    records: dict[bytes, list[RawRecord]] = {}
    for offset, fact in enumerate(facts, end - len(facts)):
        gone = isinstance(fact, Tombstone)
        raw = RawRecord(None, offset, fact.at_ms) if gone else RawRecord(encode_value(fact), offset)
        records.setdefault(encode_key(fact.transactional_id), []).append(raw)
    moves = (PositionMove(partition, previous, end, end, holes),)
    return TailBatch({partition: records}, moves, len(facts), seen_through_ms=seen_through_ms, behind=0)
