"""Read compressed lists of operators' state: one or more Snappy frames per entry.

With `execution.checkpointing.snapshot-compression` Flink writes each list through `SnappyFramedOutputStream`
and flushes it before an entry, so an entry's offset is the start of its first frame
(`CompressibleFSDataOutputStream.getPos`). Formats: framing_format.txt and format_description.txt of Snappy.
"""

from __future__ import annotations

from fenceline.engines.flink.data_input import DataInput, MalformedState

_COMPRESSED, _UNCOMPRESSED, _STREAM_BEGINS = 0x00, 0x01, 0xFF
#: Maximum bytes of one frame's content.
_LARGEST = 65_536
_CHECKSUM = 4


def read_compressed_entry(raw: bytes, offset: int) -> bytes:
    """Return the bytes of the entry whose frames begin at `offset`, without its length."""
    source, output = DataInput(raw, offset), bytearray()
    while len(output) < (needed := _needed(output)):
        _read_frame(source, output)
    return bytes(output[4:needed])


def read_frames(raw: bytes) -> bytes:
    """Return the content of whole frames: an entry without a length."""
    source, output = DataInput(raw), bytearray()
    while source.left:
        _read_frame(source, output)
    return bytes(output)


def _read_frame(source: DataInput, output: bytearray) -> None:
    kind, size = source.take(1)[0], int.from_bytes(source.take(3), "little")
    frame = source.take(size)
    if kind == _COMPRESSED:
        output += _decompressed(frame[_CHECKSUM:])
    elif kind == _UNCOMPRESSED:
        output += frame[_CHECKSUM:]
    elif kind != _STREAM_BEGINS:
        raise MalformedState("compressed", f"frame {kind:#04x}, {source.left:,} bytes before the end")


def _needed(output: bytearray) -> int:
    """Return the number of bytes of length and entry, as far as they are read."""
    if len(output) < 4:
        return 4
    size = int.from_bytes(output[:4], "big", signed=True)
    if size < 0:
        raise MalformedState("compressed", f"an entry of {size:,} bytes")
    return 4 + size


def _decompressed(block: bytes) -> bytearray:
    """Return the content of a Snappy block."""
    source, output = DataInput(block), bytearray()
    size = _varint(source)
    if size > _LARGEST:
        raise MalformedState("compressed", f"a frame of {size:,} bytes")
    while source.left and len(output) <= size:
        _decompress_element(source, output)
    if len(output) != size:
        raise MalformedState("compressed", f"{len(output):,} of {size:,} bytes in a frame")
    return output


def _decompress_element(source: DataInput, output: bytearray) -> None:
    """Append a literal, or a copy of earlier output."""
    tag = source.take(1)[0]
    kind, rest = tag & 3, tag >> 2
    if kind == 0:
        more = max(0, rest - 59)
        output += source.take((int.from_bytes(source.take(more), "little") if more else rest) + 1)
        return
    if kind == 1:
        length, back = (rest & 7) + 4, (tag >> 5) << 8 | source.take(1)[0]
    else:
        length, back = rest + 1, int.from_bytes(source.take(2 if kind == 2 else 4), "little")
    if not 0 < back <= len(output):
        raise MalformedState("compressed", f"a copy from {back:,} bytes before, of {len(output):,}")
    # A copy may overlap its own output.
    pattern = bytes(output[-back:][:length])
    output += (pattern * (length // len(pattern) + 1))[:length]


def _varint(source: DataInput) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = source.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise MalformedState("compressed", "a length of more than five bytes")
