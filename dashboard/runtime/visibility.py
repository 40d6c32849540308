"""Visibility of each cluster: its revision, its collectors, their positions and gaps.

Every response has `as_of_ms`, the instant up to which all its collectors are complete, and the open gaps. So
no page shows old data silently. Readers open no transaction, because on SQLite it would block the collectors'
writes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db.models import Count, Model, Q, QuerySet
from django.db.models.functions import Now

from dashboard.models import (
    Cluster,
    Collector,
    GapRecord,
    Position,
)
from dashboard.runtime import stale_collectors
from dashboard.runtime.collector_names import TRANSACTIONS, collectors_of
from dashboard.runtime.sql import prepared
from fenceline.findings.visibility import EVERYWHERE

if TYPE_CHECKING:
    from dashboard.runtime.stale_collectors import LiveCollector

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


def current_revision(cluster: str = "") -> int:
    """Return the revision of a cluster, or the sum of all; every change of a page's data changes it."""
    rows = Cluster.objects.filter(configured=True)
    if cluster:
        rows = rows.filter(name=cluster)
    return sum(rows.values_list("rev", flat=True))


def noun_visibility(
    cluster: str = "",
    noun: str = TRANSACTIONS,
    now_ms: int | None = None,
    *,
    collectors: Sequence[LiveCollector] | None = None,
) -> AnswerVisibility:
    """Return the visibility of `cluster`, or of all clusters, through the collectors of a noun.

    It has all open gaps, oldest first, with those of late collectors (`dashboard.runtime.stale_collectors`).
    A late collector with its own open gap for the whole cluster has one gap, not two. `collectors` are the
    rows of `list_collectors`, if already read.
    """
    rows = list_collectors(cluster) if collectors is None else collectors
    seeing = [
        row for _, group in groupby(rows, attrgetter("cluster_id")) for row in collectors_of(group, noun)
    ]
    seen = [row.seen_through_ms for row in seeing]
    as_of = None if not seen or None in seen else min(ms for ms in seen if ms is not None)
    gaps = list(rows_of_cluster(gaps_open(), cluster))
    reported = {(gap.cluster_id, gap.source) for gap in gaps if gap.scope == EVERYWHERE}
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    late = stale_collectors.late_gaps(rows, settings.FENCELINE.limits, at_ms)
    gaps += [gap for gap in late if (gap.cluster_id, gap.source) not in reported]
    return AnswerVisibility(as_of, sorted(gaps, key=attrgetter("since_ms")))


def gaps_open() -> QuerySet[GapRecord]:
    """Return the open gaps, oldest first."""
    return (
        GapRecord.objects.filter(until_ms=None, cluster__configured=True)
        .select_related("cluster")
        .order_by("since_ms")
    )


def gaps_closed() -> QuerySet[GapRecord]:
    """Return the newest closed gaps."""
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


def topic_positions(cluster: str = "") -> Sequence[Position]:
    """Return the positions in all partitions of the internal topics that are read."""
    rows = rows_in(Position, cluster).select_related("cluster")
    return list(rows.order_by("cluster__name", "topic", "partition"))


def rows_in(model: type[M], cluster: str = "") -> QuerySet[M]:
    """Return the rows of a configured cluster by its name; "" means all configured clusters."""
    return rows_of_cluster(model._default_manager.filter(cluster__configured=True), cluster)


def rows_of_cluster(rows: QuerySet[Any], cluster: str) -> QuerySet[Any]:
    """Return the rows of a cluster by its name; "" means all clusters."""
    return rows.filter(cluster__name=cluster) if cluster else rows


def count_by_cluster(rows: QuerySet[Any]) -> Mapping[str, int]:
    """Return the number of rows by cluster, without clusters that have no rows."""
    counts: dict[str, int] = dict(rows.order_by().values_list("cluster__name").annotate(n=Count("pk")))
    return counts


def clusters_named(cluster: str) -> Sequence[Cluster]:
    """Return the configured cluster with a name; all for ""."""
    return [row for row in configured_clusters() if not cluster or row.name == cluster]
