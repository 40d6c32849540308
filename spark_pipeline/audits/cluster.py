"""The audit's reads of a cluster: by the driver, ends of partitions and owners of producer ids; by tasks, the
batch headers of one partition each, which they fold.

Tasks decode no payload and return only runs and counts to the driver. A partition that cannot be read is
`Unseen` in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pyspark.sql import SparkSession

from fenceline.audit.judging import ProducerOwner
from fenceline.audit.runs import InputFold, PartitionRuns, ReadCount, ReadRange, RunFold
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets
from spark_pipeline.audits import AuditError
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX, translate_options
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

T = TypeVar("T")
Q = TypeVar("Q", bound="OutputScan | InputScan")

#: Seconds until a broker must have answered.
_PATIENCE_S = 30.0
#: Producer ids in one question: coordinators search all of their ids for an answer.
_MOST_OWNERS = 20
_CLEANUP_POLICY = "cleanup.policy"
#: Maximum bytes of one answer.
FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, **SLOTS)
class TopicEnds:
    """The first and the next offsets of topics at one moment."""

    offsets: Mapping[TopicPartition, Offsets]
    topic_ids: Mapping[str, str]
    #: Compacted topics.
    compacted: frozenset[str]


def kafka_connection(java: Mapping[str, str]) -> Mapping[str, str]:
    """Translate properties of Java clients to librdkafka's. Raises AuditError for an unknown one."""
    try:
        return translate_options({f"{PREFIX}{name}": value for name, value in java.items()}).connection
    except Refused as error:
        raise AuditError(str(error)) from error


def read_topics(properties: Mapping[str, str], topics: Collection[str]) -> TopicEnds:
    """Return the ends of the topics' partitions. Raises AuditError where one cannot be seen."""
    with closing(connect_reads(properties)) as reads:
        topology = reads.describe_topology(topics)
        if topology.missing:
            names = ", ".join(sorted(topology.missing))
            raise AuditError(f"there is no topic {names} at {properties['bootstrap.servers']}")
        for unseen in topology.unseen:
            require_seen(unseen)
        offsets = reads.list_offsets(topology.partitions)
        ends = {where: require_seen(answer) for where, answer in offsets.items()}
        policies = reads.topic_settings(topics, [_CLEANUP_POLICY])
    compacted = frozenset(
        topic for topic, policy in policies.items() if "compact" in (policy.get(_CLEANUP_POLICY) or "")
    )
    return TopicEnds(ends, topology.topic_ids, compacted)


def read_owners(properties: Mapping[str, str], producer_ids: Iterable[int]) -> Mapping[int, ProducerOwner]:
    """Return the owners of producer ids, as far as coordinators name them."""
    asked = sorted({producer_id for producer_id in producer_ids if producer_id >= 0})[:_MOST_OWNERS]
    if not asked:
        return {}
    with closing(connect_reads(properties)) as reads:
        try:
            owners = reads.transactional_ids(asked)
        except AdminUnavailable:
            return {}
    return {producer_id: _owner(name) for producer_id, name in owners.items()}


def _owner(transactional_id: str) -> ProducerOwner:
    parts = names.parse_id(transactional_id)
    return transactional_id, parts.stem if parts else ""


def connect_reads(properties: Mapping[str, str]) -> ClusterReads:
    """Return a connection to a cluster. Raises AuditError where there is none."""
    try:
        return ClusterReads(properties, _PATIENCE_S)
    except (AdminUnavailable, CannotTranslate) as error:
        raise AuditError(str(error)) from error


def require_seen(answer: T | Unseen) -> T:
    """Return an answer of the cluster. Raises AuditError where there is none."""
    if isinstance(answer, Unseen):
        raise AuditError(f"{answer.what} cannot be read: {answer.reason}")
    return answer


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
