"""Fold batch headers of one partition: of the output to runs (each producer's records per transaction, and
its end), of the input to the number of records of each micro-batch, by the ranges of the offset log.

Offsets are inclusive unless noted otherwise. Records are not decoded: a header has the producer, its epoch,
the first and last offset and the number of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.spark.records import Positions

COMMIT, ABORT = "commit", "abort"


class ProducerRun(NamedTuple):
    """One producer's records of one transaction in one partition, or all outside of transactions."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    transactional: bool
    first: int
    last: int
    records: int
    #: The newest timestamp of its records, in milliseconds.
    newest_ms: int
    #: "commit" or "abort"; "" while it is open, and outside of transactions.
    end: str = ""
    #: The offset of its marker.
    marker: int | None = None

    @property
    def is_committed(self) -> bool:
        """Whether readers of committed records can read it."""
        return not self.transactional or self.end == COMMIT

    @property
    def is_open(self) -> bool:
        """Whether no marker has ended it yet."""
        return self.transactional and not self.end


class PartitionRuns(NamedTuple):
    partition: TopicPartition
    runs: tuple[ProducerRun, ...]
    #: The first offset with missing records before existing ones, because of compaction; None without any.
    hole: int | None


class RunFold:
    """Folds headers of a partition in offset order, from `start` on.

    `spanning` are transactions that an earlier fold has returned: producer id -> offset of the marker.
    Records outside of transactions count only below the last stable offset `lso`: later ones are folded
    again.
    """

    def __init__(
        self, partition: TopicPartition, start: int, lso: int, spanning: Mapping[int, int] | None = None
    ) -> None:
        self.partition, self._next, self._lso = partition, start, lso
        self._spanning = dict(spanning or {})
        self._open: dict[int, ProducerRun] = {}
        self._plain: dict[tuple[int, int], ProducerRun] = {}
        self._ended: list[ProducerRun] = []
        self._hole: int | None = None

    def take_batches(self, batches: Iterable[RecordBatch]) -> None:
        """Fold more headers, except those of batches that begin before `start`."""
        for batch in batches:
            if batch.first < self._next:
                continue
            self._note_hole(batch)
            if batch.marker:
                self._end(batch)
            elif batch.records and batch.first > self._spanning.get(batch.producer_id, -1):
                self._add(batch)

    def finish(self) -> PartitionRuns:
        """Return the runs, in order of offsets."""
        runs = sorted((*self._ended, *self._open.values(), *self._plain.values()), key=lambda run: run.first)
        return PartitionRuns(self.partition, tuple(runs), self._hole)

    def _note_hole(self, batch: RecordBatch) -> None:
        gone = batch.first > self._next or (not batch.marker and batch.records < batch.last - batch.first + 1)
        if gone and self._hole is None:
            self._hole = min(batch.first, self._next)
        self._next = batch.last + 1

    def _end(self, marker: RecordBatch) -> None:
        run = self._open.pop(marker.producer_id, None)
        if run is not None:
            self._ended.append(run._replace(end=marker.marker, marker=marker.first))

    def _add(self, batch: RecordBatch) -> None:
        if batch.transactional:
            before = self._open.get(batch.producer_id)
            self._open[batch.producer_id] = _joined(self.partition, before, batch)
        elif batch.first < self._lso:
            key = batch.producer_id, batch.producer_epoch
            self._plain[key] = _joined(self.partition, self._plain.get(key), batch)


def _joined(partition: TopicPartition, run: ProducerRun | None, batch: RecordBatch) -> ProducerRun:
    if run is None:
        return ProducerRun(
            partition, batch.producer_id, batch.producer_epoch, batch.transactional, batch.first, batch.last,
            batch.records, batch.max_timestamp_ms,
        )  # fmt: skip
    newest_ms = max(run.newest_ms, batch.max_timestamp_ms)
    return run._replace(last=batch.last, records=run.records + batch.records, newest_ms=newest_ms)


class ReadRange(NamedTuple):
    """One micro-batch's input in one partition: from the first offset to before the second."""

    batch_id: int
    from_offset: int
    to_offset: int


class ReadCount(NamedTuple):
    """The number of records in one range; None if headers do not show it, and the reason."""

    partition: TopicPartition
    batch_id: int
    records: int | None
    reason: str = ""


def read_ranges(batch_id: int, start: Positions, end: Positions) -> Mapping[TopicPartition, ReadRange]:
    """Return a micro-batch's input between two positions; a new partition begins at 0."""
    return {
        where: ReadRange(batch_id, start.get(where, 0), offset)
        for where, offset in end.items()
        if offset > start.get(where, 0) >= 0
    }


class InputFold:
    """Counts records of one partition in consecutive, ascending ranges.

    With `committed_only`, records of aborted transactions do not count, nor those of transactions without a
    known marker.
    """

    def __init__(
        self, partition: TopicPartition, ranges: Sequence[ReadRange], *, committed_only: bool
    ) -> None:
        self.partition, self._ranges, self._committed_only = partition, ranges, committed_only
        self._starts = [read.from_offset for read in ranges]
        self._counts: dict[int, int] = dict.fromkeys((read.batch_id for read in ranges), 0)
        self._split: set[int] = set()
        #: Records by micro-batch of transactions that have not ended, by producer id.
        self._open: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))

    @property
    def end(self) -> int:
        return self._ranges[-1].to_offset

    def is_complete(self, next_offset: int) -> bool:
        """Whether no batch from this offset on can change the counts."""
        return next_offset >= self.end and not (self._committed_only and self._open)

    def take_batches(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if batch.marker:
                self._end(batch)
            elif batch.records and batch.first < self.end:
                self._add(batch)

    def finish(self) -> list[ReadCount]:
        if not self._committed_only:
            for counts in self._open.values():
                self._count(counts)
        return [self._count_of(batch_id, records) for batch_id, records in self._counts.items()]

    def _count_of(self, batch_id: int, records: int) -> ReadCount:
        if batch_id in self._split:
            return ReadCount(self.partition, batch_id, None, "a compacted batch lies in two micro-batches")
        return ReadCount(self.partition, batch_id, records)

    def _add(self, batch: RecordBatch) -> None:
        counts = self._open[batch.producer_id] if batch.transactional else defaultdict(int)
        for batch_id, records in self._shares(batch):
            counts[batch_id] += records
        if not batch.transactional:
            self._count(counts)

    def _end(self, marker: RecordBatch) -> None:
        counts = self._open.pop(marker.producer_id, None)
        if counts and not (self._committed_only and marker.marker == ABORT):
            self._count(counts)

    def _count(self, counts: Mapping[int, int]) -> None:
        for batch_id, records in counts.items():
            self._counts[batch_id] += records

    def _shares(self, batch: RecordBatch) -> Iterable[tuple[int, int]]:
        """Yield the number of a batch's records in each micro-batch."""
        first = max(0, bisect_right(self._starts, batch.first) - 1)
        dense = batch.records == batch.last - batch.first + 1
        for read in self._ranges[first:]:
            low, high = max(batch.first, read.from_offset), min(batch.last + 1, read.to_offset)
            if low < high:
                is_whole = high - low == batch.last - batch.first + 1
                if not dense and not is_whole:
                    self._split.add(read.batch_id)
                yield read.batch_id, batch.records if is_whole else high - low
