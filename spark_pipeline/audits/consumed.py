"""A pipeline's progress in its input, from its checkpoint or from its consumer group's commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from typing import NamedTuple

from fenceline.decode.checkpoint import parse_positions
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Committed
from fenceline.spark.records import Positions
from spark_pipeline.audits.checkpoint import AuditedCheckpoint
from spark_pipeline.audits.cluster import connect_reads
from spark_pipeline.audits.errors import AuditError
from transaction_admin.api import Unseen


class ConsumedInput(NamedTuple):
    """The next offset to read in each partition; every earlier record has its output."""

    positions: Mapping[TopicPartition, int]
    #: The id and the last batch of a Spark query.
    query_id: str = ""
    batch: int | None = None


def consumed_by_query(checkpoint: AuditedCheckpoint) -> ConsumedInput:
    """Return the input that a query's last committed batch has consumed. Raises AuditError."""
    finished = checkpoint.finished()
    if not finished:
        raise AuditError(f"{checkpoint.path} has no committed batch yet")
    batch = max(finished)
    ends: Positions = {}
    for source in checkpoint.sources_of(batch):
        positions = parse_positions(source.end)
        if source.end is not None and positions is None:
            raise AuditError(f"{checkpoint.path}/offsets/{batch}: source {source.source} is no Kafka topic")
        ends = {**ends, **(positions or {})}
    return ConsumedInput(ends, checkpoint.query_id, batch)


def consumed_by_group(properties: Mapping[str, str], group: str, topics: Collection[str]) -> ConsumedInput:
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
    return ConsumedInput(ends)
