"""Tasks of the audit: read the batch headers of one partition by `ClusterReads`, and fold them in the task.

Tasks decode no payload and return only runs and counts to the driver. A partition that cannot be read is
`Unseen` in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

from pyspark.sql import SparkSession

from fenceline.audit.runs import InputFold, PartitionRuns, ReadCount, ReadRange, RunFold
from fenceline.facts import TopicPartition
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads

T = TypeVar("T")
Q = TypeVar("Q", bound="OutputScan | InputScan")

#: Maximum bytes of one answer.
FETCH_BYTES = 8 * 1024 * 1024
#: Seconds until a broker must have answered.
_PATIENCE_S = 30.0


class OutputScan(NamedTuple):
    """Read a partition of the output from `start` to its end."""

    partition: TopicPartition
    start: int
    lso: int
    end: int
    spanning: Mapping[int, int]


class InputScan(NamedTuple):
    """Count the records of a partition of the input in ascending ranges; up to `end` for markers."""

    partition: TopicPartition
    ranges: Sequence[ReadRange]
    end: int
    committed_only: bool


def scan_partitions(
    spark: SparkSession,
    properties: Mapping[str, str],
    scans: Sequence[Q],
    scan: Callable[[ClusterReads, Q], T | Unseen],
) -> list[T | Unseen]:
    """Run scans as Spark tasks; the scans of one task share a connection. `properties` are librdkafka's."""
    if not scans:
        return []
    tasks = min(len(scans), spark.sparkContext.defaultParallelism * 4)
    known = dict(properties)
    return (
        spark.sparkContext.parallelize(scans, tasks)
        .mapPartitions(lambda wanted: _scan_all(known, list(wanted), scan))
        .collect()
    )


def _scan_all(
    properties: Mapping[str, str], scans: Sequence[Q], scan: Callable[[ClusterReads, Q], T | Unseen]
) -> Iterable[T | Unseen]:
    try:
        with closing(ClusterReads(properties, _PATIENCE_S)) as reads:
            return [scan(reads, wanted) for wanted in scans]
    except AdminUnavailable as error:
        return [Unseen(str(wanted.partition), str(error)) for wanted in scans]


def scan_output(reads: ClusterReads, scan: OutputScan) -> PartitionRuns | Unseen:
    fold = RunFold(scan.partition, scan.start, scan.lso, scan.spanning)
    at = scan.start
    while at < scan.end:
        batches = reads.batch_headers(scan.partition, at, most_bytes=FETCH_BYTES)
        if isinstance(batches, Unseen):
            return batches
        if not batches.batches:
            return Unseen(
                str(scan.partition), f"nothing arrives at offset {at:,}, and it ends at {scan.end:,}"
            )
        fold.take_batches(batch for batch in batches.batches if batch.first < scan.end)
        at = batches.next
    return fold.finish()


def scan_input(reads: ClusterReads, scan: InputScan) -> list[ReadCount] | Unseen:
    fold = InputFold(scan.partition, scan.ranges, committed_only=scan.committed_only)
    at = scan.ranges[0].from_offset
    while at < scan.end and not fold.is_complete(at):
        batches = reads.batch_headers(scan.partition, at, most_bytes=FETCH_BYTES)
        if isinstance(batches, Unseen):
            return batches
        if not batches.batches:
            break
        fold.take_batches(batches.batches)
        at = batches.next
    return fold.finish()
