"""Read raw record batches of Fetch answers into columns: the fields of their records.

The layout is message format v2: docs/design/kafka.md §1.3, and Kafka's `DefaultRecordBatch.java`. The
transaction coordinator writes one record per batch, the group coordinator a few, mirrors many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from fenceline.compat import zip_equal
from fenceline.decode.columns import PADDING, Flags, Ints, fields_at, joined, numbers_at, varints_at

#: Decompresses the records of a batch by the codec in its attributes. Raises ValueError.
Decompress = Callable[[int, bytes], bytes]

_LENGTH = Struct(">i").unpack_from
_FRAME = 12
_MAGIC, _LAST_DELTA = 16, 23
_HEADER_FIELDS = np.dtype(
    [
        ("first", ">i8"), ("size", ">i4"), ("leader_epoch", ">i4"), ("magic", "u1"), ("checksum", ">u4"),
        ("attributes", ">i2"), ("last_delta", ">i4"), ("base_ms", ">i8"), ("newest_ms", ">i8"),
        ("producer", ">i8"), ("producer_epoch", ">i2"), ("sequence", ">i4"), ("count", ">i4"),
    ]
)  # fmt: skip
_HEADER = _HEADER_FIELDS.itemsize
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_FORMAT = 2
#: The place of a control record's type: the varints before it have a byte each. 0 is an abort.
_END_TYPE, _ABORT = _HEADER + 7, 0
#: With this many batches left or fewer, their remaining records are read batch by batch.
_FEW = 64
_TOO_LONG = "a record that is longer than its batch"


class LogPart(NamedTuple):
    """Fetched batches of one partition, to be read from offset `start` on."""

    partition: int
    start: int
    data: bytes
    #: The start of each whole batch.
    places: Sequence[int]
    #: Producer id and first offset of aborted transactions; () to read uncommitted.
    aborted: Sequence[tuple[int, int]] = ()

    @property
    def next(self) -> int:
        """The offset after the last batch."""
        if not self.places:
            return self.start
        place = self.places[-1]
        first = int.from_bytes(self.data[place : place + 8], "big", signed=True)
        last_delta = _LENGTH(self.data, place + _LAST_DELTA)[0] if self.data[place + _MAGIC] >= _FORMAT else 0
        return first + 1 + last_delta

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if unknown."""
        if not self.places or self.data[self.places[-1] + _MAGIC] < _FORMAT:
            return -1
        return int(_LENGTH(self.data, self.places[-1] + _FRAME)[0])


class LogColumns(NamedTuple):
    """Records in reading order, a column per field; places are indexes into `data`."""

    data: bytes
    partition: Ints
    offset: Ints
    #: -1 for none; so are lengths.
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    at_ms: Ints


class Hole(NamedTuple):
    """A stretch of missing offsets: `missing` of them before `offset`."""

    partition: int
    offset: int
    missing: int


class BadBatch(NamedTuple):
    """An unreadable batch or record."""

    partition: int
    offset: int
    detail: str


def whole_batches(data: bytes) -> list[int]:
    """Return the start of each batch, except a truncated last one."""
    places: list[int] = []
    at, size = 0, len(data)
    add, length_at = places.append, _LENGTH
    while at + _MAGIC < size:
        following: int = at + _FRAME + length_at(data, at + 8)[0]
        if following > size or following <= at + _MAGIC:
            break
        add(at)
        at = following
    return places


def read_parts(
    parts: Sequence[LogPart], decompress: Decompress
) -> tuple[LogColumns, list[Hole], list[BadBatch]]:
    """Read the records of the parts; a partition's records are in offset order. Never raises."""
    return _Reader(parts, decompress).read()


class _Reader:
    """Reads parts: the headers of all batches in columns, then their records."""

    def __init__(self, parts: Sequence[LogPart], decompress: Decompress) -> None:
        self._parts, self._decompress = parts, decompress
        starts = np.cumsum([0, *(len(part.data) for part in parts)])
        #: The bytes of all parts, followed by decompressed records.
        self._pieces = [*(part.data for part in parts), bytes(PADDING + _HEADER)]
        self._size = int(starts[-1]) + PADDING + _HEADER
        data = self._data = b"".join(self._pieces)
        places = [np.array(part.places, np.int64) for part in parts]
        at = self._at = joined([part_places + start for part_places, start in zip_equal(places, starts[:-1])])
        self._part: Ints = np.repeat(np.arange(len(parts)), [len(part.places) for part in parts])
        self._header = fields_at(data, at, _HEADER_FIELDS)
        self._magic, self._attributes = self._header["magic"], self._header["attributes"]
        self._count, self._first = self._header["count"], self._header["first"]
        self._last_delta = self._header["last_delta"]
        self._end = at + _FRAME + self._header["size"]
        self._skipped = (self._attributes & _CONTROL != 0) | self._aborted()
        self._skipped &= self._magic == _FORMAT
        self._bad: list[BadBatch] = []

    def read(self) -> tuple[LogColumns, list[Hole], list[BadBatch]]:
        batch = np.flatnonzero(~self._skipped & (self._count > 0))
        begin, end = self._at + _HEADER, self._end
        packed = np.flatnonzero((self._magic != _FORMAT) | (self._attributes & _CODEC != 0)).tolist()
        for number in packed:
            begin[number], end[number] = self._unpack(number)
        if packed:
            self._data = b"".join(self._pieces)
        columns, batch = self._fields(*self._places(batch[begin[batch] < end[batch]], begin, end))
        return columns, self._holes(columns.offset, batch), self._bad

    def _unpack(self, number: int) -> tuple[int, int]:
        """Decompress a batch and return the span of its records; an empty span on failure."""
        first, codec = int(self._first[number]), int(self._attributes[number]) & _CODEC
        if self._magic[number] != _FORMAT:
            self._note(number, first, f"a batch of format {self._magic[number]}")
            return 0, 0
        try:
            data = self._decompress(codec, self._data[self._at[number] + _HEADER : self._end[number]])
        except ValueError as error:
            self._note(number, first, f"a batch that cannot be decompressed: {error}")
            return 0, 0
        begin = self._size
        self._pieces += data, bytes(PADDING)
        self._size += len(data) + PADDING
        return begin, begin + len(data)

    def _places(self, batch: Ints, begin: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Return each record's batch, its start (at its length field), and the end of its batch.

        The first records of all batches are read at once, then all second ones; the rest of a few long
        batches is read batch by batch.
        """
        found, nth = [], 0
        at = begin[batch]
        while len(batch) > _FEW or (len(batch) and not nth):
            length, body = varints_at(self._data, at)
            fits = (length >= 0) & (length <= ends[batch] - body)
            for number in batch[~fits].tolist():
                self._note(number, int(self._first[number]) + nth, _TOO_LONG)
            found.append((batch[fits], at[fits]))
            nth += 1
            more = fits & (self._count[batch] > nth)
            batch, at = batch[more], (body + length)[more]
        for number, place in zip_equal(batch.tolist(), at.tolist()):
            places = _follow(self._data, place, int(ends[number]), int(self._count[number]) - nth)
            if nth + len(places) < self._count[number]:
                self._note(number, int(self._first[number]) + nth + len(places), _TOO_LONG)
            found.append((np.full(len(places), number), np.array(places, np.int64)))
        batch, at = (joined(column) for column in zip_equal(*found)) if found else (batch, at)
        order = np.argsort(batch, kind="stable") if len(found) > 1 else slice(None)
        return batch[order], at[order], ends[batch[order]]

    def _fields(self, batch: Ints, at: Ints, end: Ints) -> tuple[LogColumns, Ints]:
        data = self._data
        length, at = varints_at(data, at)
        end = np.minimum(end, at + length)
        after_ms, at = varints_at(data, at + 1)
        delta, at = varints_at(data, at)
        key_length, key_at = varints_at(data, at)
        wrong = ~_fits(key_length, end - key_at)
        at = key_at + np.where(wrong, 0, np.maximum(key_length, 0))
        value_length, value_at = varints_at(data, np.minimum(at, len(data) - PADDING))
        wrong |= ~_fits(value_length, end - value_at)
        offset = self._first[batch] + delta
        starts = np.array([part.start for part in self._parts], np.int64)[self._part[batch]]
        for row in np.flatnonzero(wrong & (offset >= starts)).tolist():
            self._note(int(batch[row]), int(offset[row]), _TOO_LONG)
        kept = np.flatnonzero(~wrong & (offset >= starts))
        batch = batch[kept]
        columns = LogColumns(
            data, self._partitions()[self._part[batch]], offset[kept], key_at[kept], key_length[kept],
            value_at[kept], value_length[kept], self._instants(batch, after_ms[kept]),
        )  # fmt: skip
        return columns, batch

    def _instants(self, batch: Ints, after_ms: Ints) -> Ints:
        """Return the records' timestamps: the batch's append time if its topic has `LogAppendTime`."""
        appended = self._attributes[batch] & _APPEND_TIME != 0
        base_ms = self._header["base_ms"][batch] + after_ms
        return np.where(appended, self._header["newest_ms"][batch], base_ms)

    def _partitions(self) -> Ints:
        return np.array([part.partition for part in self._parts], np.int64)

    def _holes(self, offset: Ints, batch: Ints) -> list[Hole]:
        """Return the missing stretches up to each part's end; markers and aborted records are not missing."""
        covers = np.flatnonzero(self._skipped)
        rows = np.concatenate((batch, covers))
        firsts = np.concatenate((offset, self._first[covers]))
        ends = np.concatenate((offset + 1, self._first[covers] + self._last_delta[covers] + 1))
        parts = len(self._parts)
        nexts = [part.next for part in self._parts]
        part = np.concatenate((self._part[rows], np.arange(parts), np.arange(parts)))
        # A part spans from its first offset to read to the end of its last batch.
        starts = [part.start for part in self._parts]
        firsts = np.concatenate((firsts, starts, nexts))
        ends = np.concatenate((ends, starts, nexts))
        order = np.lexsort((ends, firsts, part))
        gaps = firsts[order][1:] - ends[order][:-1]
        gone = np.flatnonzero((gaps > 0) & (part[order][1:] == part[order][:-1]))
        numbers = self._partitions()
        return [
            Hole(int(numbers[part[row]]), int(firsts[row]), int(gap))
            for row, gap in zip_equal(order[gone + 1].tolist(), gaps[gone].tolist())
        ]

    def _note(self, number: int, offset: int, detail: str) -> None:
        self._bad.append(BadBatch(self._parts[int(self._part[number])].partition, offset, detail))

    def _aborted(self) -> Flags:
        """Whether each batch belongs to an aborted transaction, by Kafka's rules (`CompletedFetch`)."""
        aborted = np.zeros(len(self._at), np.bool_)
        for number, part in enumerate(self._parts):
            if part.aborted:
                rows = np.flatnonzero(self._part == number)
                aborted[rows] = list(self._aborted_of(part, rows))
        return aborted

    def _aborted_of(self, part: LogPart, rows: Ints) -> Iterator[bool]:
        coming = sorted(part.aborted, key=lambda transaction: -transaction[1])
        aborted = set()
        kinds = numbers_at(self._data, self._at[rows] + _END_TYPE, ">i2")
        # The log cleaner may leave a marker's batch without its record.
        aborts = (kinds == _ABORT) & (self._count[rows] > 0)
        last, producers = (self._first + self._last_delta)[rows], self._header["producer"][rows]
        rows_of = zip_equal(
            last.tolist(), producers.tolist(), aborts.tolist(), self._attributes[rows].tolist()
        )
        for offset, producer, is_abort, attributes in rows_of:
            while coming and coming[-1][1] <= offset:
                aborted.add(coming.pop()[0])
            if attributes & _CONTROL and is_abort:
                aborted.discard(producer)
            yield bool(attributes & _TRANSACTIONAL) and not attributes & _CONTROL and producer in aborted


def _fits(length: Ints, room: Ints) -> Flags:
    """Whether each field, absent with the length -1, ends inside its record."""
    return (length >= -1) & (np.maximum(length, 0) <= room)


def _follow(data: bytes, at: int, end: int, count: int) -> list[int]:
    """Return the start of each following record, as far as records end inside their batch."""
    places = []
    for _ in range(count):
        begin, length, shift = at, 0, 0
        while at < end:
            byte = data[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        at += length >> 1
        if length & 1 or not begin < at <= end:
            break
        places.append(begin)
    return places
