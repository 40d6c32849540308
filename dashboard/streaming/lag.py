"""Lag of streaming queries: their positions compared with the logs' start, LSO and end; who is blocked there.

Spark does not commit to its consumer groups. So positions come from the offset log of the newest finished
batch, or from its listener's progress event.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import F

from dashboard.models import Batch, PartitionRecord, PinRecord, Query
from dashboard.partitions import queries as partition_queries
from dashboard.streaming.positions import batches_by_number, finished_batches
from fenceline.decode.checkpoint import parse_positions
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Waiting, is_beyond_end, waiting_state
from fenceline.kafka.offset_histories import passed_ms, unpack_ends
from fenceline.kafka.partitions import Offsets

#: The queries of a cluster that a partition's page searches for its readers.
_MOST_QUERIES = 500
#: The smallest difference that orders instants of two machines.
_SETTLED_MS = 10_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A query's position in one partition; unknown figures are None."""

    source: str
    topic: str
    partition: int
    #: The next offset to read after its newest finished batch.
    position: int
    #: The end offset of the planned, unfinished batch.
    planned: int | None = None
    #: When the finished batch was done, by the clock of its driver or store.
    reached_ms: int | None = None
    seen: PartitionRecord | None = None
    #: The open transactions that block it, the one at the LSO first.
    pins: Sequence[PinRecord] = ()
    #: For how many milliseconds there have been unread records.
    behind_ms: int | None = None

    @property
    def lag_lso(self) -> int | None:
        """Return the number of offsets that it can read with read_committed; deleted ones do not count."""
        lag = self._before(self.seen.lso if self.seen else None)
        return lag and max(0, lag - (self.lost_offsets or 0))

    @property
    def lag_hw(self) -> int | None:
        """Return the number of offsets up to the end of the log."""
        return self._before(self.seen.high_watermark if self.seen else None)

    @property
    def lost_offsets(self) -> int | None:
        """Return the number of deleted unread offsets."""
        start = self.seen.log_start if self.seen else None
        return None if start is None else max(0, start - self.position)

    @property
    def is_past_end(self) -> bool:
        """Whether its position is past the end, because the topic was re-created or its log truncated.

        An end offset counts only if it was read after the position was reached; an older one is outdated.
        """
        row = self.seen
        if row is None or row.seen_ms is None or self.reached_ms is None:
            return False
        is_newer = row.seen_ms - self.reached_ms > _SETTLED_MS
        return is_newer and is_beyond_end(self.position, row.high_watermark)

    @property
    def waiting_state(self) -> str:
        """Return the position's relation to a stuck LSO (`Waiting`), "" without a stuck LSO."""
        row = self.seen
        if row is None or row.pinned_ms is None or row.lso is None or row.high_watermark is None:
            return ""
        offsets = Offsets(row.log_start or 0, row.lso, row.high_watermark, row.leader or 0)
        state = waiting_state(self.position, offsets, only_markers=False)
        return state.value if state else ""

    def _before(self, end: int | None) -> int | None:
        return None if end is None or self.is_past_end else max(0, end - self.position)


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a query with its positions."""

    source: str
    #: Spark's description (`KafkaV2[Subscribe[orders]]`), "" without a listener's report.
    description: str
    #: Its offset as Spark writes it, for sources other than Kafka's; None before the first read.
    raw: str | None
    parts: Sequence[PartitionLag]


@dataclass(frozen=True, slots=True)
class QueryLag:
    """Lag of a query over all of its partitions; `partial` if a partition's lag is unknown."""

    lag_lso: int | None = None
    lag_hw: int | None = None
    partial: bool = False
    partitions: int = 0
    #: The blockers of the partitions in which it waits at the LSO, and the number of these partitions.
    blockers: Sequence[PinRecord] = ()
    blocked: int = 0


#: The end of a source in a batch: the source's name, the end as Spark writes it, and its positions in Kafka.
_End = tuple[str, str | None, Mapping[TopicPartition, int]]


def source_positions(raw: str | None) -> Mapping[TopicPartition, int]:
    """Return a Kafka source's offsets without -1 and -2 (ends); empty for other kinds of sources."""
    return {at: offset for at, offset in (parse_positions(raw) or {}).items() if offset >= 0}


def query_sources(rows: Sequence[Query]) -> Mapping[int, Sequence[Source]]:
    """Return the sources of queries by the query's key, in four SQL queries."""
    done = finished_batches(rows)
    planned = batches_by_number({row.pk: row.planned for row in rows if row.planned is not None})
    ends = {row.pk: _ends(done.get(row.pk)) for row in rows}
    seen = partition_queries.partitions_by_name(
        (row.cluster_id, *where) for row in rows for *_, positions in ends[row.pk] for where in positions
    )
    pins = partition_queries.partition_pins(name for name, row in seen.items() if row.pinned_ms is not None)
    return {
        row.pk: _sources(row.cluster_id, done.get(row.pk), ends[row.pk], planned.get(row.pk), seen, pins)
        for row in rows
    }


def source_topics(rows: Sequence[Query]) -> Mapping[int, Sequence[str]]:
    """Return the Kafka topics that queries read in their newest known batch, by the query's key."""
    planned = {row.pk: row.planned for row in rows if row.planned is not None}
    unplanned = [row for row in rows if row.pk not in planned]
    batches = {**finished_batches(unplanned), **batches_by_number(planned)}
    return {
        pk: sorted({where.topic for *_, positions in _ends(batch) for where in positions})
        for pk, batch in batches.items()
    }


def query_lag(sources: Sequence[Source]) -> QueryLag:
    parts = _each_once(part for source in sources for part in source.parts)
    lso = [part.lag_lso for part in parts if part.lag_lso is not None]
    high = [part.lag_hw for part in parts if part.lag_hw is not None]
    stuck = [part for part in parts if part.waiting_state == Waiting.PROBABLY]
    held = {pin.pk: pin for part in stuck for pin in part.pins[:1]}
    return QueryLag(
        sum(lso) if lso else None,
        sum(high) if high else None,
        len(high) < len(parts),
        len(parts),
        list(held.values()),
        len(stuck),
    )


def _each_once(parts: Iterable[PartitionLag]) -> Sequence[PartitionLag]:
    """Return each partition once; if several sources read it, with the lowest position."""
    by_partition: dict[tuple[str, int], PartitionLag] = {}
    for part in parts:
        other = by_partition.setdefault((part.topic, part.partition), part)
        if part.position < other.position:
            by_partition[part.topic, part.partition] = part
    return list(by_partition.values())


def worst_first(parts: Iterable[PartitionLag]) -> Sequence[PartitionLag]:
    """Return partitions by urgency: lost records first, then blocked partitions, then by lag."""
    return sorted(
        parts,
        key=lambda part: (
            not part.is_past_end,
            -(part.lost_offsets or 0),
            part.waiting_state != Waiting.PROBABLY,
            -(part.lag_hw or 0),
            part.topic,
            part.partition,
        ),
    )


def add_unread_since(parts: Sequence[PartitionLag], cluster_id: int, now_ms: int) -> Sequence[PartitionLag]:
    """Return partitions with `behind_ms`, if their history of ends shows it."""
    topics, numbers = {part.topic for part in parts}, {part.partition for part in parts}
    rows = PartitionRecord.objects.filter(cluster=cluster_id, topic__in=topics, partition__in=numbers)
    ends = {
        (topic, number): history for topic, number, history in rows.values_list("topic", "partition", "ends")
    }
    return [
        replace(part, behind_ms=_behind_ms(part, ends.get((part.topic, part.partition), ""), now_ms))
        for part in parts
    ]


def partition_readers(row: PartitionRecord, *, most: int) -> Sequence[tuple[Query, PartitionLag]]:
    """Return the queries that read a partition with their lag, the largest lag first."""
    rows = Query.objects.filter(cluster=row.cluster_id).select_related("cluster").defer("detail")
    known = {query.pk: query for query in rows[:_MOST_QUERIES]}
    name = row.cluster_id, row.topic, row.partition
    pins = partition_queries.partition_pins([name])
    sources = {
        pk: _sources(row.cluster_id, batch, _ends(batch), None, {name: row}, pins)
        for pk, batch in finished_batches(list(known.values())).items()
    }
    parts = [
        (known[pk], part)
        for pk, of_query in sources.items()
        for part in _each_once(part for source in of_query for part in source.parts)
        if (part.topic, part.partition) == (row.topic, row.partition)
    ]
    return sorted(parts, key=lambda pair: (-(pair[1].lag_hw or 0), str(pair[0])))[:most]


def _sources(
    cluster_id: int,
    done: Batch | None,
    ends: Sequence[_End],
    planned: Batch | None,
    seen: Mapping[partition_queries.Name, PartitionRecord],
    pins: Mapping[partition_queries.Name, Sequence[PinRecord]],
) -> Sequence[Source]:
    ahead = {name: positions for name, _, positions in _ends(planned)}
    reported = (done.sources if done else None) or (planned.sources if planned else [])
    reached_ms = _reached_ms(done) if done else None
    sources = []
    for number, (name, raw, positions) in enumerate(ends):
        described = reported[number].get("description", "") if number < len(reported) else ""
        parts = [
            PartitionLag(
                name,
                where.topic,
                where.partition,
                at,
                _if_past(ahead.get(name, {}).get(where), at),
                reached_ms,
                seen.get((cluster_id, *where)),
                pins.get((cluster_id, *where), ()),
            )
            for where, at in positions.items()
        ]
        sources.append(Source(name, described, raw, parts))
    return sources


def _ends(batch: Batch | None) -> Sequence[_End]:
    """Return the end of each source of a batch, from its checkpoint, else from its progress event."""
    if batch is None:
        return []
    reported = [(str(number), source.get("end")) for number, source in enumerate(batch.sources)]
    return [(str(name), raw, source_positions(raw)) for name, raw in batch.offsets or reported]


def _reached_ms(done: Batch) -> int | None:
    """Return when a batch was done, None if neither its commit nor its progress is known."""
    if done.committed_ms is not None:
        return done.committed_ms
    return None if done.started_ms is None else done.started_ms + (done.duration_ms or 0)


def _if_past(planned: int | None, position: int) -> int | None:
    return planned if planned is not None and planned > position else None


def _behind_ms(part: PartitionLag, ends: Any, now_ms: int) -> int | None:
    """Return the milliseconds for which the end has been past a position, 0 if it is not, None if unknown."""
    if part.lag_hw is None or not part.lag_hw:
        return part.lag_hw
    passed = passed_ms(unpack_ends(ends), part.position, committed=False)
    return None if passed is None else max(0, now_ms - passed)


#: The most queries, and so finished batches, that a page reads.
_MOST_FINISHED = 500


class BlockedQuery(NamedTuple):
    """A query at the LSO of a partition: its newest finished batch has read up to that offset."""

    cluster: str
    ident: str
    name: str
    topic: str
    partition: int
    #: The time since which it may wait there.
    since_ms: int


def blocked_queries(pins: Collection[PinRecord]) -> Mapping[int, Sequence[BlockedQuery]]:
    """Return the queries at the LSO that a transaction blocks in a partition, by the pin's key."""
    rows = partition_queries.partitions_by_name((pin.cluster_id, pin.topic, pin.partition) for pin in pins)
    held = {
        (pin.cluster_id, pin.topic, pin.partition): pin
        for pin in pins
        if (row := rows.get((pin.cluster_id, pin.topic, pin.partition))) is not None
        and row.pinned_ms is not None
        and row.lso == pin.start_offset
    }
    finished = Batch.objects.filter(
        query__cluster__in={cluster_id for cluster_id, *_ in held}, batch_id=F("query__finished")
    )
    batches = finished.select_related("query__cluster").only(
        "offsets", "committed_ms", "query__ident", "query__name", "query__checkpoint", "query__cluster__name"
    )
    blocked: dict[int, list[BlockedQuery]] = defaultdict(list)
    for batch in batches[:_MOST_FINISHED] if held else ():
        for where, position in _positions(batch).items():
            pin = held.get((batch.query.cluster_id, *where))
            if pin is not None and position == pin.start_offset:
                pinned_ms = rows[pin.cluster_id, *where].pinned_ms or 0
                who = batch.query.cluster.name, batch.query.ident, str(batch.query)
                blocked[pin.pk].append(BlockedQuery(*who, *where, max(pinned_ms, batch.committed_ms or 0)))
    return blocked


def _positions(batch: Batch) -> Mapping[tuple[str, int], int]:
    return {where: at for _, raw in batch.offsets for where, at in (parse_positions(raw) or {}).items()}
