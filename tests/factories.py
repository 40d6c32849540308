"""Batches of a tail, made of facts."""

from collections.abc import Mapping, Sequence

from fenceline.decode.record_table import RecordTable, Row
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import PositionMove, RawRecord, Tombstone, TransactionRecord
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
    rows = []
    for offset, fact in enumerate(facts, end - len(facts)):
        gone = isinstance(fact, Tombstone)
        raw = RawRecord(None, offset, fact.at_ms) if gone else RawRecord(encode_value(fact), offset)
        rows.append(Row(partition, encode_key(fact.transactional_id), raw))
    moves = (PositionMove(partition, previous, end, end, holes),)
    return TailBatch(RecordTable.of(rows), moves, seen_through_ms=seen_through_ms, behind=0)


def record_table(records: Mapping[int, Mapping[bytes, Sequence[RawRecord]]]) -> RecordTable:
    """Return records by partition and key as a tail reads them."""
    return RecordTable.of(
        Row(partition, key, raw)
        for partition, keys in records.items()
        for key, raws in keys.items()
        for raw in raws
    )
