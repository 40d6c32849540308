"""Reads the format of Java's DataOutputStream: big-endian numbers, modified UTF-8, lengths before bytes."""

from __future__ import annotations

import struct

_BYTE, _SHORT = struct.Struct(">b"), struct.Struct(">h")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


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
        """The number of remaining bytes."""
        return len(self._raw) - self._at

    def read_byte(self) -> int:
        """Read a signed byte."""
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
        """Read `count` longs."""
        return struct.unpack(f">{max(count, 0)}q", self.take(count * _LONG.size))

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
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
