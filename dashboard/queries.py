"""The only reader: what pages, API and metrics know of the database.

Nothing here opens a transaction: on SQLite a reader that does would stand in the collectors' way.
Every answer carries `as_of_ms`, the oldest instant that all collectors behind it have seen through, and the
gaps that are open, so that no page can be silently old.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from dashboard.models import Cluster, Collector, FindingRecord, GapRecord, Position, Transaction
from dashboard.store import key_of
from fenceline.decode import text
from fenceline.facts import OPEN_STATES, Severity, State, TopicPartitions

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Alive(TypedDict):
        alive: bool

    #: A collector's row and whether its lease is live.
    LiveCollector = WithAnnotations[Collector, _Alive]

OPEN = [state.value for state in OPEN_STATES]
#: Columns a list of transactions can be sorted by, and the order that puts the interesting end first.
SORTS = {
    "id": "transactional_id",
    "state": "state",
    "producer": "producer_id",
    "epoch": "producer_epoch",
    "timeout": "timeout_ms",
    "partitions": "partition_count",
    "started": "started_ms",
    "updated": "updated_ms",
}
#: How many closed gaps a page shows.
_RECENT_GAPS = 50


@dataclass(frozen=True, slots=True)
class Sight:
    """How far the answer can be trusted: seen through which instant, and what could not be seen."""

    as_of_ms: int | None
    gaps: Sequence[GapRecord]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list of transactions is asked for; the URL's query string, parsed."""

    cluster: str = ""
    #: A state of Kafka's, or "open" for the three that hold back an LSO.
    state: str = ""
    q: str = ""
    min_age_s: float | None = None
    sort: str = "updated"
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: `items` are model rows; `number` counts from 1."""

    items: Sequence[Transaction]
    total: int
    number: int
    size: int
    sight: Sight

    @property
    def pages(self) -> int:
        """Return how many pages there are, at least one."""
        return max(1, -(-self.total // self.size))


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page: what needs an operator, and the figures under the verdict."""

    findings: Sequence[FindingRecord]
    #: Transactional ids by state, every state of Kafka's present.
    states: dict[str, int]
    collectors: Sequence[LiveCollector]
    sight: Sight

    @property
    def ids(self) -> int:
        """Return how many transactional ids are known."""
        return sum(self.states.values())

    @property
    def open(self) -> int:
        """Return how many transactions hold back a last stable offset."""
        return sum(self.states[state] for state in OPEN)


def clusters() -> Sequence[Cluster]:
    """Return every cluster that the configuration names, by name."""
    return list(Cluster.objects.filter(configured=True).order_by("name"))


def rev(cluster: str = "") -> int:
    """Return the revision of a cluster, or the sum over all: it changes when anything that is shown does."""
    rows = Cluster.objects.filter(configured=True)
    if cluster:
        rows = rows.filter(name=cluster)
    return sum(rows.values_list("rev", flat=True))


def sight(cluster: str = "") -> Sight:
    """Return how far the tails of `cluster`, or of every cluster, have seen, and their open gaps."""
    tails = _within(
        Collector.objects.filter(cluster__configured=True, name__startswith="transaction_state"), cluster
    )
    seen = list(tails.values_list("seen_through_ms", flat=True))
    as_of = None if not seen or None in seen else min(ms for ms in seen if ms is not None)
    return Sight(as_of, list(_within(gaps_open(), cluster)))


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


def transactions(wanted: Filter, *, now_ms: int, page: int = 1, size: int = 50) -> Page:
    """Return one page of the transactions that `wanted` describes, and how many there are in all."""
    rows = _filtered(wanted, now_ms)
    total = rows.count()
    number = min(max(1, page), max(1, -(-total // size)))
    start = (number - 1) * size
    return Page(
        list(_ordered(rows, wanted)[start : start + size]), total, number, size, sight(wanted.cluster)
    )


def transactions_after(wanted: Filter, *, after: int, limit: int, now_ms: int) -> Sequence[Transaction]:
    """Return the next `limit` transactions that `wanted` describes, in the order they were first seen."""
    rows = _filtered(wanted, now_ms).select_related("cluster").filter(pk__gt=after)
    return list(rows.order_by("pk")[:limit])


def transaction(cluster: str, name: str) -> Transaction | None:
    """Return the row of the id whose text is `name`, or whose key is `~` and 64 hexadecimal digits."""
    for key in _keys(name):
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


def overview(cluster: str = "") -> Overview:
    """Return what the first page shows, for one cluster or for all."""
    counted = (
        _within(Transaction.objects.filter(cluster__configured=True), cluster)
        .values("state")
        .annotate(n=Count("id"))
    )
    states = {state.value: 0 for state in State} | {row["state"]: row["n"] for row in counted}
    return Overview(findings(cluster), states, collectors(cluster), sight(cluster))


def findings(cluster: str = "", subject: str = "") -> Sequence[FindingRecord]:
    """Return the open findings, worst and oldest first."""
    rows = FindingRecord.objects.filter(closed_at=None, cluster__configured=True).select_related("cluster")
    rows = _within(rows, cluster)
    if subject:
        rows = rows.filter(subject=subject)
    order = [severity.value for severity in Severity]
    return sorted(rows, key=lambda row: (order.index(row.severity), row.since_ms))


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


def _filtered(wanted: Filter, now_ms: int) -> QuerySet[Transaction]:
    rows = _within(Transaction.objects.filter(cluster__configured=True), wanted.cluster)
    if wanted.state:
        rows = rows.filter(state__in=OPEN if wanted.state == "open" else [wanted.state])
    if wanted.q:
        rows = rows.filter(transactional_id__icontains=wanted.q)
    if wanted.min_age_s is not None:
        rows = rows.filter(state__in=OPEN, started_ms__lte=now_ms - int(wanted.min_age_s * 1000))
    return rows


def _ordered(rows: QuerySet[Transaction], wanted: Filter) -> QuerySet[Transaction]:
    column = SORTS.get(wanted.sort, "updated_ms")
    return rows.select_related("cluster").order_by(("-" if wanted.descending else "") + column, "id")


def _keys(name: str) -> Iterator[bytes]:
    with suppress(ValueError):
        yield key_of(text.unescape(name))
    if len(name) == 65 and name.startswith("~"):
        with suppress(ValueError):
            yield bytes.fromhex(name[1:])
