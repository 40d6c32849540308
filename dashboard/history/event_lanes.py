"""Lasting facts in a time range, for the timeline's lanes: open transactions, backlog, lag, batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import QuerySet

from dashboard.models import Cluster, FindingRecord, Query, Tally
from dashboard.runtime import visibility
from dashboard.series.queries import SubjectReading, read_series, worst_series
from dashboard.streaming.batches import SlowestBatches, slowest_batches
from fenceline.history.time_range import TimeRange
from fenceline.kafka.applications import application_of
from fenceline.series.points import APPLICATION, GROUP

#: The rule that finds transactions open for longer than a limit.
_OPEN_TOO_LONG = "open_too_long"
#: Maximum findings to search, open ones and ones closed in a range, and maximum shown bars.
_MOST_FINDINGS, MOST_BARS = 5_000, 60
#: Maximum groups and clusters with a line, and maximum steps of a line.
MOST_GROUPS, _MOST_CLUSTERS, MOST_STEPS = 3, 5, 300
#: Maximum shown batches; of more, the slowest of each step are shown.
MOST_BATCHES = 120


#: A series with its cluster's name.
ClusterReading = tuple[str, SubjectReading]


@dataclass(frozen=True, slots=True)
class TimelineLanes:
    open_too_long: Sequence[FindingRecord]
    #: The backlog of each cluster, or of the requested application.
    backlog: Sequence[ClusterReading]
    #: The groups with the most lag, worst first.
    lag: Sequence[ClusterReading]
    batches: SlowestBatches


def read_lanes(cluster: str, application: str, time_range: TimeRange, *, now_ms: int) -> TimelineLanes:
    """Return the lanes of a range; groups and batches belong to no application."""
    clusters = visibility.clusters_named(cluster)[:_MOST_CLUSTERS]
    queries = Query.objects.filter(cluster__in=[cluster.pk for cluster in clusters])
    return TimelineLanes(
        _open_too_long(clusters, application, time_range),
        _backlog(clusters, application or Tally.EVERY, time_range, now_ms),
        () if application else _lag(clusters, time_range, now_ms),
        SlowestBatches((), 0)
        if application
        else slowest_batches(queries, time_range.from_ms, time_range.to_ms, most=MOST_BATCHES),
    )


def _open_too_long(
    clusters: Sequence[Cluster], application: str, time_range: TimeRange
) -> Sequence[FindingRecord]:
    """Return the findings about transactions that were open too long at some time of a range."""
    keys = [cluster.pk for cluster in clusters]
    rows = FindingRecord.objects.filter(cluster__in=keys, since_ms__lt=time_range.to_ms)
    since = datetime.fromtimestamp(time_range.from_ms / 1_000, UTC)
    closed = rows.filter(closed_at__gte=since).order_by("-closed_at")
    still = rows.filter(closed_at=None, rule=_OPEN_TOO_LONG).order_by("since_ms")
    bars = [*_bars(still, application), *_bars(closed, application)]
    shown = FindingRecord.objects.filter(pk__in=bars).select_related("cluster")
    return list(shown.order_by("since_ms", "pk")[:MOST_BARS])


def _bars(rows: QuerySet[FindingRecord], application: str) -> Sequence[int]:
    """Return the keys of the first findings about an application's transactions that are open too long."""
    return [
        pk
        for pk, rule, subject in rows.values_list("pk", "rule", "subject")[:_MOST_FINDINGS]
        if rule == _OPEN_TOO_LONG
        and (not application or application_of(subject.partition(":")[2]).application == application)
    ][:MOST_BARS]


def _backlog(
    clusters: Sequence[Cluster], application: str, time_range: TimeRange, now_ms: int
) -> Sequence[ClusterReading]:
    return [
        (
            cluster.name,
            read_series(cluster.pk, APPLICATION, application, time_range, now_ms=now_ms, most=MOST_STEPS),
        )
        for cluster in clusters
    ]


def _lag(clusters: Sequence[Cluster], time_range: TimeRange, now_ms: int) -> Sequence[ClusterReading]:
    readings = [
        (cluster.name, subject)
        for cluster in clusters
        for subject in worst_series(
            cluster.pk, GROUP, time_range, now_ms=now_ms, number=MOST_GROUPS, most=MOST_STEPS
        )
    ]
    return sorted(readings, key=lambda reading: -reading[1].worst)[:MOST_GROUPS]
