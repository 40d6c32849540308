"""The only reader: what pages, API and metrics know of the database.

Nothing here opens a transaction: on SQLite a reader that does would stand in the collectors' way.
Every answer carries `as_of_ms`, the oldest instant that all collectors behind it have seen through, and the
gaps that are open, so that no page can be silently old.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict

from django.conf import settings
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Now

from dashboard.models import (
    IS_OPEN,
    Cluster,
    Collector,
    FindingRecord,
    GapRecord,
    Position,
    StateCount,
    Transaction,
)
from dashboard.runtime import stale_collectors as stale
from dashboard.runtime.collector_names import TRANSACTIONS, eyes
from dashboard.transactions.sql import keys_named
from fenceline.facts import OPEN_STATES, Severity, State, TopicPartitions
from fenceline.visibility import EVERYWHERE

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Alive(TypedDict):
        alive: bool

    #: A collector's row and whether its lease is live.
    LiveCollector = WithAnnotations[Collector, _Alive]

OPEN = [state.value for state in OPEN_STATES]
#: How many closed gaps a page shows.
_RECENT_GAPS = 50


@dataclass(frozen=True, slots=True)
class Sight:
    """How far the answer can be trusted: seen through which instant, and what could not be seen."""

    as_of_ms: int | None
    gaps: Sequence[GapRecord]


def clusters() -> Sequence[Cluster]:
    """Return every cluster that the configuration names, by name."""
    return list(Cluster.objects.filter(configured=True).order_by("name"))


def rev(cluster: str = "") -> int:
    """Return the revision of a cluster, or the sum over all: it changes when anything that is shown does."""
    rows = Cluster.objects.filter(configured=True)
    if cluster:
        rows = rows.filter(name=cluster)
    return sum(rows.values_list("rev", flat=True))


def sight(cluster: str = "", noun: str = TRANSACTIONS, now_ms: int | None = None) -> Sight:
    """Return how far `cluster`, or every cluster, was seen by the collectors of a noun, and all gaps.

    Those that are open, the oldest first, and those of collectors that are late by now
    (`dashboard.runtime.stale_collectors`); a collector that says itself that it sees nothing is one gap, not
    two.
    """
    rows = collectors(cluster)
    seeing = [eye for _, group in groupby(rows, attrgetter("cluster_id")) for eye in eyes(group, noun)]
    seen = [eye.seen_through_ms for eye in seeing]
    as_of = None if not seen or None in seen else min(ms for ms in seen if ms is not None)
    found = list(_within(gaps_open(), cluster))
    told = {(gap.cluster_id, gap.source) for gap in found if gap.scope == EVERYWHERE}
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    late = stale.gaps(rows, settings.FENCELINE.limits, at_ms)
    found += [gap for gap in late if (gap.cluster_id, gap.source) not in told]
    return Sight(as_of, sorted(found, key=attrgetter("since_ms")))


def gaps_open() -> QuerySet[GapRecord]:
    """Return the gaps that are open now, oldest first."""
    return (
        GapRecord.objects.filter(until_ms=None, cluster__configured=True)
        .select_related("cluster")
        .order_by("since_ms")
    )


def gaps_closed() -> QuerySet[GapRecord]:
    """Return the newest gaps that are over."""
    return (
        GapRecord.objects.exclude(until_ms=None)
        .select_related("cluster")
        .order_by("-until_ms")[:_RECENT_GAPS]
    )


def open_longest(cluster: str, limit: int) -> Sequence[Transaction]:
    """Return the transactions that are open the longest."""
    longest = F("started_ms").asc(nulls_first=True)
    each = (open_transactions(row.name).order_by(longest, "id")[:limit] for row in _those(cluster))
    # Each cluster's come along the index; those of all together would have to be sorted.
    return list(islice(merge(*each, key=lambda row: (row.started_ms or 0, row.pk)), limit))


def open_transactions(cluster: str) -> QuerySet[Transaction]:
    """Return the transactions of a cluster that hold back a last stable offset, along their index."""
    rows = Transaction.objects.filter(IS_OPEN, cluster__in=[row.pk for row in _those(cluster)])
    return rows.select_related("cluster")


def states(cluster: str = "") -> dict[str, int]:
    """Return how many transactional ids are in each state, every state of Kafka's present."""
    rows = _within(StateCount.objects.filter(cluster__configured=True), cluster)
    counted = dict(rows.values_list("state").annotate(n=Sum("n")))
    return {state.value: max(0, counted.get(state.value, 0)) for state in State}


def transaction(cluster: str, name: str) -> Transaction | None:
    """Return the row of the id whose text is `name`, or whose key is `~` and 64 hexadecimal digits."""
    for key in keys_named(name):
        row = Transaction.objects.select_related("cluster").filter(cluster__name=cluster, key=key).first()
        if row:
            return row
    return None


def partitions_of(row: Transaction) -> tuple[TopicPartitions, ...]:
    """Return the partitions a transaction's newest record names."""
    return tuple(
        TopicPartitions(topic, tuple(numbers)) for topic, numbers in json.loads(row.partitions or "[]")
    )


def state_log_partitions(cluster: str) -> int:
    """Return how many partitions of `__transaction_state` are read, 0 before the first look."""
    return Position.objects.filter(cluster__name=cluster, topic="__transaction_state").count()


def findings(cluster: str = "", subject: str = "") -> Sequence[FindingRecord]:
    """Return the open findings, worst and oldest first."""
    rows = FindingRecord.objects.filter(closed_at=None, cluster__configured=True).select_related("cluster")
    rows = _within(rows, cluster)
    if subject:
        rows = rows.filter(subject=subject)
    order = [severity.value for severity in Severity]
    return sorted(rows, key=lambda row: (order.index(row.severity), row.since_ms))


def findings_before(
    place: int | None,
    *,
    cluster: str = "",
    state: str = "open",
    rule: str = "",
    severity: str = "",
    subject: str = "",
    limit: int,
) -> Sequence[FindingRecord]:
    """Return findings behind a row's key, the newest first: "open", "closed" or "all"."""
    rows = _within(FindingRecord.objects.filter(cluster__configured=True).select_related("cluster"), cluster)
    if state != "all":
        rows = rows.filter(closed_at__isnull=state == "open")
    for name, value in {"rule": rule, "severity": severity, "subject": subject}.items():
        rows = rows.filter(**{name: value}) if value else rows
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def finding(number: int) -> FindingRecord | None:
    """Return one finding of a configured cluster by its key, open or closed."""
    return FindingRecord.objects.filter(pk=number, cluster__configured=True).select_related("cluster").first()


def collectors(cluster: str = "") -> Sequence[LiveCollector]:
    """Return every collector by cluster and name; `alive` tells, by the database's clock, if its lease is."""
    rows = Collector.objects.filter(cluster__configured=True).select_related("cluster")
    rows = rows.annotate(alive=Q(expires_at__gt=Now()))
    return list(_within(rows, cluster).order_by("cluster__name", "name"))


def positions(cluster: str = "") -> Sequence[Position]:
    """Return the position in every partition of every internal topic that is read."""
    rows = Position.objects.filter(cluster__configured=True).select_related("cluster")
    return list(_within(rows, cluster).order_by("cluster__name", "topic", "partition"))


def _within(rows: QuerySet[Any], cluster: str) -> QuerySet[Any]:
    return rows.filter(cluster__name=cluster) if cluster else rows


def _those(cluster: str) -> Sequence[Cluster]:
    return [row for row in clusters() if not cluster or row.name == cluster]
