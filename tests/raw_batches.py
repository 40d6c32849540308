"""Record batches as brokers store them (message format v2), with a codec or without."""

import gzip
from collections.abc import Sequence
from struct import Struct

import pyarrow as pa

from fenceline.facts import RawRecord

#: First offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last timestamp,
#: producer id and epoch, base sequence, number of records. No reader of ours checks the CRC.
_HEADER = Struct(">qiibIhiqqqhii")
_BEHIND_LENGTH = _HEADER.size - 12
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)
TRANSACTIONAL, CONTROL = 0x10, 0x20


def raw_batch(
    records: Sequence[tuple[bytes | None, RawRecord]],
    *,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    last: int | None = None,
) -> bytes:
    """Return a batch of records with their keys; `last` is its last offset, where that one was compacted."""
    base, base_ms = records[0][1].offset, min(raw.at_ms or 0 for _, raw in records)
    body = b"".join(_record(key, raw, base, base_ms) for key, raw in records)
    packed = compress(codec, body)
    head = (base, _BEHIND_LENGTH + len(packed), 0, 2, 0, codec | attributes)
    end = (last if last is not None else records[-1][1].offset) - base
    newest_ms = max(raw.at_ms or 0 for _, raw in records)
    return _HEADER.pack(*head, end, base_ms, newest_ms, producer_id, 0, -1, len(records)) + packed


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    key = bytes((0, 0, 0, commit))
    value = RawRecord(bytes(6), offset, 0)
    return raw_batch([(key, value)], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def _record(key: bytes | None, raw: RawRecord, base: int, base_ms: int) -> bytes:
    body = b"\0" + varint((raw.at_ms or 0) - base_ms) + varint(raw.offset - base)
    body += _field(key) + _field(raw.value) + varint(0)
    return varint(len(body)) + body


def _field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(number: int) -> bytes:
    """Return a number as a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compress(codec: int, data: bytes) -> bytes:
    """Compress as Kafka's clients do; snappy as snappy-java frames it, in small blocks."""
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY:
        blocks = [pa.compress(data[at : at + 700], "snappy", asbytes=True) for at in range(0, len(data), 700)]
        framed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
        return b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1)) + framed
    if codec in (LZ4, ZSTD):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "lz4" if codec == LZ4 else "zstd") as stream:
            stream.write(data)
        return bytes(sink.getvalue().to_pybytes())
    return data
