"""Reads compressed lists of operators' state: frames of Snappy, one or more for each entry.

With `execution.checkpointing.snapshot-compression` Flink writes each list through `SnappyFramedOutputStream`
and flushes it before an entry, so that an entry's offset is where its first frame begins
(`CompressibleFSDataOutputStream.getPos`). Formats: framing_format.txt and format_description.txt of Snappy.
"""

from __future__ import annotations

from fenceline.flink.data_input import DataInput, MalformedState

_COMPRESSED, _UNCOMPRESSED, _STREAM_BEGINS = 0x00, 0x01, 0xFF
#: The most that one frame holds.
_LARGEST = 65_536
_CHECKSUM = 4


def read_compressed_entry(raw: bytes, offset: int) -> bytes:
    """Return the bytes of the entry whose frames begin at `offset`, its length before them left out."""
    source, found = DataInput(raw, offset), bytearray()
    while len(found) < (needed := _needed(found)):
        kind, size = source.take(1)[0], int.from_bytes(source.take(3), "little")
        frame = source.take(size)
        if kind == _COMPRESSED:
            found += _decompressed(frame[_CHECKSUM:])
        elif kind == _UNCOMPRESSED:
            found += frame[_CHECKSUM:]
        elif kind != _STREAM_BEGINS:
            raise MalformedState("compressed", f"frame {kind:#04x} at byte {offset:,}")
    return bytes(found[4:needed])


def _needed(found: bytearray) -> int:
    """Return how many bytes the length and the entry have, as far as that is read."""
    if len(found) < 4:
        return 4
    size = int.from_bytes(found[:4], "big", signed=True)
    if size < 0:
        raise MalformedState("compressed", f"an entry of {size:,} bytes")
    return 4 + size


def _decompressed(block: bytes) -> bytearray:
    """Return what a block of Snappy holds."""
    source, found = DataInput(block), bytearray()
    size = _varint(source)
    if size > _LARGEST:
        raise MalformedState("compressed", f"a frame of {size:,} bytes")
    while source.left and len(found) <= size:
        _decompress_element(source, found)
    if len(found) != size:
        raise MalformedState("compressed", f"{len(found):,} of {size:,} bytes in a frame")
    return found


def _decompress_element(source: DataInput, found: bytearray) -> None:
    """Append a literal, or a copy of what was found before."""
    tag = source.take(1)[0]
    kind, rest = tag & 3, tag >> 2
    if kind == 0:
        more = max(0, rest - 59)
        found += source.take((int.from_bytes(source.take(more), "little") if more else rest) + 1)
        return
    if kind == 1:
        length, back = (rest & 7) + 4, (tag >> 5) << 8 | source.take(1)[0]
    else:
        length, back = rest + 1, int.from_bytes(source.take(2 if kind == 2 else 4), "little")
    if not 0 < back <= len(found):
        raise MalformedState("compressed", f"a copy from {back:,} bytes before, of {len(found):,}")
    # It may reach into what it appends itself.
    pattern = bytes(found[-back:][:length])
    found += (pattern * (length // len(pattern) + 1))[:length]


def _varint(source: DataInput) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = source.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise MalformedState("compressed", "a length of more than five bytes")
