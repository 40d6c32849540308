"""Visibility of each cluster: its revision, its collectors, their positions and gaps.

Every answer carries `as_of_ms`, the oldest instant that all collectors behind it have seen through, and the
gaps that are open, so that no page can be silently old. No reader opens a transaction: on SQLite one that
does would keep the collectors from writing.
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
from fenceline.findings.visibility import EVERYWHERE

if TYPE_CHECKING:
    from dashboard.runtime.stale_collectors import LiveCollector

M = TypeVar("M", bound=Model)
#: Maximum closed gaps on a page.
_RECENT_GAPS = 50


@dataclass(frozen=True, slots=True)
class AnswerVisibility:
    """The reliability of an answer: the instant that it is complete to, and the gaps."""

    as_of_ms: int | None
    gaps: Sequence[GapRecord]


def configured_clusters() -> Sequence[Cluster]:
    """Return every cluster that the configuration names, by name."""
    return list(Cluster.objects.filter(configured=True).order_by("name"))


def current_revision(cluster: str = "") -> int:
    """Return the revision of a cluster, or the sum of all: it changes with everything that pages show."""
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
    """Return the visibility of `cluster`, or of all, through the collectors of a noun, and all gaps.

    Those that are open, the oldest first, and those of collectors that are late by now
    (`dashboard.runtime.stale_collectors`); a collector that reports itself that it sees nothing is one gap,
    not two. `collectors` are those of `list_collectors`, where they are known already.
    """
    rows = list_collectors(cluster) if collectors is None else collectors
    seeing = [
        eye for _, group in groupby(rows, attrgetter("cluster_id")) for eye in collectors_of(group, noun)
    ]
    seen = [eye.seen_through_ms for eye in seeing]
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
    """Return every collector by cluster and name; `alive`: whether its lease is, by the database's clock."""
    rows = rows_in(Collector, cluster).select_related("cluster").annotate(alive=Q(expires_at__gt=Now()))
    return list(rows.order_by("cluster__name", "name"))


def topic_positions(cluster: str = "") -> Sequence[Position]:
    """Return the position in every partition of every internal topic that is read."""
    rows = rows_in(Position, cluster).select_related("cluster")
    return list(rows.order_by("cluster__name", "topic", "partition"))


def rows_in(model: type[M], cluster: str = "") -> QuerySet[M]:
    """Return the rows of a configured cluster by its name; "" means all of these."""
    return rows_of_cluster(model._default_manager.filter(cluster__configured=True), cluster)


def rows_of_cluster(rows: QuerySet[Any], cluster: str) -> QuerySet[Any]:
    """Return the rows of a cluster by its name; "" means all."""
    return rows.filter(cluster__name=cluster) if cluster else rows


def count_by_cluster(rows: QuerySet[Any]) -> Mapping[str, int]:
    """Return the number of rows of each cluster that has any."""
    found: dict[str, int] = dict(rows.order_by().values_list("cluster__name").annotate(n=Count("pk")))
    return found


def clusters_named(cluster: str) -> Sequence[Cluster]:
    """Return the configured cluster of a name, all for ""."""
    return [row for row in configured_clusters() if not cluster or row.name == cluster]
