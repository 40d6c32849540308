"""Read Kafka's records field by field: each length is checked against the remaining bytes before use."""

from __future__ import annotations

from struct import Struct, error

from fenceline.decode.text import escape_bytes
from fenceline.facts import Undecoded

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")


class Unreadable(Exception):
    """Ends the reading of one record; caught in the decoders."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.undecoded = Undecoded(reason, detail)


class Cursor:
    """Reads a key or a value from start to end. Raises `Unreadable`."""

    def __init__(self, data: bytes, part: str) -> None:
        self._data, self._part, self._at = data, part, 0

    def int16(self) -> int:
        """Read a signed integer of two bytes."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Read a signed integer of four bytes."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Read a signed integer of eight bytes."""
        return self._number(_INT64)

    def string(self) -> str:
        """Read a string with an int16 length."""
        return escape_bytes(self._take(self.int16()))

    def compact_string(self) -> str:
        """Read a string preceded by its length plus 1, an unsigned varint (KIP-482)."""
        return escape_bytes(self._take(self._uvarint() - 1))

    def text(self, flexible: bool) -> str:
        """Read a string in either form."""
        return self.compact_string() if flexible else self.string()

    def text_or_null(self, flexible: bool) -> str | None:
        """Read a string that may be null, in either form."""
        length = self._uvarint() - 1 if flexible else self.int16()
        return None if length == -1 else escape_bytes(self._take(length))

    def bytes_of(self, flexible: bool) -> bytes:
        """Read bytes, in either form; b"" for null."""
        length = self._uvarint() - 1 if flexible else self.int32()
        return self._take(0 if length == -1 else length)

    def array_length(self, flexible: bool) -> int:
        """Read the length of an array; at most the number of remaining bytes."""
        amount = self._uvarint() - 1 if flexible else self.int32()
        if amount > len(self._data) - self._at:
            raise self._truncated()
        return max(amount, 0)

    def tagged_fields(self) -> dict[int, bytes]:
        """Read a section of tagged fields: raw bytes by tag."""
        fields = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            fields[tag] = self._take(self._uvarint())
        return fields

    def expect_end(self) -> None:
        """Raise `Unreadable` if bytes are left."""
        surplus = len(self._data) - self._at
        if surplus:
            raise Unreadable("trailing", f"{self._part} with {surplus} bytes after its end")

    def _number(self, kind: Struct) -> int:
        try:
            (number,) = kind.unpack_from(self._data, self._at)
        except error:
            raise self._truncated() from None
        self._at += kind.size
        return int(number)

    def _take(self, length: int) -> bytes:
        if length < 0:
            raise Unreadable("length", f"{self._part} with a length of {length}")
        end = self._at + length
        if end > len(self._data):
            raise self._truncated()
        taken, self._at = self._data[self._at : end], end
        return taken

    def _uvarint(self) -> int:
        number = 0
        for shift in (0, 7, 14, 21, 28):
            if self._at >= len(self._data):
                raise self._truncated()
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80 and number < 2**31:
                return number
        raise Unreadable("length", "a length beyond 2147483647")

    def _truncated(self) -> Unreadable:
        return Unreadable("truncated", f"{self._part} cut off after {len(self._data)} bytes")
