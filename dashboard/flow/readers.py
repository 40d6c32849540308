"""The rows for a cluster's flow: each reader makes a bounded number of SQL queries."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery

from dashboard.models import (
    IS_OPEN,
    Batch,
    Group,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Query,
    ReplicaLook,
    SinkDecision,
    TopicTally,
    Transaction,
)
from dashboard.streaming import lag
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.registry import state_now
from dashboard.transactions.sql import unpacked_partitions
from dashboard.transactions.topic_tallies import LONG_S, SHORT_S
from fenceline.decode.text import escape_bytes
from fenceline.facts import Isolation
from fenceline.flow.graph import FlowGap, Latency
from fenceline.flow.observations import (
    GroupReads,
    OffsetWrites,
    ProducerKind,
    QueryLinks,
    TopicPartitionCounts,
    TopicWrites,
)
from fenceline.history.time_range import TimeRange
from fenceline.kafka.applications import application_of, sink_id_stem
from fenceline.kafka.fold.counting import MORE_TOPICS, MOST_TOPICS, OFFSETS_TOPIC
from fenceline.kafka.groups import STATUSES, GroupStatus, Waiting
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.series import histograms
from fenceline.spark.records import DecisionOutcome, QueryState

#: Ranges up to this length are read in quarters of an hour, longer ones in spans of six hours.
_LONGEST_SHORT_MS = 6 * 3_600_000
#: Maximum rows of written topics, newest first; and of open transactions and blockers, oldest first.
_MOST_ROWS, _MOST_OPEN = 20_000, 1_000
#: Maximum queries with figures, and the number of last batches of each.
_MOST_QUERIES, _BATCHES = 500, 20
_STUCK = (PartitionVerdict.LATE.value, PartitionVerdict.HANGING.value)


def topic_writes(
    cluster_id: int, shown: TimeRange, *, now_ms: int
) -> tuple[Sequence[TopicWrites], Sequence[OffsetWrites], Sequence[FlowGap], float, int | None]:
    """Return applications' writes in a range of whole spans, with transactions that began before it.

    Topics, offsets, gaps, the minutes in which transactions were counted, and the start of the stored rows,
    None without any.
    """
    span_s = SHORT_S if shown.length_ms <= _LONGEST_SHORT_MS else LONG_S
    start_ms = shown.from_ms - shown.from_ms % (span_s * 1_000)
    of_span = TopicTally.objects.filter(cluster=cluster_id, span_s=span_s)
    kept_since_ms = of_span.aggregate(first=Min("start_ms"))["first"]
    rows = of_span.filter(start_ms__gte=start_ms, start_ms__lt=shown.to_ms).order_by("-start_ms")
    columns = ("application", "topic", "partition", "commits", "aborts", "unreadable_times", "last_ms")
    writes: list[TopicWrites] = []
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    gaps: set[FlowGap] = set()
    for application, topic, partition, commits, aborts, times, last_ms in rows.values_list(*columns)[
        :_MOST_ROWS
    ]:
        if topic == OFFSETS_TOPIC:
            offsets[application, partition] += commits
        elif topic == MORE_TOPICS:
            reason = f"it writes more topics than the {MOST_TOPICS} that are kept"
            gaps.add(FlowGap(f"application:{application}", reason))
        else:
            histogram = histograms.unpack_histogram(times)
            writes.append(TopicWrites(application, topic, commits, aborts, histogram, last_ms))
    writes += _open_before(cluster_id, shown)
    first_ms = max(start_ms, kept_since_ms or start_ms)
    minutes = max(0.0, (min(shown.to_ms, now_ms) - first_ms) / 60_000)
    offset_writes = [OffsetWrites(*key, commits) for key, commits in sorted(offsets.items())]
    return writes, offset_writes, sorted(gaps), minutes, kept_since_ms


def _open_before(cluster_id: int, shown: TimeRange) -> Iterator[TopicWrites]:
    """Yield the writes of open transactions that began before a range that lasts until now."""
    if not shown.live:
        return
    rows = Transaction.objects.filter(IS_OPEN, cluster=cluster_id, started_ms__lt=shown.from_ms)
    rows = rows.exclude(partitions="").order_by("started_ms")
    for application, packed in rows.values_list("application", "partitions")[:_MOST_OPEN]:
        for topic, _ in unpacked_partitions(packed):
            if topic != OFFSETS_TOPIC:
                yield TopicWrites(application, topic)


def blocking_applications(cluster_id: int) -> frozenset[tuple[str, str]]:
    """Return applications with the topics whose partitions their open transactions block."""
    stuck = PinRecord.objects.filter(cluster=cluster_id, verdict__in=_STUCK).exclude(transactional_id="")
    rows = stuck.values_list("topic", "transactional_id").distinct()[:_MOST_OPEN]
    return frozenset((application_of(name).application, topic) for topic, name in rows)


def partition_counts(cluster_id: int) -> Mapping[str, TopicPartitionCounts]:
    """Return the number of partitions by topic, and of those whose LSO is blocked or unknown."""
    rows = PartitionRecord.objects.filter(cluster=cluster_id).order_by("topic")
    blocked, unknown = Q(verdict__in=_STUCK), ~Q(error="") | Q(verdict=PartitionVerdict.UNKNOWN.value)
    counted = rows.values_list("topic").annotate(
        n=Count("id"), stuck=Count("id", filter=blocked), unseen=Count("id", filter=unknown)
    )
    return {topic: TopicPartitionCounts(*numbers) for topic, *numbers in counted}


class _Reading(NamedTuple):
    """One group's commits for one topic, over its partitions."""

    statuses: list[str]
    lags: list[int]
    #: `fenceline.kafka.groups.Waiting`, or "".
    waiting: set[str]


def group_reads(cluster_id: int, offset_writes: Iterable[OffsetWrites], *, now: bool) -> Sequence[GroupReads]:
    """Return the commits of groups, by family and topic.

    A group whose partition of `__consumer_offsets` no transaction names commits outside of transactions; for
    other groups the header of a commit's batch decides. If not `now`, figures and status are omitted.
    """
    committing = {write.log_partition for write in offset_writes}
    groups = Group.objects.filter(cluster=cluster_id, partitions__gt=0)
    columns = groups.values_list("pk", "family", "log_partition", "committers")
    known = {pk: (family, log, committers) for pk, family, log, committers in columns}
    readings: dict[tuple[int, str], _Reading] = {}
    rows = GroupOffset.objects.filter(group__cluster=cluster_id)
    for pk, topic, status, lag_ms, waiting in rows.values_list(
        "group_id", "topic", "status", "lag_ms", "waiting"
    ):
        reading = readings.get((pk, topic))
        if reading is None:
            reading = readings[pk, topic] = _Reading([], [], set())
        reading.statuses.append(status)
        reading.waiting.add(waiting)
        if lag_ms is not None:
            reading.lags.append(lag_ms)
    by_topic: dict[tuple[str, str, str | None], list[tuple[_Reading, int | None]]] = defaultdict(list)
    for (pk, topic), reading in readings.items():
        if pk in known:
            family, log, committers = known[pk]
            application = _committer(committers, topic, hidden=log in committing)
            by_topic[family, topic, application].append((reading, log))
    return [_merged(*key, commits, now=now) for key, commits in sorted(by_topic.items(), key=_order)]


def _order(item: tuple[tuple[str, str, str | None], object]) -> tuple[str, str, str]:
    family, topic, application = item[0]
    return family, topic, application or ""


def _committer(packed: str, topic: str, *, hidden: bool) -> str | None:
    known = json.loads(packed) if packed else {}
    return known.get(topic) if topic in known or hidden else ""


def _merged(
    family: str,
    topic: str,
    application: str | None,
    some: Sequence[tuple[_Reading, int | None]],
    *,
    now: bool,
) -> GroupReads:
    statuses = [GroupStatus(status) for reading, _ in some for status in reading.statuses]
    logs = {log for _, log in some}
    lags = sorted(lag for reading, _ in some for lag in reading.lags)
    past = any(Waiting.READS_PAST in reading.waiting for reading, _ in some)
    return GroupReads(
        family,
        topic,
        application,
        len(statuses),
        max(statuses, key=STATUSES.index) if now else GroupStatus.UNKNOWN,
        sum(status is GroupStatus.BLOCKED for status in statuses) if now else 0,
        Latency(_at(lags, 0.5), _at(lags, 0.95)) if now else Latency(),
        logs.pop() if len(logs) == 1 else None,
        Isolation.READ_UNCOMMITTED if past else Isolation.UNKNOWN,
    )


def _at(ordered: Sequence[int], q: float) -> float | None:
    """Return the smallest figure that at least a share `q` of them does not exceed."""
    return float(ordered[max(0, -(-int(q * 100) * len(ordered) // 100) - 1)]) if ordered else None


def query_links(cluster: str, *, now_ms: int | None) -> Sequence[QueryLinks]:
    """Return the streaming queries of a cluster with the topics that they read and write.

    Without `now_ms`, figures and state are omitted.
    """
    rows = streaming_queries.of_cluster(cluster)[:_MOST_QUERIES]
    sources, outputs = lag.source_topics(rows), _outputs(rows)
    batches = {} if now_ms is None else _last_batches(rows)
    lost = _lost_batches(rows)
    return [
        QueryLinks(
            ident=row.ident,
            name=str(row),
            state=QueryState.UNHEARD if now_ms is None else state_now(row, now_ms),
            sources=sources.get(row.pk, ()),
            outputs=outputs.get(row.pk, ()),
            application=sink_application(row),
            sink=row.sink,
            batch_id=max((n for n in (row.planned, row.finished) if n is not None), default=None),
            batch_times=_batch_times(batches.get(row.pk, ())),
            input_rate=_input_rate(batches.get(row.pk, ())),
            prepared=0 if now_ms is None else row.prepared,
            error=row.error,
            checkpoint=row.planned is not None and bool(row.checkpoint),
            asynchronous=row.asynchronous,
            isolation=Isolation(row.isolation or Isolation.UNKNOWN),
            lost=lost.get(row.pk, 0),
            ledger_damaged=bool((row.detail.get("ledger") or {}).get("broken")),
        )
        for row in rows
    ]


def sink_application(row: Query) -> str:
    """Return the application of a query's sink, by its transactional ids; "" without a ledger."""
    if not (row.prefix and row.ledger_id):
        return ""
    stem = sink_id_stem(escape_bytes(row.prefix.encode()), row.ledger_id)
    return application_of(f"{stem}0-g0-b0-s0").application


def _outputs(rows: Sequence[Query]) -> Mapping[int, Sequence[str]]:
    """Return the topics in the newest decision of each query's ledger."""
    newest = SinkDecision.objects.filter(query=OuterRef("pk")).order_by("-batch_id", "-round")
    keys = Query.objects.filter(pk__in=[row.pk for row in rows if row.ledger_id])
    last = keys.annotate(last=Subquery(newest.values("pk")[:1])).values_list("last", flat=True)
    decisions = SinkDecision.objects.filter(pk__in=[pk for pk in last if pk is not None])
    return {
        query: sorted({topic for transaction in transactions for topic, _ in transaction["partitions"]})
        for query, transactions in decisions.values_list("query_id", "transactions")
    }


def _lost_batches(rows: Sequence[Query]) -> Mapping[int, int]:
    """Return the number of lost batches in each query's ledger, without zeros."""
    lost = SinkDecision.objects.filter(
        query__in=[row.pk for row in rows if row.ledger_id], outcome=DecisionOutcome.LOST
    )
    return dict(lost.order_by().values_list("query").annotate(number=Count("batch_id", distinct=True)))


def outside_transactions(cluster_id: int) -> Mapping[str, ProducerKind]:
    """Return the topics with records outside of transactions, if an operator asked the replicas.

    By the headers of the newest batches, and by producers without an open transaction that never had a
    marker.
    """
    rows = ReplicaLook.objects.filter(cluster=cluster_id, error="").order_by("-seen_ms")
    # Coordinators write plain records into Kafka's own topics.
    rows = rows.exclude(topic__startswith="__")
    found: dict[str, ProducerKind] = {}
    for topic, producers, writers in rows.values_list("topic", "producers", "writers")[:_MOST_OPEN]:
        counts = writers or {}
        if counts.get("plain"):
            found[topic] = ProducerKind.PLAIN
        elif counts.get("idempotent") or any(map(_is_outside, producers)):
            found.setdefault(topic, ProducerKind.IDEMPOTENT)
    return found


def _is_outside(producer: Mapping[str, object]) -> bool:
    marks = producer["transactional_id"], producer["coordinator_epoch"], producer["start_offset"]
    return all(mark in ("", None) for mark in marks)


#: Start, duration and rows of a batch.
_Figures = tuple[int | None, int | None, int | None]


def _last_batches(rows: Sequence[Query]) -> Mapping[int, Sequence[_Figures]]:
    figures_by_query: dict[int, list[_Figures]] = defaultdict(list)
    for upto in streaming_queries.batch_portions(streaming_queries.newest_batches(rows)):
        wanted = Q()
        for pk, number in upto.items():
            wanted |= Q(query=pk, batch_id__gt=number - _BATCHES)
        batches: QuerySet[Batch] = Batch.objects.filter(wanted).order_by("query_id", "batch_id")
        columns = ("query_id", "started_ms", "duration_ms", "input_rows")
        for pk, *figures in batches.values_list(*columns):
            figures_by_query[pk].append((figures[0], figures[1], figures[2]))
    return figures_by_query


def _batch_times(batches: Collection[_Figures]) -> Latency:
    times = sorted(duration for _, duration, _ in batches if duration is not None)
    return Latency(_at(times, 0.5), _at(times, 0.95))


def _input_rate(batches: Sequence[_Figures]) -> float | None:
    """Return rows per minute over the batches with a known start, between the first and the last."""
    known = [(begun, rows) for begun, _, rows in batches if begun is not None and rows is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return sum(rows for _, rows in known[1:]) / ((known[-1][0] - known[0][0]) / 60_000)
