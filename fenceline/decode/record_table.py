"""The records of one poll by partition and key: columns for many records, `RawRecord`s for a few."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from fenceline.compat import pairwise, zip_equal
from fenceline.decode.columns import PADDING, ByteStrings, Flags, Ints
from fenceline.decode.log_parts import BadBatch, LogColumns
from fenceline.facts import RawRecord, Records
from fenceline.tuples import new_tuple

#: The bits of the sort hash that hold the partition.
_PARTITION_BITS = 16


class Row(NamedTuple):
    """A record with its partition and key."""

    partition: int
    key: bytes
    raw: RawRecord


class RecordTable(Mapping[int, Records]):
    """Partition -> key -> records, in offset order.

    `columns` are sorted in that order; key number n has the rows from `starts[n]` up to `starts[n + 1]`. A
    record without a key counts as one with an empty key.
    """

    def __init__(self, columns: LogColumns, starts: Ints, bad: Sequence[BadBatch] = ()) -> None:
        self.columns, self.starts, self.bad = columns, starts, bad

    @classmethod
    def sort(cls, columns: LogColumns, bad: Sequence[BadBatch] = ()) -> RecordTable:
        """Sort records by partition and key; each partition's records must be in offset order."""
        order, starts = _by_hash(columns) or _by_key(columns)
        return cls(_taken(columns, order), starts, bad)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> RecordTable:
        """Build a table from rows; each partition's rows must be in offset order."""
        pieces, fields, at = [], [], 0
        for partition, key, (value, offset, at_ms) in rows:
            length = -1 if value is None else len(value)
            fields.append((partition, offset, at, len(key), at + len(key), length, at_ms or 0))
            pieces += [key, value or b""]
            at += len(key) + max(length, 0)
        columns = np.array(fields, np.int64).reshape(-1, 7).T
        return cls.sort(LogColumns(b"".join([*pieces, bytes(PADDING)]), *map(np.ascontiguousarray, columns)))

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.columns.offset)

    @cached_property
    def partition_of_key(self) -> Ints:
        """The partition of each key."""
        return self.columns.partition[self.starts[:-1]]

    @cached_property
    def keys_in_order(self) -> list[bytes]:
        """The keys in the order of their numbers."""
        first = self.starts[:-1]
        at, length = self.columns.key_at[first], np.maximum(self.columns.key_length[first], 0)
        data = self.columns.data
        return [data[start:end] for start, end in zip_equal(at.tolist(), (at + length).tolist())]

    @cached_property
    def _partitions(self) -> dict[int, tuple[int, int]]:
        """The range of key numbers of each partition, its end exclusive."""
        numbers = self.partition_of_key
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        return {int(numbers[start]): (start, end) for start, end in pairwise(edges) if start < end}

    def __getitem__(self, partition: int) -> PartitionTable:
        # Not cached: a cached child would keep this table alive, in a cycle.
        return PartitionTable(self, *self._partitions[partition])

    def __iter__(self) -> Iterator[int]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def of_partitions(self, partitions: Collection[int]) -> RecordTable:
        """Return the table of the given partitions only."""
        bad = [batch for batch in self.bad if batch.partition in partitions]
        return self._only(np.isin(self.partition_of_key, list(partitions)), bad)

    def where_key(self, wanted: Callable[[bytes], bool]) -> RecordTable:
        """Return the table of the wanted keys only."""
        return self._only(np.array([wanted(key) for key in self.keys_in_order], np.bool_), self.bad)

    def _only(self, keys: Flags, bad: Sequence[BadBatch]) -> RecordTable:
        lengths = np.diff(self.starts)
        rows = np.flatnonzero(np.repeat(keys, lengths))
        return RecordTable(_taken(self.columns, rows), np.cumsum([0, *lengths[keys].tolist()]), bad)

    def raws(self, rows: slice | Ints) -> list[RawRecord]:
        """Return the records in the given rows."""
        columns, data = self.columns, self.columns.data
        fields = (columns.value_at, columns.value_length, columns.offset, columns.at_ms)
        return [
            new_tuple(
                RawRecord, (None, offset, at_ms) if length < 0 else (data[at : at + length], offset, None)
            )
            for at, length, offset, at_ms in zip_equal(*(column[rows].tolist() for column in fields))
        ]


class PartitionTable(Mapping[bytes, Sequence[RawRecord]]):
    """Key -> records in one partition of a table: the keys with the numbers from `first` up to `end`."""

    def __init__(self, table: RecordTable, first: int, end: int) -> None:
        self.table, self.first, self.end = table, first, end

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return dict(zip_equal(self.table.keys_in_order[self.first : self.end], range(self.first, self.end)))

    def __getitem__(self, key: bytes) -> KeyRecords:
        number = self._numbers[key]
        return KeyRecords(self.table, int(self.table.starts[number]), int(self.table.starts[number + 1]))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return self.end - self.first


class KeyRecords(Sequence[RawRecord]):
    """The records of one key, the rows of a table up to `end`; each is built on access."""

    def __init__(self, table: RecordTable, start: int, end: int) -> None:
        self._table, self._start, self._end = table, start, end

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> RawRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[RawRecord]: ...
    def __getitem__(self, index: int | slice) -> RawRecord | list[RawRecord]:
        where = range(self._start, self._end)[index]
        if isinstance(where, int):
            return self._table.raws(slice(where, where + 1))[0]
        records = self._table.raws(slice(min(where, default=0), max(where, default=-1) + 1))
        return records[:: where.step]

    def __iter__(self) -> Iterator[RawRecord]:
        return iter(self._table.raws(slice(self._start, self._end)))


def _taken(columns: LogColumns, rows: Ints) -> LogColumns:
    return LogColumns(columns.data, *(column[rows] for column in columns[1:]))


def _by_hash(columns: LogColumns) -> tuple[Ints, Ints] | None:
    """Return the sorted rows and the start of each key; None if different keys share a hash."""
    if not columns.partition.max(initial=0) < 1 << _PARTITION_BITS:
        return None
    names = ByteStrings(columns.data, columns.key_at, np.maximum(columns.key_length, 0))
    bits = np.uint64(64 - _PARTITION_BITS)
    hashes = columns.partition.astype(np.uint64) << bits | names.hashes >> np.uint64(_PARTITION_BITS)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = ordered[1:] != ordered[:-1]
    if not (new | names.are_equal(order[1:], order[:-1])).all():
        return None
    ends = [len(order)] if len(order) else []
    return order, np.concatenate(([0], np.flatnonzero(new) + 1, ends)).astype(np.int64)


def _by_key(columns: LogColumns) -> tuple[Ints, Ints]:
    """Return the sorted rows and the start of each key, sorted by the keys themselves."""
    rows: dict[tuple[int, bytes], list[int]] = {}
    fields = (columns.partition, columns.key_at, np.maximum(columns.key_length, 0))
    for row, (partition, at, length) in enumerate(zip_equal(*(column.tolist() for column in fields))):
        rows.setdefault((partition, columns.data[at : at + length]), []).append(row)
    ordered = [rows[which] for which in sorted(rows, key=lambda which: which[0])]
    return np.array([row for key_rows in ordered for row in key_rows], np.int64), np.cumsum(
        [0, *map(len, ordered)]
    )
