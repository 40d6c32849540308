"""Fold a whole table of records: the results of `aggregate.fold_records` in a fraction of its time.

Everyday steps are found and packed in columns (`everyday`), and counted by application here, which leaves
one Python step per id. Other rows are folded one by one, as are all rows of ids with actions of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np

from fenceline.compat import pairwise, zip_equal
from fenceline.decode.columns import Ints, distinct
from fenceline.decode.record_table import RecordTable
from fenceline.decode.transaction_columns import TransactionColumns, read_transactions
from fenceline.decode.transaction_state import decode_key
from fenceline.facts import TransactionRecord, Undecoded
from fenceline.kafka.applications import application_of
from fenceline.kafka.attributions import CausesByRecord
from fenceline.kafka.fold import counting, transition_ring
from fenceline.kafka.fold.aggregate import MINUTE_MS, IdFold, count_undecoded, note_newest, tally_at
from fenceline.kafka.fold.everyday import (
    BASELINE,
    BUMPED,
    COMMIT,
    DONE,
    KINDS,
    ODD,
    EverydaySteps,
    find_steps,
)
from fenceline.kafka.fold.folded import Folded, Newest, Prior
from fenceline.series.histograms import Histogram, bucket_of
from fenceline.tuples import new_tuple

_UNKNOWN = Prior()
_NO_ACTIONS: CausesByRecord = {}
#: The buckets of short durations, by their milliseconds.
_BUCKETS = np.array([bucket_of(ms) for ms in range(4096)])


def fold_table(
    folded: Folded,
    table: RecordTable,
    priors: Mapping[int, Mapping[bytes, Prior]],
    holes: Mapping[int, Sequence[int]],
    actions: Mapping[bytes, CausesByRecord] = MappingProxyType({}),
) -> None:
    """Fold a table onto the known history of its ids: `priors` and `holes` by partition, `actions` by key.

    Equals `aggregate.fold_records` of one partition after the other. For a key in two partitions, the second
    fold knows only the state. Never raises.
    """
    for bad in table.bad:
        count_undecoded(folded, Undecoded("batch", bad.detail), bad.partition, bad.offset)
    if table.count:
        fold = _TableFold(folded, table, priors, holes, actions)
        fold.fold()


class _TableFold:
    """The fold of one table; lists are indexed by the numbers of its keys."""

    def __init__(
        self,
        folded: Folded,
        table: RecordTable,
        priors: Mapping[int, Mapping[bytes, Prior]],
        holes: Mapping[int, Sequence[int]],
        actions: Mapping[bytes, CausesByRecord],
    ) -> None:
        self._folded, self._table, self._actions = folded, table, actions
        self._holes = {partition: edges for partition, edges in holes.items() if edges}
        self._keys = table.keys_in_order
        self._names = [decode_key(key) for key in self._keys]
        self._partitions: list[int] = table.partition_of_key.tolist()
        self._priors = [
            priors.get(partition, {}).get(key, _UNKNOWN)
            for partition, key in zip_equal(self._partitions, self._keys)
        ]
        self._fields = read_transactions(table)
        self._steps = find_steps(table, self._fields, self._plain_priors(), self._holes)
        #: Rows that are folded one by one, and the runs between them with the last record of each.
        self._odd_rows = np.flatnonzero(self._steps.step == ODD)
        self._odd = iter(table.raws(self._odd_rows))
        self._runs = zip_equal(self._steps.runs(), *self._last_records(self._steps.run_ends - 1))
        #: "" where a name cannot be decoded.
        self._applications = [
            "" if isinstance(name, Undecoded) else application_of(name).application for name in self._names
        ]

    def _plain_priors(self) -> list[Prior | None]:
        """Return the priors, with None for keys whose records must be folded one by one."""
        last = {key: number for number, key in enumerate(self._keys)}
        twice = len(last) < len(self._keys)
        plain: list[Prior | None] = list(self._priors)
        for number, (key, name) in enumerate(zip_equal(self._keys, self._names)):
            if key in self._actions or isinstance(name, Undecoded) or (twice and last[key] != number):
                plain[number] = None
        if twice:
            known: set[bytes] = set()
            for number, key in enumerate(self._keys):
                plain[number] = None if key in known else plain[number]
                known.add(key)
        return plain

    def _last_records(self, rows: Ints) -> tuple[Iterator[TransactionRecord], Sequence[int]]:
        """Return the records in the given rows, and their offsets."""
        numbers = np.searchsorted(self._table.starts, rows, "right") - 1
        # A list: a generator would refer to this fold, and keep its records alive in a cycle.
        names = [str(self._names[number]) for number in numbers.tolist()]
        return self._fields.records(self._table, rows, names), self._table.columns.offset[rows].tolist()

    def fold(self) -> None:
        """Fold the table id by id, and count its everyday steps."""
        starts = self._table.starts
        odd = np.diff(np.searchsorted(self._odd_rows, starts)).tolist()
        for number, (start, end) in enumerate(pairwise(starts.tolist())):
            if odd[number]:
                self._fold_singly(number, start, end)
            else:
                self._fold_run(number)
        numbers: dict[str, int] = {}
        applications = [numbers.setdefault(name, len(numbers)) for name in self._applications]
        rows = np.repeat(np.array(applications, np.int64), np.diff(starts))
        count_steps(self._folded, self._fields, self._steps, rows, list(numbers))

    def _fold_run(self, number: int) -> None:
        """Note the newest state of an id with everyday records only."""
        (_, entries), record, offset = next(self._runs)
        prior = self._priors[number]
        place = self._partitions[number], offset
        packed = (entries + prior.packed)[: transition_ring.MOST * transition_ring.SIZE]
        newest = record.transactional_id, self._applications[number], record, None, *place, packed
        note_newest(self._folded, self._keys[number], new_tuple(Newest, newest), prior.state)

    def _fold_singly(self, number: int, start: int, end: int) -> None:
        """Fold the records of an id that has odd rows: odd rows one by one, the runs between them at once."""
        name, key, partition = self._names[number], self._keys[number], self._partitions[number]
        if isinstance(name, Undecoded):
            for raw in islice(self._odd, end - start):
                count_undecoded(self._folded, name, partition, raw.offset)
            return
        prior = self._priors[number]
        if (twin := self._folded.newest.get(key)) is not None:
            prior = Prior(twin.record and twin.record.state)
        fold = IdFold(self._folded, partition, key, name, prior, self._actions.get(key, _NO_ACTIONS))
        row, holes = start, self._holes.get(partition, ())
        while row < end:
            if self._steps.step[row] == ODD:
                fold.step(next(self._odd), holes)
                row += 1
            else:
                (row, entries), record, offset = next(self._runs)
                fold.take_run(record, offset, entries)
        fold.close()


def bucket_column(ms: Ints) -> Ints:
    """Return `histograms.bucket_of` of many durations at once."""
    octaves = np.maximum(np.frexp(np.maximum(ms, 1).astype(np.float64))[1] - 4, 0)
    long = octaves * 8 + (np.maximum(ms, 0) >> octaves)
    return np.where(ms < len(_BUCKETS), _BUCKETS[np.clip(ms, 0, len(_BUCKETS) - 1)], long)


def count_steps(
    folded: Folded,
    fields: TransactionColumns,
    steps: EverydaySteps,
    application: Ints,
    applications: Sequence[str],
) -> None:
    """Count the everyday steps of a table; `application` is each row's index in `applications`."""
    minute, step = fields.updated_ms // MINUTE_MS, steps.step

    def tally(row: tuple[int, ...]) -> counting.MinuteTally:
        return tally_at(folded, applications[row[0]], row[1] * MINUTE_MS)

    made = np.flatnonzero((step > BASELINE) & (step != DONE))
    for row, n in _grouped(application[made], minute[made], step[made]):
        tally(row).count_transition(KINDS[row[2]], n)
    commits = np.flatnonzero((step == COMMIT) | (step == BUMPED))
    for row, n in _grouped(application[commits], minute[commits], bucket_column(steps.span_ms[commits])):
        _add(tally(row).open_times, row[2], n)
    # The row before a completion is its commit.
    done = np.flatnonzero(step == DONE)
    for row, n in _grouped(application[done], minute[done - 1], bucket_column(steps.span_ms[done])):
        _add(tally(row).marker_times, row[2], n)
    _count_links(folded, fields, steps, application, applications, done)


def _count_links(
    folded: Folded,
    fields: TransactionColumns,
    steps: EverydaySteps,
    application: Ints,
    applications: Sequence[str],
    done: Ints,
) -> None:
    """Count commits by written partitions, which the record before the completion names."""
    written = [row for row, partitions in fields.partitions.items() if partitions]
    done = done[np.isin(fields.section[done - 1], written)]
    section, at_ms = fields.section[done - 1], fields.updated_ms[done]
    first, which = distinct(application[done], at_ms // counting.LINK_SPAN_MS, section)
    last_ms = at_ms[first]
    np.maximum.at(last_ms, which, at_ms)
    rows = (application[done][first], last_ms, section[first], np.bincount(which, minlength=len(first)))
    tallies = []
    for name, last, row, n in zip_equal(*(column.tolist() for column in rows)):
        partitions = fields.partitions[row] or ()
        tallies.append(counting.link_tally_at(folded.links, applications[name], last, partitions))
        tallies[-1].commits += n
    times = bucket_column(steps.span_ms[done] + steps.span_ms[done - 1])
    for (number, bucket), n in _grouped(which, times):
        _add(tallies[number].unreadable_times, bucket, n)


def _grouped(*columns: Ints) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each distinct row, and its count."""
    first, which = distinct(*columns)
    counts = np.bincount(which, minlength=len(first)).tolist()
    rows = zip_equal(*(column[first].tolist() for column in columns))
    return zip_equal(rows, counts)


def _add(histogram: Histogram, bucket: int, n: int) -> None:
    histogram[bucket] = histogram.get(bucket, 0) + n
