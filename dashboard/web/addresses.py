"""Addresses of pages: transactions, partitions, groups, queries, recoveries, rules, alerts."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from html import escape
from urllib.parse import quote

from django.http import QueryDict
from django.urls import get_script_prefix, reverse

from dashboard.models import (
    Action,
    Alert,
    FindingRecord,
    FlinkJob,
    Incident,
    Query,
    Recovery,
    Transaction,
)
from dashboard.system.owners import split_partition
from fenceline.history.timeline import EventSource, TimelineEvent
from fenceline.kafka.transactional_ids import key_of_name

#: A link to a page in HTML: its path and query string. Files and the API have their own ranges.
_PAGE_LINK = re.compile(r'(<a\b[^>]*?\shref="/(?!static/|api/|admin/)[^"#?]*)(\?[^"#]*)?')
_NAMES_RANGE = re.compile(r"[?;](?:from|to|last)=")
#: Parameters of a place in a list: a change of filters drops them.
_PLACE = ("page", "before")
#: Longer names are addressed by key, because servers and proxies reject longer request lines.
_LONGEST_IN_URL = 512


def query_without(query: QueryDict, names: Iterable[str]) -> QueryDict:
    """Return the query string of a list's first page, without some parameters."""
    rest = query.copy()
    for name in (*_PLACE, *names):
        rest.pop(name, None)
    return rest


def transaction_url(cluster: str, transactional_id: str) -> str:
    return f"{_list_url('transactions')}/{_part(cluster)}/{_segment(transactional_id)}"


def transaction_row(row: Transaction) -> str:
    """Return the element id of a transaction's row in a list: the same on every refetch."""
    return f"t-{row.cluster_id}-{bytes(row.key).hex()[:24]}"


def partition_url(cluster: str, topic: str, number: int) -> str:
    return f"{_list_url('partitions')}/{_part(cluster)}/{_part(topic)}/{number}"


def record_url(cluster: str, topic: str, number: int, offset: int | str) -> str:
    return f"{partition_url(cluster, topic, number)}/record?offset={offset}"


def group_url(cluster: str, group_id: str) -> str:
    return f"{_list_url('groups')}/{_part(cluster)}/{_segment(group_id)}"


def query_url(cluster: str, ident: str) -> str:
    return f"{_list_url('queries')}/{_part(cluster)}/{_part(ident)}"


def query_of(row: Query) -> str:
    return query_url(row.cluster.name, row.ident)


def batch_of(row: Query, batch_id: int) -> str:
    return batch_url(row.cluster.name, row.ident, batch_id)


def batch_url(cluster: str, ident: str, batch_id: int) -> str:
    """Return the address of one micro-batch: its query's page with the chain of that batch."""
    return f"{query_url(cluster, ident)}?batch={batch_id}#chain"


def flink_job_of(row: FlinkJob) -> str:
    return flink_job_url(row.cluster.name, row.ident)


def flink_job_url(cluster: str, ident: str) -> str:
    return f"{_list_url('flink-jobs')}/{_part(cluster)}/{_part(ident)}"


def recovery_url(row: Recovery) -> str:
    return f"{_list_url('recoveries')}/{_part(row.cluster.name)}/{row.pk}"


def rule_url(name: str) -> str:
    return reverse("rule", args=[name])


def incident_url(row: Incident) -> str:
    return reverse("incident", args=[row.pk])


def finding_url(row: FindingRecord | Alert) -> str:
    return subject_url(row.cluster.name, row.subject)


def subject_url(cluster: str, about: str) -> str:
    """Return the address of a subject, `kind:name`."""
    kind, _, name = about.partition(":")
    if kind == "transaction":
        return transaction_url(cluster, name)
    if kind == "group":
        return group_url(cluster, name)
    if kind == "query":
        return query_url(cluster, name)
    if kind == "flink_job":
        return flink_job_url(cluster, name)
    if kind == "partition" and (at := split_partition(name)):
        return partition_url(cluster, *at)
    if kind == "pipeline":
        return reverse("pipelines", query={"cluster": cluster, "pipeline": name}, fragment="pipeline")
    if kind == "application":
        return reverse("events", query={"application": name, "cluster": cluster})
    if kind == "collector":
        return f"{reverse('system')}#collector-{cluster}-{_part(name)}"
    return reverse("system", query={"cluster": cluster})


def finding_label(row: FindingRecord | Alert) -> str:
    return subject_label(row.subject)


def subject_label(about: str) -> str:
    """Return the link text of a subject, `kind:name`."""
    return _LABELS.get(about.partition(":")[0], "See System")


def action_url(row: Action) -> str:
    return reverse("action", args=[row.pk])


def alert_url(number: int) -> str:
    return reverse("alert", args=[number])


def keep_in_links(html: str, query: str) -> str:
    """Return HTML whose links to pages get a query string, except links with their own range."""
    if not query:
        return html
    kept = escape(query)

    def kept_link(link: re.Match[str]) -> str:
        path, asked = link[1], link[2] or ""
        if _NAMES_RANGE.search(asked):
            return link[0]
        return f"{path}{asked}{'&amp;' if len(asked) > 1 else '' if asked else '?'}{kept}"

    return _PAGE_LINK.sub(kept_link, html)


def events_url(cluster: str, from_ms: int, to_ms: int | None) -> str:
    """Return the address of the events in a range, in ms since 1970; without an end, until now."""
    asked = {"cluster": cluster, "from": _iso(from_ms), **({} if to_ms is None else {"to": _iso(to_ms)})}
    return reverse("events", query=asked)


def event_url(event: TimelineEvent) -> str:
    """Return the address of an event's evidence: its own page, or its subject's."""
    if event.source in _NUMBERED:
        return reverse(_NUMBERED[event.source], args=[event.number])
    if event.source is EventSource.RECOVERY:
        return reverse("recovery", args=[event.cluster, event.number])
    if event.source is EventSource.COORDINATOR:
        return reverse("coordinators", query={"cluster": event.cluster})
    return subject_url(event.cluster, event.subject)


_NUMBERED = {
    source: source.value
    for source in (EventSource.INCIDENT, EventSource.ALERT, EventSource.DELIVERY, EventSource.ACTION)
}
_LABELS = {
    "transaction": "Open transaction",
    "group": "Open group",
    "partition": "Open partition",
    "query": "Open query",
    "flink_job": "Open Flink job",
    "pipeline": "Open pipeline",
    "application": "See its events",
    "collector": "See collectors",
}


def _list_url(name: str) -> str:
    return _known_url(name, get_script_prefix())


@cache
def _known_url(name: str, _: str) -> str:
    # Each row of a list links to a page below it.
    return reverse(name)


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _part(name: str) -> str:
    return quote(name, safe="")


def _segment(name: str) -> str:
    """Return a name of any bytes as a part of a path: itself, or `~` and its key where needed."""
    parts = name.replace("\\", "/").split("/")
    if not name or len(name) > _LONGEST_IN_URL or {".", "..", ""} & set(parts):
        return "~" + key_of_name(name).hex()
    return _part(name)
