"""Proves who wrote some batches: markers are nobody's records, and idempotent producers are named."""

from __future__ import annotations

from fenceline.decode.record_batches import BatchWriters, RecordBatch, count_writers


def batch(
    first: int, records: int, producer_id: int = -1, *, is_open: bool = False, marker: str = ""
) -> RecordBatch:
    return RecordBatch(first, first + records - 1, producer_id, 0, is_open, marker, records)


def test_records_are_counted_by_their_kind_of_producer() -> None:
    seen = count_writers(
        [
            batch(10, 3, 7, is_open=True),
            batch(13, 1, 7, is_open=True, marker="commit"),
            batch(14, 2, 8),
            batch(16, 5, 9),
            batch(21, 4),
            batch(25, 1, 8),
        ]
    )
    assert seen == BatchWriters(10, 26, 3, 8, 4, ((9, 5), (8, 3)))
    assert count_writers([]) == BatchWriters(0, 0)
