"""Visibility of each cluster: its revision, its collectors, their positions and gaps, and what a gap hides.

Every response has `as_of_ms`, the instant up to which all its collectors are complete, and the open gaps. So
no page shows old data silently. Readers open no transaction, because on SQLite it would block the collectors'
writes.

A late collector is a gap until it reports newer data. These gaps are not rows: they are derived from its
`seen_through_ms` and the clock. So they exist even if no process runs that could write them. An unreadable
broker or internal partition hides only its own subjects (`Places`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from django.conf import settings
from django.db.models import Count, Model, Q, QuerySet
from django.db.models.functions import Now

from dashboard.models import (
    Cluster,
    Collector,
    FlinkJob,
    GapRecord,
    Group,
    PartitionRecord,
    Position,
    Query,
)
from dashboard.runtime.collector_names import CAPABILITIES, RECONCILE, TAIL, TRANSACTIONS, collectors_of
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.runtime.sql import prepared
from fenceline.decode import text
from fenceline.findings import EVERYWHERE, expected_ms, kind_of, stale_gap
from fenceline.formatting import format_clock
from fenceline.grouping import grouped
from fenceline.kafka.coordinator import partition_for
from fenceline.limits import Limits

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Alive(TypedDict):
        alive: bool

    LiveCollector = WithAnnotations[Collector, _Alive]


#: Collectors without data for a page or a response.
SHOWS_NOTHING = ("retention", "deliveries", CAPABILITIES)


def late_gaps(rows: Iterable[LiveCollector], limits: Limits, now_ms: int) -> list[GapRecord]:
    """Return the gaps of late collectors as unsaved rows, oldest first; `rows` are sorted by cluster."""
    gaps = [
        gap
        for _, group in groupby(rows, attrgetter("cluster_id"))
        for gap in _of_cluster(list(group), limits, now_ms)
    ]
    return sorted(gaps, key=attrgetter("since_ms"))


def gap_reason(row: LiveCollector, since_ms: int) -> str:
    """Return why a collector reports nothing newer."""
    if row.error:
        return row.error
    if not row.alive:
        return "no worker holds its lease; is the worker running?"
    if row.behind:
        return f"it is catching up, {row.behind:,} records to go"
    if row.seen_through_ms is None:
        return f"its first poll, begun at {format_clock(since_ms)}, is not complete"
    return f"it has reported nothing newer than {format_clock(since_ms)}"


def absence_doubt(topic: str, poller: Collector | None, unseen: str, now_ms: int) -> str | None:
    """Return why a missing topic may be needed; "" if it is not needed, None until that is known.

    `poller` lists the users of such a topic and has found no user; `unseen` describes omissions in its last
    list.
    """
    if poller is None:
        return None
    if reason := poller.error or unseen:
        return f"brokers have no {topic}, and who needs it cannot be seen: {reason}"
    late_ms = expected_ms(settings.FENCELINE.limits, reads_on=False)
    is_new = poller.seen_through_ms is not None and now_ms - poller.seen_through_ms <= late_ms
    return "" if is_new else None


def _of_cluster(rows: list[LiveCollector], limits: Limits, now_ms: int) -> Iterable[GapRecord]:
    seeing = {row.name for row in collectors_of(rows)}
    several = len([row for row in rows if row.name.startswith(TAIL)]) > 1
    for row in rows:
        # While a tail reads the log, the coordinators' lists only serve for comparison, at their own
        # interval.
        if row.name in SHOWS_NOTHING or (row.name == RECONCILE and RECONCILE not in seeing):
            continue
        is_tail = row.name.startswith(TAIL)
        since_ms = row.since_ms if row.seen_through_ms is None else row.seen_through_ms
        gap = stale_gap(
            row.name,
            seen_through_ms=row.seen_through_ms,
            since_ms=row.since_ms,
            expected_ms=expected_ms(limits, reads_on=is_tail or row.name in seeing),
            now_ms=now_ms,
            reason=gap_reason(row, since_ms),
            scope=f"shard:{row.name.rpartition('-')[2]}" if is_tail and several else EVERYWHERE,
        )
        if gap is not None:
            yield GapRecord(
                cluster=row.cluster,
                source=gap.source,
                scope=gap.scope,
                since_ms=gap.since_ms,
                reason=gap.reason,
            )


M = TypeVar("M", bound=Model)
#: Maximum closed gaps on a page.
_RECENT_GAPS = 50


@dataclass(frozen=True, slots=True)
class AnswerVisibility:
    """The reliability of a response: the instant up to which it is complete, and its gaps."""

    as_of_ms: int | None
    gaps: Sequence[GapRecord]


@prepared
def configured_clusters() -> QuerySet[Cluster]:
    """Return the configured clusters, by name; a page asks several times."""
    return Cluster.objects.filter(configured=True).order_by("name")


def current_revision(cluster: str) -> int:
    """Return the revision of a cluster, or the sum of all; every change of a page's data changes it."""
    return sum(row.rev for row in clusters_named(cluster))


def noun_visibility(
    cluster: str,
    noun: str = TRANSACTIONS,
    now_ms: int | None = None,
    *,
    collectors: Sequence[LiveCollector] | None = None,
) -> AnswerVisibility:
    """Return the visibility of `cluster`, or of all clusters, through the collectors of a noun.

    It has all open gaps, oldest first, with those of late collectors (`dashboard.runtime.visibility`).
    A late collector with its own open gap for the whole cluster has one gap, not two. `collectors` are the
    rows of `list_collectors`, if already read.
    """
    rows = list_collectors(cluster) if collectors is None else collectors
    seeing = [
        row for _, group in groupby(rows, attrgetter("cluster_id")) for row in collectors_of(group, noun)
    ]
    seen = [row.seen_through_ms for row in seeing]
    as_of = None if not seen or None in seen else min(ms for ms in seen if ms is not None)
    still_open = rows_in(GapRecord, cluster).filter(until_ms=None)
    gaps = list(still_open.select_related("cluster").order_by("since_ms"))
    reported = {(gap.cluster_id, gap.source) for gap in gaps if gap.scope == EVERYWHERE}
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    late = late_gaps(rows, settings.FENCELINE.limits, at_ms)
    gaps += [gap for gap in late if (gap.cluster_id, gap.source) not in reported]
    return AnswerVisibility(as_of, sorted(gaps, key=attrgetter("since_ms")))


def gaps_closed() -> QuerySet[GapRecord]:
    return (
        GapRecord.objects.exclude(until_ms=None)
        .select_related("cluster")
        .order_by("-until_ms")[:_RECENT_GAPS]
    )


def state_log_partitions(cluster: str) -> int:
    """Return the number of read partitions of `__transaction_state`, 0 before the first poll."""
    return Position.objects.filter(cluster__name=cluster, topic="__transaction_state").count()


def list_collectors(cluster: str = "") -> Sequence[LiveCollector]:
    """Return the collectors by cluster and name; `alive`: a valid lease by the database's clock."""
    rows = rows_in(Collector, cluster).select_related("cluster").annotate(alive=Q(expires_at__gt=Now()))
    return list(rows.order_by("cluster__name", "name"))


def topic_positions(cluster: str) -> Sequence[Position]:
    """Return the positions in all partitions of the internal topics that are read."""
    rows = rows_in(Position, cluster).select_related("cluster")
    return list(rows.order_by("cluster__name", "topic", "partition"))


def rows_in(model: type[M], cluster: str = "") -> QuerySet[M]:
    """Return the rows of a configured cluster by its name; "" means all configured clusters."""
    rows = model._default_manager.filter(cluster__configured=True)
    return rows.filter(cluster__name=cluster) if cluster else rows


def count_by_cluster(rows: QuerySet[Any]) -> Mapping[str, int]:
    """Return the number of rows by cluster, without clusters that have no rows."""
    counts: dict[str, int] = dict(rows.order_by().values_list("cluster__name").annotate(n=Count("pk")))
    return counts


def clusters_named(cluster: str) -> Sequence[Cluster]:
    """Return the configured cluster with a name; all for ""."""
    return [row for row in configured_clusters() if not cluster or row.name == cluster]


def cluster_keys(cluster: str) -> Sequence[int]:
    """Return the key of the configured cluster with a name; all for ""."""
    return [row.pk for row in clusters_named(cluster)]


OFFSETS_TOPIC = "__consumer_offsets"


class Places:
    """The places of subjects: brokers, partitions of internal topics, shards."""

    def __init__(self, cluster_id: int, rows: Sequence[Collector]) -> None:
        self._cluster_id = cluster_id
        self._shards = len([row for row in rows if row.name.startswith(TAIL)])

    def places_of(self, things: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Return the places of the things with a known place."""
        kinds = grouped((kind_of(thing), thing.partition(":")[2]) for thing in things)
        return {
            **self._of_transactions(kinds["transaction"]),
            **self._of_partitions(set(kinds["partition"])),
            **self._of_groups(kinds["group"]),
            **self._of_queries(kinds["query"]),
            **self._of_flink_jobs(kinds["flink_job"]),
        }

    def _of_transactions(self, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
        rows = Position.objects.filter(cluster=self._cluster_id, topic=TRANSACTION_STATE)
        partitions = rows.count()
        if not partitions or self._shards < 2:
            return {f"transaction:{name}": frozenset() for name in names}
        numbers = {name: partition_for(text.unescape_text(name), partitions) for name in names}
        return {
            f"transaction:{name}": frozenset({f"shard:{number % self._shards}"})
            for name, number in numbers.items()
        }

    def _of_partitions(self, names: set[str]) -> Mapping[str, frozenset[str]]:
        if not names:
            return {}
        topics = {name.rpartition("-")[0] for name in names}
        rows = PartitionRecord.objects.filter(cluster=self._cluster_id, topic__in=topics)
        places = rows.values_list("topic", "partition", "leader", "replicas")
        return {
            f"partition:{topic}-{number}": _places_of_partition(topic, leader, replicas)
            for topic, number, leader, replicas in places
            if f"{topic}-{number}" in names
        }

    def _of_groups(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        rows = Group.objects.filter(cluster=self._cluster_id, group_id__in=names)
        return {
            f"group:{name}": frozenset({f"broker:{coordinator}", f"{OFFSETS_TOPIC}-{log}"})
            for name, coordinator, log in rows.values_list("group_id", "coordinator", "log_partition")
            if coordinator is not None and log is not None
        }

    def _of_queries(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the folder of each query: an incompletely searched root does not hide known folders."""
        rows = Query.objects.filter(cluster=self._cluster_id, ident__in=names).exclude(checkpoint="")
        return {
            f"query:{name}": frozenset({f"checkpoint:{path}"})
            for name, path in rows.values_list("ident", "checkpoint")
        }

    def _of_flink_jobs(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        rows = FlinkJob.objects.filter(cluster=self._cluster_id, ident__in=names)
        return {
            f"flink_job:{name}": frozenset({f"checkpoint:{path}"})
            for name, path in rows.values_list("ident", "path")
        }


def _places_of_partition(topic: str, leader: int | None, replicas: Sequence[int]) -> frozenset[str]:
    """Return a partition's topic and leader; without a leader, the brokers of its replicas."""
    brokers = replicas if leader is None else [leader]
    return frozenset({f"topic:{topic}", *(f"broker:{broker}" for broker in brokers)})
