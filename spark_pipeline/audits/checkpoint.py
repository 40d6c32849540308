"""The audit's reads of a checkpoint: the query's identity, its ledger, and the input of each batch; and a
pipeline's progress in its input, from its checkpoint or from its consumer group's commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from pyspark.sql import SparkSession

from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.runs import ReadRange, read_ranges
from fenceline.decode.checkpoint import (
    batch_of,
    decode_initial_offsets,
    parse_positions,
)
from fenceline.decode.ledger import FOLDER
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed
from fenceline.spark.records import Broken, Decision, InputRange, Ledger, LedgerState, Positions
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.cluster import connect_reads
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.hadoop import open_from_spark
from spark_pipeline.sink.ledger import LedgerFolder, QueryFiles
from spark_pipeline.sink.storage import Storage
from transaction_admin.api import Unseen


class AuditedCheckpoint:
    """One query's checkpoint. Raises AuditError where it is missing or cannot be read."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        try:
            self._root: Storage = open_from_spark(spark, url, "")
            query_id = QueryFiles(self._root).query_id()
        except (SinkError, OSError) as error:
            raise AuditError(f"checkpoint {url} cannot be read: {error}") from error
        if query_id is None:
            raise AuditError(
                f"{url} is no checkpoint of a streaming query: it has no file metadata. Name the query's own "
                "checkpointLocation."
            )
        self.query_id, self.path = query_id, self._root.path
        self.files, self._ledger = QueryFiles(self._root), LedgerFolder(self._root)

    @property
    def ledger_path(self) -> str:
        """The path of the sink's ledger, also where it does not exist."""
        return f"{self.path}/{FOLDER}"

    def read_ledger(self) -> LedgerState:
        """Return the sink's ledger as it is now. Raises AuditError for files that are broken."""
        state = self._ledger.read_state()
        if state.broken:
            first = state.broken[0]
            raise AuditError(f"{self.path}/{first.path} cannot be used: {first.detail}. Restore this file.")
        return state

    def targets(self) -> tuple[str, ...]:
        """Return the topics that the ledger names. Raises AuditError where it names none."""
        topics = tuple(sorted(LedgerIndex(self.read_ledger()).topics()))
        if not topics:
            raise AuditError(f"{self.ledger_path} names no output topic: name it with --target")
        return topics

    def read_identity(self) -> Ledger | None:
        """Return the ledger's query, None without a ledger. Raises AuditError."""
        try:
            return self._ledger.read_identity()
        except SinkError as error:
            raise AuditError(str(error)) from error

    def finished(self) -> frozenset[int]:
        """Return the batches in the commit log that are in the offset log as well."""
        names = (self._root.subfolder(log).file_names() for log in ("commits", "offsets"))
        commits, offsets = ({batch for name in log if (batch := batch_of(name)) is not None} for log in names)
        return frozenset(commits & offsets)

    def input_of(self, batch_id: int, decision: Decision | None) -> Mapping[TopicPartition, ReadRange] | None:
        """Return a batch's input from Kafka; None where a source is not Kafka, or the logs do not name it."""
        ranges: dict[TopicPartition, ReadRange] = {}
        sources = decision.input if decision and decision.input else self.files.input_ranges(batch_id)
        for source in sources:
            end = parse_positions(source.end)
            start = self._start(source, batch_id)
            if source.end is None:
                continue
            if end is None or start is None:
                return None
            ranges.update(read_ranges(batch_id, start, end))
        return ranges if sources else None

    def _start(self, source: InputRange, batch_id: int) -> Positions | None:
        if source.start is not None:
            return parse_positions(source.start)
        if batch_id != 0:
            return None
        raw = self._root.subfolder("sources").subfolder(source.source).read("0")
        initial = None if raw is None else decode_initial_offsets(f"sources/{source.source}/0", raw)
        return None if isinstance(initial, Broken) else initial


def consumed_by_query(checkpoint: AuditedCheckpoint) -> tuple[Mapping[TopicPartition, int], int]:
    """Return the next offset of each partition by a query's last committed batch, and that batch.

    Every earlier record has its output. Raises AuditError.
    """
    finished = checkpoint.finished()
    if not finished:
        raise AuditError(f"{checkpoint.path} has no committed batch yet")
    batch = max(finished)
    ends: Positions = {}
    for source in checkpoint.files.input_ranges(batch):
        positions = parse_positions(source.end)
        if source.end is not None and positions is None:
            raise AuditError(f"{checkpoint.path}/offsets/{batch}: source {source.source} is no Kafka topic")
        ends = {**ends, **(positions or {})}
    return ends, batch


def consumed_by_group(
    properties: Mapping[str, str], group: str, topics: Collection[str]
) -> Mapping[TopicPartition, int]:
    """Return a group's committed offsets of topics. Raises AuditError.

    Pending commits do not count: their transaction may still abort.
    """
    with closing(connect_reads(properties)) as reads:
        commits = reads.committed_offsets([group], require_stable=False).get(group, {})
    if isinstance(commits, Unseen):
        raise AuditError(f"group {group} cannot be read: {commits.reason}")
    ends = {}
    for where, commit in commits.items():
        if where.topic not in topics:
            continue
        if not isinstance(commit, Committed):
            reason = commit.reason if isinstance(commit, Unseen) else "a commit is pending"
            raise AuditError(f"what group {group} has committed of {where} cannot be read: {reason}")
        ends[where] = commit.offset
    if not ends:
        raise AuditError(f"group {group} has committed nothing of {', '.join(sorted(topics))}")
    return ends
