"""Record batches by their headers: the producer, first and last offset, and the type of a marker.

Parsed from the bytes of a Fetch answer, without decoding or decompressing records. Layout of message format
v2: docs/design/kafka.md §1.3, and Kafka's `DefaultRecordBatch.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from fenceline.decode.record_batches import RecordBatch

#: Base offset and length of the rest: every message format begins with these twelve bytes.
_FRAME = Struct(">qi")
#: Attributes, last offset delta, two timestamps, producer id and epoch, base sequence, number of records.
_HEADER = Struct(">hiqqqhii")
_MAGIC, _ATTRIBUTES, _RECORDS = 16, 21, 61
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKERS = {0: "abort", 1: "commit"}
_TYPE = Struct(">hh")


def parse_batches(records: bytes | memoryview) -> Iterator[RecordBatch]:
    """Yield the batches of a Fetch answer, without a truncated last one.

    In formats before v2, which have no producers, an entry counts as one record.
    """
    at, end = 0, len(records)
    while at + _MAGIC < end:
        first, length = _FRAME.unpack_from(records, at)
        following = at + _FRAME.size + length
        if following > end:
            return
        if records[at + _MAGIC] < 2:
            yield RecordBatch(first, first, -1, -1, transactional=False, marker="", records=1)
        else:
            yield _batch(records, at, first)
        at = following


def _batch(records: bytes | memoryview, at: int, first: int) -> RecordBatch:
    attributes, delta, _, newest_ms, producer_id, epoch, sequence, number = _HEADER.unpack_from(
        records, at + _ATTRIBUTES
    )
    return RecordBatch(
        first,
        first + delta,
        producer_id,
        epoch,
        transactional=bool(attributes & _TRANSACTIONAL),
        marker=_marker(records, at + _RECORDS) if attributes & _CONTROL and number else "",
        records=number,
        max_timestamp_ms=newest_ms,
        base_sequence=sequence,
    )


def _marker(records: bytes | memoryview, at: int) -> str:
    """Return the type of the control record at `at`; "" for another type than the end of a transaction."""
    _, at = _varint(records, at)
    at += 1
    for _ in range(3):
        # Timestamp delta, offset delta, length of the key.
        _, at = _varint(records, at)
    _, kind = _TYPE.unpack_from(records, at)
    return _MARKERS.get(kind, "")


def _varint(records: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = records[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
