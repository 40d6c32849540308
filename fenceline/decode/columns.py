"""Read numbers, varints and names at many places of a byte string at once: NumPy columns instead of loops.

`data` must end in PADDING unused bytes, so that a read at the last place stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

PADDING = 64
#: ByteStrings compares up to this length, eight bytes at a time; longer strings are not compared.
LONGEST_NAME = 256
_WORD = 8
_VARINT_BYTES = 10
#: An odd number with spread bits for multiplicative hashing (2^64 / golden ratio).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
#: By a number of bytes, up to PADDING: the bits of these bytes in the words of a string.
_KEPT = (np.tri(PADDING + 1, PADDING, -1, np.uint8) * np.uint8(0xFF)).view(np.uint64)


def numbers_at(data: bytes, at: Ints, kind: str) -> npt.NDArray[Any]:
    """Return the number at each place; `kind` is NumPy's name of its type, e.g. `>i8`."""
    dtype = np.dtype(kind)
    every = np.ndarray((len(data) - dtype.itemsize + 1,), dtype, data, strides=(1,))
    return every[at].astype(dtype.newbyteorder("="))


def fields_at(data: bytes, at: Ints, layout: np.dtype[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return the fields of a structure at each place; `layout` has their names, types and offsets.

    A copy of the whole structure takes little longer than one of a number.
    """
    every = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data, strides=(1,))
    copied = every[at].view(layout)
    return {name: copied[name].astype(layout[name].newbyteorder("=")) for name in layout.names or ()}


def varints_at(data: bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varint of a record at each place, and its end.

    A varint of more than ten bytes counts as 0.
    """
    byte = numbers_at(data, at, "u1").astype(np.int64)
    raw, end = byte & 0x7F, at + 1
    longer = np.flatnonzero(byte >= 0x80)
    for place in range(1, _VARINT_BYTES):
        if not len(longer):
            break
        byte = numbers_at(data, np.minimum(end[longer], len(data) - 1), "u1").astype(np.int64)
        raw[longer] |= (byte & 0x7F) << (7 * place)
        end[longer] += 1
        longer = longer[byte >= 0x80]
    raw[longer] = 0
    # The lowest bit is the sign; the others are shifted as an unsigned number.
    return (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1), end


class ByteStrings:
    """Byte strings at many places, for comparison. Strings longer than LONGEST_NAME are never equal."""

    def __init__(self, data: bytes, at: Ints, length: Ints) -> None:
        self.length, self.known = length, length <= LONGEST_NAME
        self._words: list[Words] = []
        self.hashes: Words = length.astype(np.uint64)
        longest = int(length[self.known].max(initial=0))
        for start in range(0, longest, PADDING):
            for word in _words_at(data, at + start, length - start, min(longest - start, PADDING)):
                self._words.append(word)
                self.hashes = _mixed(self.hashes, word)

    def are_equal(self, ones: Any, others: Any) -> Flags:
        """Whether the strings at the rows `ones` equal the strings at the rows `others`."""
        equal: Flags = (self.length[ones] == self.length[others]) & self.known[ones] & self.known[others]
        for word in self._words:
            equal &= word[ones] == word[others]
        return equal


def _words_at(data: bytes, at: Ints, left: Ints, longest: int) -> Iterator[Words]:
    """Yield the next `longest` bytes of each string, eight at a time, with zeros after its end."""
    words = -(-longest // _WORD)
    kind = np.dtype((np.void, words * _WORD))
    kept = np.ascontiguousarray(_KEPT[:, :words]).view(kind).ravel()
    # A copy of all of a string's bytes takes no longer than one of eight.
    every = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    copied = every[np.minimum(at, len(every) - 1)].view(np.uint64).reshape(-1, words)
    copied &= kept[np.clip(left, 0, longest)].view(np.uint64).reshape(-1, words)
    yield from copied.T


def _mixed(hashes: Words, word: Words | np.uint64) -> Words:
    # Each step is invertible: different hashes stay different.
    with np.errstate(over="ignore"):
        hashes = (hashes ^ word) * _SPREAD
    return hashes ^ (hashes >> _SHIFT)


def combined(*columns: npt.NDArray[Any]) -> Words:
    """Return one hash of each row's numbers."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes = _mixed(hashes, column.astype(np.int64).view(np.uint64))
    return hashes


def representatives(hashes: Words) -> Ints:
    """Return, for each row, the representative of all rows with its hash."""
    found = np.full(len(hashes), -1, np.int64)
    left = np.arange(len(hashes))
    bits = max(4, int(len(hashes) * 4).bit_length())
    shift = np.uint64(64 - bits)
    while len(left):
        places = (hashes[left] >> shift).astype(np.int64)
        table = np.empty(1 << bits, np.int64)
        table[places] = left
        chosen = table[places]
        same = hashes[chosen] == hashes[left]
        found[left[same]] = chosen[same]
        left = left[~same]
        # Rows that shared a place with another hash try again with new hashes.
        hashes = _mixed(hashes, np.uint64(1)) if len(left) else hashes
    return found


def distinct(*columns: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the first row of each distinct value, and for each row the index of its value."""
    rows = np.arange(len(columns[0]))
    same = representatives(combined(*columns))
    if not all((column[same] == column).all() for column in columns):
        _, first, inverse = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
        return first, inverse.ravel()
    first = np.flatnonzero(same == rows)
    rows[first] = np.arange(len(first))
    return first, rows[same]


def joined(parts: Sequence[Ints]) -> Ints:
    """Concatenate columns; an empty column without any."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
