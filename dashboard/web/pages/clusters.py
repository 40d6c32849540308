"""All clusters on one page: open incidents, the state of their reading, and their gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

from dashboard.groups import queries as group_queries
from dashboard.incidents import queries as incident_queries
from dashboard.partitions import queries as partition_queries
from dashboard.runtime.collector_names import EVERYTHING, collectors_of
from dashboard.system import capabilities
from dashboard.transactions import queries as transaction_queries
from dashboard.web import page_context
from dashboard.web.pages.overview import collector_states
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import page_view
from dashboard.web.routes import PageRoute
from fenceline.facts import Severity
from fenceline.formatting import count_noun
from fenceline.kafka.capabilities import CapabilityState

if TYPE_CHECKING:
    from dashboard.runtime.visibility import LiveCollector

_WORST = tuple(severity.value for severity in Severity)
_LACKING = (CapabilityState.LIMITED, CapabilityState.MISSING)


@page_view("clusters/page", collector_states)
def cluster_list(request: HttpRequest) -> Mapping[str, Any]:
    """Show all clusters; those that need attention come first."""
    rows = sorted(_rows(request), key=_urgency)
    return {"rows": rows, "headline": _headline(rows)}


def _rows(request: HttpRequest) -> Iterator[Mapping[str, Any]]:
    """Yield each cluster's open incidents by severity, its gaps, and its numbers."""
    frame = page_context.chrome_of(request)
    incidents = incident_queries.open_by_cluster()
    states = transaction_queries.states_by_cluster()
    partitions = partition_queries.blocked_by_cluster(now_ms(request))
    groups = group_queries.blocked_by_cluster()
    for name in [row.name for row in frame.clusters]:
        collectors = [row for row in frame.freshness.collectors if row.cluster.name == name]
        counts, opened = states.get(name, {}), incidents.get(name, {})
        yield {
            "name": name,
            "number": sum(opened.values()),
            # The worst severity of its open incidents, "" without one.
            "severity": next((severity for severity in _WORST if severity in opened), ""),
            "as_of_ms": _as_of_ms(collectors),
            # Whether a first poll is missing.
            "unseen": name in frame.freshness.unseen,
            "blind": [blind for blind in frame.freshness.blind if blind.cluster == name],
            "lacking": list(_lacking(name, collectors)),
            "ids": sum(counts.values()),
            "open": sum(counts.get(state, 0) for state in transaction_queries.OPEN),
            "blocked_partitions": partitions.get(name, 0),
            "blocked_groups": groups.get(name, 0),
        }


def _as_of_ms(collectors: Sequence[LiveCollector]) -> int | None:
    seen = [row.seen_through_ms for row in collectors_of(collectors)]
    return min((at_ms for at_ms in seen if at_ms is not None), default=None) if None not in seen else None


def _lacking(name: str, collectors: Sequence[LiveCollector]) -> Iterator[str]:
    detail: Mapping[str, Any] = next((row.detail for row in collectors if row.name == capabilities.NAME), {})
    checks = capabilities.capabilities_in(name, detail).checks
    return (check.words for check in checks if check.state in _LACKING)


def _urgency(row: Mapping[str, Any]) -> tuple[object, ...]:
    rank = _WORST.index(row["severity"]) if row["severity"] else len(_WORST)
    return rank, not row["blind"], not row["unseen"], row["name"]


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No cluster is configured."
    urgent = sum(row["severity"] in _WORST[:2] for row in rows)
    unseen = sum(bool(row["blind"]) or row["unseen"] for row in rows)
    if urgent:
        text = (
            f"{count_noun(urgent, 'cluster')} of {len(rows)} {'needs' if urgent == 1 else 'need'} attention"
        )
        return f"{text}; {unseen} cannot be seen completely." if unseen else f"{text}."
    if unseen:
        return f"{count_noun(unseen, 'cluster')} of {len(rows)} cannot be seen completely."
    return f"No incident in {count_noun(len(rows), 'cluster')}."


ROUTES = (
    PageRoute(
        "clusters",
        "clusters",
        cluster_list,
        key="c",
        heading="Admin",
        shows=EVERYTHING,
        as_of_now="Clusters are shown as of now.",
    ),
)
