"""Read values of `__transaction_state` with the usual layout into columns of their fields.

Every record it reads agrees with `transaction_state.decode_value`. It leaves other records to that function:
tombstones, rare tag sections, implausible numbers, undecodable bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import add
from typing import NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from fenceline.compat import zip_equal
from fenceline.decode.columns import (
    ByteStrings,
    Flags,
    Ints,
    combined,
    fields_at,
    numbers_at,
    representatives,
)
from fenceline.decode.record_table import RecordTable
from fenceline.decode.transaction_state import LATEST_MS, STATES, decode_section, tag_fields
from fenceline.facts import TopicPartitions, TransactionRecord, Undecoded
from fenceline.tuples import new_tuple

#: Before and after the partitions.
_HEAD = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("epoch", ">i2"), ("timeout_ms", ">i4"), ("status", "i1")]
)
_TIMES = np.dtype([("updated_ms", ">i8"), ("started_ms", ">i8")])
_FIXED = _HEAD.itemsize + _TIMES.itemsize
_Partitions = Optional[tuple[TopicPartitions, ...]]


#: The tags that Kafka writes (4, 2 with its value, 1 and 0), last first: their size and first bytes.
_TAGS = ((4, ">u2", 0x0402), (4, ">u4", 0x02020002), (10, ">u2", 0x0108), (10, ">u2", 0x0008))
_VERSION_TAG = 1
_record = partial(new_tuple, TransactionRecord)


class TransactionColumns(NamedTuple):
    """The fields of a table's records, by row. The fields of rows that are not `plain` are meaningless."""

    plain: Flags
    status: Ints
    producer_id: Ints
    epoch: Ints
    timeout_ms: Ints
    updated_ms: Ints
    #: -1 for none.
    started_ms: Ints
    client_version: Ints
    #: A row with the same partitions; `partitions` has the partitions of such rows.
    section: Ints
    #: The length of the value's tag section, in bytes.
    tags: Ints
    partitions: dict[int, _Partitions]

    def records(self, table: RecordTable, rows: Ints, names: Iterable[str]) -> Iterator[TransactionRecord]:
        """Return the records in plain rows of their table, with these ids."""
        data, tags = table.columns.data, self.tags[rows]
        ends = table.columns.value_at[rows] + table.columns.value_length[rows]
        tag_sections = [data[at:end] for at, end in zip_equal((ends - tags).tolist(), ends.tolist())]
        numbers = (self.producer_id, self.epoch, self.timeout_ms, self.section, self.updated_ms)
        producer_id, epoch, timeout_ms, section, updated_ms = (column[rows].tolist() for column in numbers)
        first = zip_equal(
            names, map(STATES.__getitem__, self.status[rows].tolist()), producer_id, epoch, timeout_ms,
            map(self.partitions.get, section), updated_ms,
            [None if at_ms == -1 else at_ms for at_ms in self.started_ms[rows].tolist()],
        )  # fmt: skip
        return map(_record, map(add, first, map(tag_fields, tag_sections)))


def read_transactions(table: RecordTable) -> TransactionColumns:
    """Return the fields of all records of a table."""
    data, at, length = table.columns.data, table.columns.value_at, table.columns.value_length
    # Short values and tombstones are not plain, and are read at the start of the data instead.
    plain = length > _FIXED
    at, length = np.where(plain, at, 0), np.where(plain, length, _FIXED + 1)
    head = fields_at(data, at, _HEAD)
    version, status = head["version"], head["status"]
    tags, client_version = _tags(data, at + length)
    # Version 0 has no tags.
    tags[version == 0], client_version[version == 0] = 0, 0
    end = at + length - tags
    times = fields_at(data, end - _TIMES.itemsize, _TIMES)
    updated_ms, started_ms = times["updated_ms"], times["started_ms"]
    sized = end - at - _FIXED
    plain &= (version == 0) | ((version == 1) & (tags > 0))
    plain &= (sized > 0) & (status >= 0) & (status < 6)
    plain &= (started_ms >= -1) & (started_ms <= updated_ms) & (updated_ms >= 0) & (updated_ms < LATEST_MS)
    section, partitions = _sections(data, at + _HEAD.itemsize, sized, version, plain)
    epoch, timeout_ms = head["epoch"].astype(np.int64), head["timeout_ms"].astype(np.int64)
    return TransactionColumns(
        plain, status.astype(np.int64), head["producer_id"], epoch, timeout_ms, updated_ms, started_ms,
        client_version, section, tags, partitions,
    )  # fmt: skip


def _tags(data: bytes, ends: Ints) -> tuple[Ints, Ints]:
    """Return the length of the tag section before each end, 0 for an unknown one, and the client version.

    The section is read backwards, because the partitions before it have no fixed length. Bytes that only look
    like a tag disagree with the number of tags, or with the end of the partitions.
    """
    end, count, client_version = ends.copy(), np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64)
    for number, (size, kind, begins) in enumerate(_TAGS):
        fits = numbers_at(data, end - size, kind) == begins
        end -= size * fits
        count += fits
        if number == _VERSION_TAG:
            client_version = 2 * fits.astype(np.int64)
    known = numbers_at(data, end - 1, "u1") == count
    return np.where(known, ends - end + 1, 0), client_version


def _sections(
    data: bytes, at: Ints, length: Ints, version: npt.NDArray[np.int16], plain: Flags
) -> tuple[Ints, dict[int, _Partitions]]:
    """Return, for each row, a row with the same partitions, and the partitions of such rows.

    `plain` is cleared in rows whose partitions do not end at the expected place.
    """
    rows = np.flatnonzero(plain)
    names = ByteStrings(data, at[rows], length[rows])
    same = representatives(combined(names.hashes.view(np.int64), version[rows]))
    equal = names.are_equal(same, np.arange(len(rows))) & (version[rows][same] == version[rows])
    partitions: dict[int, _Partitions] = {}
    good = np.zeros(len(rows), np.bool_)
    for number in np.flatnonzero(same == np.arange(len(rows))).tolist():
        row = int(rows[number])
        decoded = decode_section(int(version[row]), data[int(at[row]) : int(at[row] + length[row])])
        if not isinstance(decoded, Undecoded):
            partitions[row] = decoded
            good[number] = True
    plain[rows] = equal & good[same]
    section = np.zeros(len(plain), np.int64)
    section[rows] = rows[same]
    return section, partitions
