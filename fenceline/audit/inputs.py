"""Count the records of each micro-batch's input: ranges of the offset log, counted by batch headers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fenceline.audit.runs import ABORT
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.spark.records import Positions


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
        """The offset after the last range."""
        return self._ranges[-1].to_offset

    def is_complete(self, next_offset: int) -> bool:
        """Whether no batch from this offset on can change the counts."""
        return next_offset >= self.end and not (self._committed_only and self._open)

    def take_batches(self, batches: Iterable[RecordBatch]) -> None:
        """Count more headers."""
        for batch in batches:
            if batch.marker:
                self._end(batch)
            elif batch.records and batch.first < self.end:
                self._add(batch)

    def finish(self) -> list[ReadCount]:
        """Return the count of each range."""
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
