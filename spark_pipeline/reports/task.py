"""A task of the history job: fold the records of whole partitions, in the order of their offsets.

Spark gives it the rows of whole partitions of `__transaction_state`: for each partition first the earlier
state of its ids, then its records by offset (`batches.fold_batches`). All verdicts depend on this order, so
the task checks it.

Between two micro-batches the state of an id is packed, `folded.Newest` -> bytes -> `folded.Prior`, in about
90 bytes: the plain fields of its last record and its newest transition, all that the fold needs to interpret
the next record. An id that the coordinator forgot keeps its expiry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
import pyarrow as pa

from fenceline.compat import SLOTS, pairwise, zip_equal
from fenceline.decode.transaction_state import STATES
from fenceline.facts import NOT_FROM_LOG, RawRecord, TransactionRecord
from fenceline.history.reports import PROGRESS, STATE, STRANGE
from fenceline.kafka.applications import name_applications
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_records
from fenceline.kafka.fold.folded import Folded, Newest, Prior
from fenceline.owners import Owner
from fenceline.tuples import new_tuple
from spark_pipeline.reports import columns

#: Records per fold: larger folds write fewer transitions that a later fold revises.
CHUNK = 100_000
#: Retention of ids that the coordinator forgot, the same as the dashboard's.
_REMEMBERED_MS = 30 * 86_400_000
#: Its status, state, producer id, epoch, timeout, last update, start (-1: none), client version, offset.
_KNOWN = Struct(">BBqhiqqhq")
_KNOWN_ID, _LOST_ID, _FORGOTTEN_ID = range(3)
#: Its status, and when it expired.
_FORGOTTEN = Struct(">Bq")
_CODES = {state: code for code, state in enumerate(STATES)}


class OutOfOrder(Exception):
    """Records came out of order or twice, so verdicts would be wrong."""


@dataclass(frozen=True, **SLOTS)
class Start:
    """The driver's knowledge before a micro-batch; see `fenceline.history.reports.Manifest`."""

    positions: Mapping[int, int] = field(default_factory=dict)
    holes: Mapping[int, int] = field(default_factory=dict)
    #: Write the state of every id, not only of changed ones.
    snapshot: bool = False
    #: The owners that name applications; see `fenceline.kafka.applications.name_applications`.
    owners: Sequence[Owner] = ()


def fold_rows(start: Start, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold rows (partition, offset, key, value, at_ms, is_record) and yield rows in `columns.SCHEMA`.

    Where `is_record` is false, `value` is an id's state after an earlier micro-batch, packed by `pack_prior`.
    Raises OutOfOrder.
    """
    name_applications(start.owners)
    current: _PartitionFold | None = None
    for rows in batches:
        numbers = rows.column("partition").to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            number = int(numbers[begin])
            if current is None or number != current.partition:
                if current is not None:
                    yield from current.finish()
                current = _PartitionFold(number, start)
            yield from current.take_rows(rows.slice(begin, end - begin))
    if current is not None:
        yield from current.finish()


class _PartitionFold:
    """Folds one partition's records chunk by chunk onto the state of its ids."""

    def __init__(self, partition: int, start: Start) -> None:
        self.partition, self._snapshot = partition, start.snapshot
        self._next = start.positions.get(partition, 0)
        hole = start.holes.get(partition)
        self._holes = [] if hole is None else [hole]
        self._known: dict[bytes, bytes] = {}
        self._changed: set[bytes] = set()
        self._records: defaultdict[bytes, list[RawRecord]] = defaultdict(list)
        self._waiting = self._count = 0
        self._newest_ms = 0

    def take_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of this partition, its earlier state first."""
        known = int(len(rows) - rows.column("is_record").true_count)
        if known and self._count:
            raise OutOfOrder(f"partition {self.partition}: what is known came after records")
        if known:
            first = rows.slice(0, known)
            self._known.update(zip_equal(*(first.column(c).to_pylist() for c in ("key", "value"))))
        if known < len(rows):
            self._gather(rows.slice(known))
            if self._waiting >= CHUNK:
                yield from self._fold()

    def _gather(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset").to_numpy()
        steps = np.diff(offsets, prepend=self._next - 1)
        if steps.min() < 1:
            where = int(offsets[steps.argmin()])
            raise OutOfOrder(f"partition {self.partition}: offset {where} where {self._next} or more was due")
        self._holes += offsets[steps > 1].tolist()
        self._next = int(offsets[-1]) + 1
        records = self._records
        values = (rows.column(name).to_pylist() for name in ("key", "value", "offset", "at_ms"))
        for key, value, offset, at_ms in zip_equal(*values):
            at = at_ms if value is None else None
            records[key or b""].append(new_tuple(RawRecord, (value, offset, at)))
        self._waiting += len(offsets)
        self._count += len(offsets)

    def _fold(self) -> Iterator[pa.RecordBatch]:
        known, folded = self._known, Folded(lives={})
        found = {key: unpack_prior(known[key]) for key in self._records if key in known}
        fold_records(folded, self.partition, self._records, found, self._holes)
        for key, newest in folded.newest.items():
            known[key] = pack_prior(newest)
            self._newest_ms = max(self._newest_ms, newest.record.updated_ms if newest.record else 0)
        for key in folded.lost & known.keys():
            known[key] = pack_lost(known[key])
        self._changed |= folded.newest.keys() | folded.lost & known.keys()
        self._holes = self._holes[-1:]
        self._records.clear()
        self._waiting = 0
        yield from columns.of_lives(list((folded.lives or {}).values()), self.partition, self._next - 1)
        yield from self._strange(folded)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Fold the remaining records; yield the state of ids and the position in this partition."""
        if self._waiting:
            yield from self._fold()
        if self._snapshot:
            self._forget()
        keys = sorted(self._known if self._snapshot else self._changed)
        if keys:
            yield columns.record_batch(
                STATE,
                {
                    "partition": [self.partition] * len(keys),
                    "known_to": [self._next - 1] * len(keys),
                    "key": keys,
                    "state": [self._known[key] for key in keys],
                },
            )
        yield columns.record_batch(
            PROGRESS,
            {
                "partition": [self.partition],
                "offset": [self._next],
                "known_to": [self._holes[-1] if self._holes else None],
                "n": [self._count],
            },
        )

    def _forget(self) -> None:
        """Forget ids that expired long ago by the partition's own timestamps: nothing else removes them."""
        before = self._newest_ms - _REMEMBERED_MS
        for key in [key for key, packed in self._known.items() if _expired_before(packed, before)]:
            del self._known[key]

    def _strange(self, folded: Folded) -> Iterator[pa.RecordBatch]:
        if folded.undecoded:
            firsts = [folded.strange[reason] for reason in folded.undecoded]
            yield columns.record_batch(
                STRANGE,
                {
                    "reason": list(folded.undecoded),
                    "n": list(folded.undecoded.values()),
                    "partition": [partition for partition, _, _ in firsts],
                    "offset": [offset for _, offset, _ in firsts],
                    "detail": [detail for _, _, detail in firsts],
                },
            )


def _expired_before(packed: bytes, instant_ms: int) -> bool:
    return packed[0] == _FORGOTTEN_ID and _FORGOTTEN.unpack_from(packed)[1] < instant_ms


def pack_prior(newest: Newest) -> bytes:
    """Pack the state of an id that the fold needs to interpret its next record."""
    last = newest.packed[: transition_ring.SIZE]
    record = newest.record
    if record is None:
        return _FORGOTTEN.pack(_FORGOTTEN_ID, newest.expired_ms or 0) + last
    started_ms = -1 if record.started_ms is None else record.started_ms
    standing = _LOST_ID if newest.offset == NOT_FROM_LOG else _KNOWN_ID
    return _KNOWN.pack(
        standing, _CODES[record.state], record.producer_id, record.producer_epoch, record.timeout_ms,
        record.updated_ms, started_ms, record.client_version, newest.offset,
    ) + last  # fmt: skip


def pack_lost(packed: bytes) -> bytes:
    """Pack the state after an undecodable record: the next record has no known predecessor."""
    return packed if packed[0] == _FORGOTTEN_ID else bytes([_LOST_ID]) + packed[1:]


def unpack_prior(packed: bytes) -> Prior:
    """Unpack the state in the form that `fold` takes."""
    if packed[0] == _FORGOTTEN_ID:
        last = packed[_FORGOTTEN.size :]
        return Prior(offset=transition_ring.expiry_offset(last), packed=last)
    standing, code, producer_id, epoch, timeout_ms, updated_ms, started_ms, version, offset = (
        _KNOWN.unpack_from(packed)
    )
    state, last = STATES[code], packed[_KNOWN.size :]
    if standing == _LOST_ID:
        return Prior(state, packed=last)
    started = None if started_ms == -1 else started_ms
    record = TransactionRecord(
        "", state, producer_id, epoch, timeout_ms, None, updated_ms, started, version
    )  # fmt: skip
    return Prior(state, record, offset, last)
