"""Find anything by a part of its name, or by its number: what Ctrl K opens, and `/find`.

Each kind is read by a bounded query: ids by their beginning from an index, the others, of which a cluster has
thousands at most, by any part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from django.db.models import Q

from dashboard.actions import store as action_store
from dashboard.actions.store import ActionCriteria
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.queries import AlertCriteria
from dashboard.groups import queries as group_queries
from dashboard.groups.queries import GroupCriteria
from dashboard.labels.rule import rule_label
from dashboard.models import Incident, PartitionRecord, Tally, Transaction
from dashboard.models.transactions import NAME
from dashboard.runtime import visibility
from dashboard.streaming import flink_jobs as flink_queries
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.flink_jobs import FlinkJobCriteria
from dashboard.streaming.queries import QueryCriteria
from dashboard.web import addresses
from dashboard.web.page_context import Chrome
from fenceline.rules import RULES

#: Hits of one kind, and characters of a text that is searched for.
MOST, LONGEST = 6, 200
_ABOVE = "\U0010ffff"
_HOUR_S, _DAY_MS = 3_600, 86_400_000


class Hit(NamedTuple):
    """One thing that was found: its name, where it is, and more about it in a few words."""

    name: str
    url: str
    detail: str = ""


class HitGroup(NamedTuple):
    """What was found of one kind, the best first."""

    kind: str
    hits: Sequence[Hit]


def usable_text(text: str) -> str:
    """Return the search text from what was typed."""
    return text.replace("\0", "").strip()[:LONGEST]


def find_anything(frame: Chrome, asked: str, *, now_ms: int) -> Sequence[HitGroup]:
    """Return what matches a usable text, by kind; nothing for "". "#117" and "117" are numbers too."""
    if not asked:
        return []
    finders: Sequence[tuple[str, Callable[[], Iterable[Hit]]]] = (
        ("Incidents", lambda: _incidents(frame.cluster, asked)),
        ("Pages", lambda: _pages(frame, asked)),
        ("Transactional ids", lambda: _transactions(frame.cluster, asked)),
        ("Partitions", lambda: _partitions(frame.cluster, asked)),
        ("Consumer groups", lambda: _groups(frame.cluster, asked)),
        ("Spark queries", lambda: _queries(frame.cluster, asked)),
        ("Flink jobs", lambda: _flink_jobs(frame.cluster, asked)),
        ("Applications", lambda: _applications(frame.cluster, asked, now_ms)),
        ("Alerts", lambda: _alerts(frame.cluster, asked, now_ms)),
        ("Actions", lambda: _actions(frame.cluster, asked)),
        ("Rules", lambda: _rules(asked)),
    )
    found = (HitGroup(kind, _best(read(), asked)) for kind, read in finders)
    return [group for group in found if group.hits]


def _best(hits: Iterable[Hit], asked: str) -> Sequence[Hit]:
    """Return the first hits: the whole name before its beginning, its beginning before any part."""
    small = asked.casefold()

    def rank(hit: Hit) -> tuple[bool, bool]:
        name = hit.name.casefold().removeprefix("#")
        return name != small.removeprefix("#"), not name.startswith(small)

    return sorted(hits, key=rank)[:MOST]


def _number(asked: str) -> int | None:
    digits = asked.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


def _pages(frame: Chrome, asked: str) -> Iterable[Hit]:
    return [Hit(link.words, link.url) for link in frame.nav if asked.casefold() in link.words.casefold()]


def _rules(asked: str) -> Iterable[Hit]:
    small = asked.casefold()
    names = [name for name in RULES if small in name or small in rule_label(name).casefold()]
    return [Hit(rule_label(name), addresses.rule_url(name)) for name in names]


def _incidents(cluster: str, asked: str) -> Iterable[Hit]:
    rows = Incident.objects.filter(cluster__configured=True).select_related("cluster")
    wanted = Q(subject__icontains=asked) | Q(rule__icontains=asked.replace(" ", "_"))
    if (number := _number(asked)) is not None:
        wanted |= Q(pk=number)
    newest = visibility.rows_of_cluster(rows, cluster).filter(wanted).order_by("-pk")[:MOST]
    return [
        Hit(
            f"#{row.pk}",
            addresses.incident_url(row),
            f"{'open' if row.closed_ms is None else 'closed'} · {rule_label(row.rule)} · {row.subject}",
        )
        for row in newest
    ]


def _transactions(cluster: str, asked: str) -> Iterable[Hit]:
    for of in visibility.clusters_named(cluster):
        rows = Transaction.objects.filter(cluster=of).alias(name=NAME)
        rows = rows.filter(name__gte=asked, name__lt=asked + _ABOVE).order_by("name")
        for name, state in rows.values_list("transactional_id", "state")[:MOST]:
            yield Hit(name, addresses.transaction_url(of.name, name), f"{state} · {of.name}")


def _partitions(cluster: str, asked: str) -> Iterable[Hit]:
    topic, dash, number = asked.rpartition("-")
    wanted = Q(topic__icontains=asked)
    if dash and number.isascii() and number.isdecimal() and len(number) < 9:
        wanted |= Q(topic__iexact=topic, partition=int(number))
    rows = PartitionRecord.objects.filter(wanted, cluster__configured=True)
    rows = visibility.rows_of_cluster(rows, cluster).order_by("topic", "partition")
    for name, of, index in rows.values_list("topic", "cluster__name", "partition")[:MOST]:
        yield Hit(f"{name}-{index}", addresses.partition_url(of, name, index), of)


def _groups(cluster: str, asked: str) -> Iterable[Hit]:
    rows = group_queries.groups_after(GroupCriteria(cluster=cluster, q=asked), place=0, limit=MOST)
    for row in rows:
        yield Hit(row.group_id, addresses.group_url(row.cluster.name, row.group_id), row.cluster.name)


def _queries(cluster: str, asked: str) -> Iterable[Hit]:
    rows = streaming_queries.queries_after(QueryCriteria(cluster=cluster, q=asked), place=0, limit=MOST)
    for row in rows:
        yield Hit(row.name or row.ident, addresses.query_of(row), f"{row.ident} · {row.cluster.name}")


def _flink_jobs(cluster: str, asked: str) -> Iterable[Hit]:
    rows = flink_queries.jobs_after(FlinkJobCriteria(cluster=cluster, q=asked), place=0, limit=MOST)
    for row in rows:
        yield Hit(str(row), addresses.flink_job_of(row), f"{row.ident} · {row.cluster.name}")


def _applications(cluster: str, asked: str, now_ms: int) -> Iterable[Hit]:
    rows = Tally.objects.filter(
        cluster__configured=True, span_s=_HOUR_S, start_ms__gte=now_ms - _DAY_MS, application__icontains=asked
    )
    names = visibility.rows_of_cluster(rows, cluster).values_list("application", "cluster__name").distinct()
    for name, of in names.order_by("application", "cluster__name")[:MOST]:
        yield Hit(name, addresses.subject_url(of, f"application:{name}"), of)


def _alerts(cluster: str, asked: str, now_ms: int) -> Iterable[Hit]:
    number = _number(asked)
    one = None if number is None else alert_queries.find_alert(number)
    criteria = AlertCriteria(cluster=cluster, state="all", q=asked)
    rows = alert_queries.alerts_before(None, criteria, limit=MOST, now_ms=now_ms)
    for row in {each.pk: each for each in [*([one] if one else []), *rows]}.values():
        yield Hit(
            f"#{row.pk}", addresses.alert_url(row.pk), f"{row.state} · {rule_label(row.rule)} · {row.subject}"
        )


def _actions(cluster: str, asked: str) -> Iterable[Hit]:
    number = _number(asked)
    one = None if number is None else action_store.find_action(number)
    rows, _ = action_store.newest_actions(ActionCriteria(cluster=cluster, q=asked), before=None, limit=MOST)
    for row in {each.pk: each for each in [*([one] if one else []), *rows]}.values():
        yield Hit(f"#{row.pk}", addresses.action_url(row), f"{row.act.replace('_', ' ')} · {row.state}")
