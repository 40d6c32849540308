"""Positions of queries in each Kafka partition, and which of these partitions no longer exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db.models import OuterRef, Q, Subquery

from dashboard.models import Batch, Collector, DeletedPartition, PartitionRecord, Query, SinkDecision
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.streaming import queries as streaming_queries
from fenceline.decode.checkpoint import parse_positions
from fenceline.decode.ledger import transaction_from_json
from fenceline.facts import TopicPartition
from fenceline.grouping import grouped
from fenceline.spark.queries import Absence, SourcePosition
from fenceline.spark.records import Positions

#: Maximum batches that are searched for the time since which a position is unchanged.
_UNCHANGED_BATCHES = 50
#: A topic counts as missing only in a list read this long after a query was there, by whatever clock.
_SETTLED_MS = 10_000


class ReadUpTo(NamedTuple):
    """A query's position in a partition, and since when it is there, None where that is not known."""

    position: int
    since_ms: int | None


class MissingPlaces(NamedTuple):
    """Sources and outputs of a query that no longer exist."""

    sources: Sequence[SourcePosition]
    outputs: Sequence[str]


def finished_batches(rows: Sequence[Query]) -> Mapping[int, Batch]:
    """Return each query's newest finished batch: by its checkpoint, else by its listener."""
    unlogged = [row for row in rows if row.finished is None and row.planned is None]
    logged = {row.pk: row.finished for row in rows if row.finished is not None}
    return batches_by_number({**logged, **streaming_queries.newest_batches(unlogged)})


def batches_by_number(numbers: Mapping[int, int]) -> Mapping[int, Batch]:
    """Return one batch of each query, by the query's key, where it is known."""
    batches: dict[int, Batch] = {}
    for part in streaming_queries.batch_portions(numbers):
        wanted = reduce(or_, (Q(query=pk, batch_id=number) for pk, number in part.items()))
        batches |= {batch.query_id: batch for batch in Batch.objects.filter(wanted)}
    return batches


def newest_positions(rows: Sequence[Query]) -> Mapping[int, Mapping[TopicPartition, ReadUpTo]]:
    """Return the positions of queries by their newest finished batch; before the first, where they began."""
    done = finished_batches(rows)
    return {row.pk: _reached(done[row.pk]) if row.pk in done else _initial(row) for row in rows}


def unchanged_since(row: Query, positions: Positions) -> Mapping[TopicPartition, ReadUpTo]:
    """Return since when a query is at its positions, searching back batch by batch."""
    batches = Batch.objects.filter(query=row).exclude(committed_ms=None).exclude(offsets=[])
    reached: dict[TopicPartition, ReadUpTo] = {}
    left = dict(positions)
    if row.finished is not None:
        batches = batches.filter(batch_id__lte=row.finished)
    for batch in batches.order_by("-batch_id")[:_UNCHANGED_BATCHES]:
        there = _positions(batch.offsets)
        left = {where: offset for where, offset in left.items() if there.get(where) == offset}
        if not left:
            break
        reached |= {where: ReadUpTo(offset, batch.committed_ms) for where, offset in left.items()}
    return reached


def absent_partitions(
    cluster_id: int, reached: Mapping[TopicPartition, int | None], topics: Collection[str]
) -> Mapping[TopicPartition, Absence]:
    """Return the partitions that do not exist, of those without a row; `reached`: when a query was there.

    `topics` have at least one partition. Before the first complete poll nothing is reported as missing.
    """
    if not reached:
        return {}
    listed_ms = _listed_ms(cluster_id)
    names = {where.topic for where in reached}
    rows = DeletedPartition.objects.filter(cluster_id=cluster_id, topic__in=names)
    deleted = {TopicPartition(row.topic, row.partition): row for row in rows}
    return {
        where: _absence(deleted.get(where), where.topic in topics)
        for where, at_ms in reached.items()
        if where in deleted or (listed_ms is not None and listed_ms - (at_ms or 0) > _SETTLED_MS)
    }


def missing_by_query(rows: Sequence[Query]) -> Mapping[int, MissingPlaces]:
    """Return what is missing of each query, by its key."""
    clusters = grouped((row.cluster_id, row) for row in rows)
    missing: dict[int, MissingPlaces] = {}
    for cluster_id, its in clusters.items():
        sources, outputs = _missing_sources(cluster_id, its), missing_outputs(cluster_id, its)
        missing |= {row.pk: MissingPlaces(sources.get(row.pk, ()), outputs.get(row.pk, ())) for row in its}
    return missing


def missing_outputs(cluster_id: int, rows: Iterable[Query]) -> Mapping[int, Sequence[str]]:
    """Return, by query key, deleted topics that its exactly-once sink wrote to last."""
    gone = _deleted_topics(cluster_id)
    ours = [row.pk for row in rows if row.ledger_id]
    if not gone or not ours:
        return {}
    decisions = SinkDecision.objects.filter(query=OuterRef("pk")).exclude(transactions=[])
    last = decisions.order_by("-batch_id", "-round").values("transactions")[:1]
    written = Query.objects.filter(pk__in=ours).annotate(written=Subquery(last))
    topics = {pk: _topics(packed or []) & gone for pk, packed in written.values_list("pk", "written")}
    return {pk: sorted(gone_topics) for pk, gone_topics in topics.items() if gone_topics}


def _missing_sources(cluster_id: int, rows: Sequence[Query]) -> Mapping[int, Sequence[SourcePosition]]:
    positions = newest_positions(rows)
    names = {where.topic for places in positions.values() for where in places}
    known = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=names)
    there = {TopicPartition(*place) for place in known.values_list("topic", "partition")}
    missing = {
        where: reached.since_ms or row.planned_ms
        for row in rows
        for where, reached in positions[row.pk].items()
        if where not in there
    }
    absences = absent_partitions(cluster_id, missing, {where.topic for where in there})
    return {
        pk: [
            SourcePosition(*where, *reached, absence=absences[where])
            for where, reached in sorted(places.items())
            if where in absences
        ]
        for pk, places in positions.items()
    }


def _deleted_topics(cluster_id: int) -> set[str]:
    """Return topics that were deleted and not created again."""
    gone = set(DeletedPartition.objects.filter(cluster_id=cluster_id).values_list("topic", flat=True))
    if not gone:
        return gone
    rows = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=gone)
    there = rows.values_list("topic", flat=True)
    return gone - set(there)


def _topics(packed: Iterable[Any]) -> set[str]:
    return {
        where.topic
        for packed_transaction in packed
        for where in transaction_from_json(packed_transaction).partitions
    }


def _listed_ms(cluster_id: int) -> int | None:
    """Return when all partitions of a cluster were listed last."""
    row = Collector.objects.filter(cluster_id=cluster_id, name=PARTITIONS).first()
    return row.detail.get("full_ms") if row is not None else None


def _absence(row: DeletedPartition | None, topic_exists: bool) -> Absence:
    if row is None:
        return Absence(None, topic_exists=topic_exists)
    return Absence(row.deleted_ms, row.log_start, row.high_watermark, topic_exists)


def _reached(batch: Batch) -> Mapping[TopicPartition, ReadUpTo]:
    if batch.offsets or batch.committed_ms is not None:
        positions, at_ms = _positions(batch.offsets), batch.committed_ms
    else:
        # Only Kafka sources have positions in a progress event.
        positions = _positions([source.get("description"), source.get("end")] for source in batch.sources)
        at_ms = None if batch.started_ms is None else batch.started_ms + (batch.duration_ms or 0)
    return {where: ReadUpTo(offset, at_ms) for where, offset in positions.items()}


def _initial(row: Query) -> Mapping[TopicPartition, ReadUpTo]:
    """Return where a query began, for a query whose first batch is not finished."""
    return {
        TopicPartition(topic, int(number)): ReadUpTo(offset, None)
        for topics in row.detail.get("initial", {}).values()
        for topic, offsets in topics.items()
        for number, offset in offsets.items()
        if offset >= 0
    }


def _positions(offsets: Iterable[Sequence[Any]]) -> Positions:
    """Return Kafka's positions of all sources; where two read a partition, the lower one."""
    positions: dict[TopicPartition, int] = {}
    for _, raw in offsets:
        for where, offset in (parse_positions(raw) or {}).items():
            if offset >= 0:
                positions[where] = min(offset, positions.get(where, offset))
    return positions
