"""Read queries' positions in Kafka partitions, and find partitions that no longer exist."""

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

#: Maximum batches that are searched for the last change of a position.
_UNCHANGED_BATCHES = 50
#: A topic counts as missing only if it was listed at least this long after a query's position there.
_SETTLED_MS = 10_000


class ReadUpTo(NamedTuple):
    """A query's position in a partition, and the time since which it is there, None if unknown."""

    position: int
    since_ms: int | None


def finished_batches(rows: Sequence[Query]) -> Mapping[int, Batch]:
    """Return each query's newest finished batch: from its checkpoint, else from its listener."""
    unlogged = [row for row in rows if row.finished is None and row.planned is None]
    logged = {row.pk: row.finished for row in rows if row.finished is not None}
    return batches_by_number({**logged, **streaming_queries.newest_batches(unlogged)})


def batches_by_number(numbers: Mapping[int, int]) -> Mapping[int, Batch]:
    """Return the known batches among `numbers` (a batch for each query), by the query's key."""
    batches: dict[int, Batch] = {}
    for part in streaming_queries.batch_portions(numbers):
        wanted = reduce(or_, (Q(query=pk, batch_id=number) for pk, number in part.items()))
        batches |= {batch.query_id: batch for batch in Batch.objects.filter(wanted)}
    return batches


def newest_positions(rows: Sequence[Query]) -> Mapping[int, Mapping[TopicPartition, ReadUpTo]]:
    """Return the positions of queries after their newest finished batch, or their initial positions."""
    done = finished_batches(rows)
    return {row.pk: _reached(done[row.pk]) if row.pk in done else _initial(row) for row in rows}


def unchanged_since(row: Query, positions: Positions) -> Mapping[TopicPartition, ReadUpTo]:
    """Return the times since which a query is at its positions, searching back batch by batch."""
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
    cluster_id: int,
    positions: Iterable[tuple[Query, Mapping[TopicPartition, ReadUpTo]]],
    there: Collection[TopicPartition],
) -> Mapping[TopicPartition, Absence]:
    """Return the missing partitions among queries' positions; `there` are the partitions with a row.

    Before the first complete poll no partition is reported as missing.
    """
    reached = {
        where: at.since_ms or row.planned_ms
        for row, places in positions
        for where, at in places.items()
        if where not in there
    }
    if not reached:
        return {}
    collector = Collector.objects.filter(cluster_id=cluster_id, name=PARTITIONS).first()
    listed_ms = None if collector is None else collector.detail.get("full_ms")
    topics = {where.topic for where in there}
    names = {where.topic for where in reached}
    rows = DeletedPartition.objects.filter(cluster_id=cluster_id, topic__in=names)
    deleted = {TopicPartition(row.topic, row.partition): row for row in rows}
    return {
        where: _absence(deleted.get(where), where.topic in topics)
        for where, at_ms in reached.items()
        if where in deleted or (listed_ms is not None and listed_ms - (at_ms or 0) > _SETTLED_MS)
    }


def missing_by_query(rows: Sequence[Query]) -> Mapping[int, tuple[Sequence[SourcePosition], Sequence[str]]]:
    """Return the missing sources and outputs of each query, by the query's key."""
    clusters = grouped((row.cluster_id, row) for row in rows)
    missing: dict[int, tuple[Sequence[SourcePosition], Sequence[str]]] = {}
    for cluster_id, queries in clusters.items():
        sources, outputs = _missing_sources(cluster_id, queries), missing_outputs(cluster_id, queries)
        missing |= {row.pk: (sources.get(row.pk, ()), outputs.get(row.pk, ())) for row in queries}
    return missing


def missing_outputs(cluster_id: int, rows: Iterable[Query]) -> Mapping[int, Sequence[str]]:
    """Return deleted topics to which exactly-once sinks wrote last, by the query's key."""
    with_ledger = [row.pk for row in rows if row.ledger_id]
    gone = _deleted_topics(cluster_id) if with_ledger else set()
    if not gone:
        return {}
    decisions = SinkDecision.objects.filter(query=OuterRef("pk")).exclude(transactions=[])
    last = decisions.order_by("-batch_id", "-round").values("transactions")[:1]
    written = Query.objects.filter(pk__in=with_ledger).annotate(written=Subquery(last))
    topics = {pk: _topics(packed or []) & gone for pk, packed in written.values_list("pk", "written")}
    return {pk: sorted(gone_topics) for pk, gone_topics in topics.items() if gone_topics}


def _missing_sources(cluster_id: int, rows: Sequence[Query]) -> Mapping[int, Sequence[SourcePosition]]:
    positions = newest_positions(rows)
    names = {where.topic for places in positions.values() for where in places}
    known = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=names)
    there = {TopicPartition(*place) for place in known.values_list("topic", "partition")}
    absences = absent_partitions(cluster_id, [(row, positions[row.pk]) for row in rows], there)
    return {
        pk: [
            SourcePosition(*where, *reached, absence=absences[where])
            for where, reached in sorted(places.items())
            if where in absences
        ]
        for pk, places in positions.items()
    }


def _deleted_topics(cluster_id: int) -> set[str]:
    """Return deleted topics that were not re-created."""
    gone = set(DeletedPartition.objects.filter(cluster_id=cluster_id).values_list("topic", flat=True))
    if not gone:
        return gone
    there = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=gone)
    return gone - set(there.values_list("topic", flat=True))


def _topics(packed: Iterable[Any]) -> set[str]:
    return {
        where.topic
        for packed_transaction in packed
        for where in transaction_from_json(packed_transaction).partitions
    }


def _absence(row: DeletedPartition | None, topic_exists: bool) -> Absence:
    if row is None:
        return Absence(None, topic_exists=topic_exists)
    return Absence(row.deleted_ms, row.log_start, row.high_watermark, topic_exists)


def _reached(batch: Batch) -> Mapping[TopicPartition, ReadUpTo]:
    if batch.offsets or batch.committed_ms is not None:
        positions, at_ms = _positions(batch.offsets), batch.committed_ms
    else:
        # In a progress event only Kafka sources have positions.
        positions = _positions([source.get("description"), source.get("end")] for source in batch.sources)
        at_ms = None if batch.started_ms is None else batch.started_ms + (batch.duration_ms or 0)
    return {where: ReadUpTo(offset, at_ms) for where, offset in positions.items()}


def _initial(row: Query) -> Mapping[TopicPartition, ReadUpTo]:
    """Return the initial positions of a query, for use before its first finished batch."""
    return {
        TopicPartition(topic, int(number)): ReadUpTo(offset, None)
        for topics in row.detail.get("initial", {}).values()
        for topic, offsets in topics.items()
        for number, offset in offsets.items()
        if offset >= 0
    }


def _positions(offsets: Iterable[Sequence[Any]]) -> Positions:
    """Return the Kafka positions of all sources; for a partition of two sources, the lower position."""
    positions: dict[TopicPartition, int] = {}
    for _, raw in offsets:
        for where, offset in (parse_positions(raw) or {}).items():
            if offset >= 0:
                positions[where] = min(offset, positions.get(where, offset))
    return positions
