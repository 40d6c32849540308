"""Fold batch headers of one partition to runs: each producer's records per transaction, and its end.

Offsets are inclusive unless noted otherwise. Records are not decoded: a header has the producer, its epoch,
the first and last offset and the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition

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
    """The runs of one partition."""

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
