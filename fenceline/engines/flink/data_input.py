"""Reads the format of Java's DataOutputStream: big-endian numbers, modified UTF-8, lengths before bytes; and
compressed lists of operators' state, one or more Snappy frames per entry.

With `execution.checkpointing.snapshot-compression` Flink writes each list through `SnappyFramedOutputStream`
and flushes it before an entry, so an entry's offset is the start of its first frame
(`CompressibleFSDataOutputStream.getPos`). Formats: framing_format.txt and format_description.txt of Snappy.
"""

import struct

_BYTE, _SHORT = struct.Struct(">b"), struct.Struct(">h")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_COMPRESSED, _UNCOMPRESSED, _STREAM_BEGINS = 0x00, 0x01, 0xFF
#: Maximum bytes of one frame's content.
_LARGEST = 65_536
_CHECKSUM = 4


class MalformedState(Exception):
    """Malformed bytes; `reason` is one word, fit for `fenceline.facts.Undecoded`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class DataInput:
    """A position in bytes. Every read raises `MalformedState` at their end."""

    def __init__(self, raw: bytes, at: int = 0) -> None:
        """Begin at byte `at`. Raises `MalformedState` beyond the end."""
        if not 0 <= at <= len(raw):
            raise MalformedState("offset", f"byte {at:,} of {len(raw):,}")
        self._raw, self._at = raw, at

    @property
    def left(self) -> int:
        return len(self._raw) - self._at

    def read_byte(self) -> int:
        return self._number(_BYTE)

    def read_short(self) -> int:
        """Read two bytes, signed."""
        return self._number(_SHORT)

    def read_int(self) -> int:
        """Read four bytes, signed."""
        return self._number(_INT)

    def read_long(self) -> int:
        """Read eight bytes, signed."""
        return self._number(_LONG)

    def read_count(self) -> int:
        """Read the number of following elements of at least one byte each."""
        count = self.read_int()
        if not 0 <= count <= self.left:
            raise MalformedState("count", f"{count:,} entries in {self.left:,} bytes, at byte {self._at:,}")
        return count

    def read_bytes(self) -> bytes:
        """Read a length and as many bytes."""
        return self.take(self.read_int())

    def read_text(self) -> str:
        """Read the output of `writeUTF`: two bytes for the length, then modified UTF-8."""
        raw = self.take(self.read_short() & 0xFFFF)
        try:
            # There, characters beyond the first 65,536 are two surrogates, and NUL is two bytes.
            halves = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError:
            raise MalformedState("text", f"no text in {len(raw):,} bytes before byte {self._at:,}") from None

    def read_longs(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{max(count, 0)}q", self.take(count * _LONG.size))

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise MalformedState(
                "truncated", f"{size:,} bytes wanted at byte {self._at:,}, {self.left:,} left"
            )
        self._at += size
        return self._raw[self._at - size : self._at]

    def end(self) -> None:
        """Raise `MalformedState` if any bytes follow."""
        if self.left:
            raise MalformedState("trailing", f"{self.left:,} bytes follow byte {self._at:,}")

    def _number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self.take(kind.size))[0]
        return number


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
