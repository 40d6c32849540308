"""Queries for `/metrics`: numbers by cluster.

One statement counts a noun for all clusters together, so that a scrape costs the same number of statements
for any number of clusters, topics, groups or ids. Labels are bounded: Kafka's names and ours, and of users'
names only the cluster's and the channel's, which the configuration bounds.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Count, F, Func, Max, Min, Q, QuerySet, Sum

from dashboard.models import (
    IS_OPEN,
    Action,
    Alert,
    Channel,
    ConnectorRecord,
    Delivery,
    FindingRecord,
    FlinkJob,
    FlinkRunRecord,
    GapRecord,
    Group,
    PartitionRecord,
    Query,
    StateCount,
    Tally,
    Transaction,
    state_at,
)
from dashboard.runtime.loop import now_ms
from fenceline.facts import TransitionKind
from fenceline.history.reports import ReportFigures, sum_figures
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.series import histograms

#: A literal, not a parameter: SQLite uses a partial index only for the same text.
_IS_ACTIVE = Func(F("state"), template="NOT (%(expressions)s = 'resolved')", output_field=BooleanField())

#: Counts by cluster and one or two label values.
ByCluster = Mapping[tuple[str, ...], int]


def transaction_counts() -> ByCluster:
    """Return the number of transactional ids by cluster and Kafka's state."""
    rows = StateCount.objects.filter(cluster__configured=True).values_list("cluster__name", "state")
    return {(cluster, state): max(0, n) for cluster, state, n in rows.annotate(sum=Sum("n"))}


def oldest_open() -> Mapping[str, int]:
    """Return when the longest open transaction of each cluster began, in ms, without clusters without one."""
    rows = Transaction.objects.filter(IS_OPEN, cluster__configured=True).exclude(started_ms=None)
    return dict(rows.values_list("cluster__name").annotate(oldest=Min("started_ms")).order_by())


def partition_counts() -> tuple[ByCluster, Mapping[str, int]]:
    """Return the number of partitions by cluster and verdict, and the start of the longest blocked LSO.

    That is in milliseconds; clusters without a pinned partition are omitted.
    """
    rows = PartitionRecord.objects.filter(cluster__configured=True).order_by()
    counted: dict[tuple[str, ...], int] = {}
    pinned: dict[str, int] = {}
    grouped = rows.values_list("cluster__name", "verdict").annotate(Count("id"), Min("pinned_ms"))
    for cluster, verdict, n, since_ms in grouped:
        counted[cluster, verdict] = n
        if verdict != PartitionVerdict.CLEAR and since_ms is not None:
            pinned[cluster] = min(since_ms, pinned.get(cluster, since_ms))
    return counted, pinned


def group_counts() -> tuple[ByCluster, ByCluster, Mapping[str, int], Mapping[str, int]]:
    """Return the number of groups by cluster and status, and their lag in records by cluster and its end.

    Also, by cluster, the longest lag in milliseconds, and the number with a pending transactional commit.
    """
    rows = Group.objects.filter(cluster__configured=True).order_by().values_list("cluster__name", "status")
    pending = Count("id", filter=Q(unstable__gt=0))
    counted: dict[tuple[str, ...], int] = {}
    unread: Counter[tuple[str, ...]] = Counter()
    longest_ms: Counter[str] = Counter()
    shaky: Counter[str] = Counter()
    for cluster, status, n, lso, high_watermark, lag_ms, is_shaky in rows.annotate(
        Count("id"), Sum("lag_lso"), Sum("lag_hw"), Max("lag_ms"), shaky=pending
    ):
        counted[cluster, status] = n
        unread[cluster, "lso"] += lso or 0
        unread[cluster, "high_watermark"] += high_watermark or 0
        longest_ms[cluster] = max(longest_ms[cluster], lag_ms or 0)
        shaky[cluster] += is_shaky
    return counted, unread, longest_ms, shaky


def query_counts() -> tuple[ByCluster, Mapping[str, int]]:
    """Return the number of queries by cluster and state now, and of those with a prepared batch."""
    queries = Query.objects.filter(cluster__configured=True).order_by()
    rows = queries.annotate(state_now=state_at(now_ms())).values_list("cluster__name", "state_now")
    counted: dict[tuple[str, ...], int] = {}
    prepared: Counter[str] = Counter()
    for cluster, state, n, held in rows.annotate(Count("id"), held=Count("id", filter=Q(prepared__gt=0))):
        counted[cluster, state] = n
        prepared[cluster] += held
    return counted, prepared


def flink_counts() -> tuple[Mapping[str, int], Mapping[str, int], ByCluster]:
    """Return the numbers of Flink jobs and of unreadable ones by cluster, and of runs by state."""
    rows = FlinkJob.objects.filter(cluster__configured=True).order_by().values_list("cluster__name")
    counted = rows.annotate(Count("id"), failed=Count("id", filter=~Q(error="")))
    counts = {cluster: (n, failed) for cluster, n, failed in counted}
    jobs = {cluster: n for cluster, (n, _) in counts.items()}
    unreadable = {cluster: failed for cluster, (_, failed) in counts.items()}
    return jobs, unreadable, _counted(FlinkRunRecord.objects.all(), "state")


def connector_task_counts() -> ByCluster:
    """Return the number of connectors' tasks by cluster and state."""
    rows = ConnectorRecord.objects.filter(cluster__configured=True)
    states: Counter[tuple[str, ...]] = Counter()
    for cluster, tasks in rows.values_list("cluster__name", "tasks"):
        states.update((cluster, str(state)) for _, state, *_ in tasks)
    return states


def finding_counts() -> ByCluster:
    """Return the number of open findings by cluster, rule and severity."""
    return _counted(FindingRecord.objects.filter(closed_at=None), "rule", "severity")


def alert_counts() -> ByCluster:
    """Return the number of pending and firing alerts by cluster, severity and state."""
    return _counted(Alert.objects.filter(_IS_ACTIVE), "severity", "state")


def gap_counts() -> ByCluster:
    """Return the number of open gaps by cluster and source."""
    return _counted(GapRecord.objects.filter(until_ms=None), "source")


def action_counts() -> ByCluster:
    """Return the number of plans in the audit log by cluster, act and state."""
    return _counted(Action.objects.all(), "act", "state")


def channel_deliveries(since: datetime) -> Sequence[tuple[Channel, Mapping[str, int]]]:
    """Return every channel by name, with the number of its deliveries since an instant by state."""
    rows = list(Channel.objects.only("name", "enabled", "disabled_at", "failures").order_by("name"))
    # Filtered by channel too, because the index begins with the channel.
    made = Delivery.objects.filter(channel__in=[row.pk for row in rows], created_at__gte=since).order_by()
    counted = {(of, state): n for of, state, n in made.values_list("channel", "state").annotate(Count("id"))}
    return [
        (row, {state: counted.get((row.pk, state), 0) for state in Delivery.State.values}) for row in rows
    ]


def lifetime_counts() -> Mapping[str, ReportFigures]:
    """Return the totals since each cluster was first watched, which only grow."""
    rows = Tally.objects.filter(cluster__configured=True, span_s=Tally.FOR_EVER_S, start_ms=0)
    parts: dict[str, list[ReportFigures]] = defaultdict(list)
    columns = ("cluster__name", "counts", "open_times", "marker_times")
    for cluster, counts, *times in rows.values_list(*columns):
        by_kind = {TransitionKind(kind): n for kind, n in json.loads(counts).items()}
        parts[cluster].append(ReportFigures(by_kind, 0, *map(histograms.unpack_histogram, times)))
    return {cluster: sum_figures(own) for cluster, own in parts.items()}


def _counted(rows: QuerySet[Any], *by: str) -> ByCluster:
    named = rows.filter(cluster__configured=True).order_by().values_list("cluster__name", *by)
    return {tuple(words): n for *words, n in named.annotate(n=Count("id"))}
