"""What surrounds every page: navigation, cluster, how far it was seen, what needs somebody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from dashboard.alerts import queries as alert_queries
from dashboard.evaluation import finding_queries
from dashboard.incidents import queries as incident_queries
from dashboard.models import Cluster, FindingRecord
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import (
    ACTIONS,
    ALERTS,
    EVERYTHING,
    FLINK,
    GROUPS,
    PARTITIONS,
    QUERIES,
    RECOVERIES,
    TRANSACTIONS,
)
from dashboard.system import scenes
from dashboard.web.forms import time_ranges
from dashboard.web.forms.time_ranges import PageRange
from dashboard.web.freshness import CollectorState, Freshness, collector_state, noun_freshness, stale_after_ms
from dashboard.web.per_request import derive_once, now_ms
from fenceline.facts import Severity

if TYPE_CHECKING:
    from dashboard.runtime.stale_collectors import LiveCollector

#: Pages of the sidebar: name of the route, words, key after `g`, and the heading above.
PAGES = (
    ("overview", "Incidents", "i", ""),
    ("pipelines", "Pipelines", "f", "Monitor"),
    ("transactions", "Transactions", "t", "Monitor"),
    ("partitions", "Partitions", "p", "Monitor"),
    ("groups", "Consumer groups", "g", "Monitor"),
    ("queries", "Spark queries", "q", "Monitor"),
    ("events", "Events", "e", "Monitor"),
    ("actions", "Actions", "a", "Respond"),
    ("alerts", "Alerts", "l", "Respond"),
    ("reports", "Reports", "r", "Admin"),
    ("system", "System", "s", "Admin"),
)
#: The page that leads to a page without an entry in the sidebar.
_LIST_OF = {
    "incidents": "overview",
    "incident": "overview",
    "transaction": "transactions",
    "partition": "partitions",
    "group": "groups",
    "query": "queries",
    "query_state_keys": "queries",
    "flink-jobs": "queries",
    "flink-job": "flink-jobs",
    "recoveries": "events",
    "recovery": "recoveries",
    **dict.fromkeys(("action", "action-plan", "audit"), "actions"),
    **dict.fromkeys(("alert", "channels", "deliveries", "silences", "rules"), "alerts"),
    **dict.fromkeys(
        ("channel", "channel-new", "channel-edit", "channel-secret", "channel-delete"), "channels"
    ),
    "delivery": "deliveries",
    "silence": "silences",
    "silence-new": "silences",
    "rule": "rules",
    "scenes": "system",
}
#: What a page shows, by its route or that of a page that leads to it; transactions for all others.
_NOUNS = {
    "overview": EVERYTHING,
    "pipelines": EVERYTHING,
    "partitions": PARTITIONS,
    "groups": GROUPS,
    "flink-jobs": FLINK,
    "queries": QUERIES,
    "recoveries": RECOVERIES,
    "events": EVERYTHING,
    "actions": ACTIONS,
    "alerts": ALERTS,
}
#: What of a list's address another text of its filter keeps, by the list's route.
_SEARCH_KEEPS = {
    "transactions": ("state", "application", "min_age_s", "sort", "dir", "size"),
    "pipelines": ("fold",),
    "partitions": ("verdict", "internal", "sort", "dir", "size"),
    "groups": ("status", "family", "sort", "dir", "size"),
    "queries": ("state", "sink", "sort", "dir", "size"),
    "flink-jobs": ("sort", "dir", "size"),
    "recoveries": ("outcome", "cause", "application"),
    "actions": ("act", "state", "who"),
    "audit": ("event", "who"),
    "events": ("source", "kind", "confidence", "application", "unfolded"),
    "alerts": ("state", "severity", "rule", "team", "voice"),
}
#: Lists of the API that are those of a page, by its route: what can be downloaded there.
_DOWNLOADS = frozenset(
    {
        "actions", "alerts", "audit", "channels", "deliveries", "events", "flink-jobs", "groups",
        "incidents", "partitions", "queries", "recoveries", "silences", "transactions",
    }
)  # fmt: skip
#: Lists of what has an instant, by their route: while they are Live all that is kept, else the range.
_RANGED = frozenset({"actions", "alerts", "audit", "deliveries", "incidents", "recoveries"})
#: Those of which the API lists the open ones alone unless it is asked for others.
_OPEN_ONLY = frozenset({"alerts", "incidents"})
#: Parameters of a page that choose a part of a list, or its order: a file has the whole of the range.
_PART_OF_LIST = frozenset({"page", "size", "before", "sort", "dir", *time_ranges.PARAMETERS})
#: What the text filter of a list is of, by its route.
_SEARCHED = {
    "transactions": "transactional ids",
    "recoveries": "transactional ids",
    "events": "subjects",
    "pipelines": "applications, topics, groups, queries",
    "partitions": "topics",
    "groups": "groups",
    "queries": "queries",
    "flink-jobs": "prefixes, job ids, folders",
    "actions": "subjects",
    "audit": "names and addresses",
    "alerts": "alerts",
}
_NEEDS_SOMEBODY = (Severity.CRITICAL, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class SidebarLink:
    """One entry of the sidebar."""

    name: str
    url: str
    words: str
    key: str
    here: bool
    #: The heading above it: "" where it is under the one before.
    heading: str


class Chrome:
    """The frame of a page; each part queries the database when a template first uses it."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @cached_property
    def clusters(self) -> Sequence[Cluster]:
        """Return the configured clusters."""
        return visibility.configured_clusters()

    @cached_property
    def cluster(self) -> str:
        """Return the cluster this page is about, "" for all of them."""
        return selected_cluster(self._request, self.clusters)

    @cached_property
    def cluster_query(self) -> str:
        """Return the query string that keeps the cluster, "" where there is nothing to choose."""
        return f"?{urlencode({'cluster': self.cluster})}" if self.cluster and len(self.clusters) > 1 else ""

    @cached_property
    def time_range(self) -> PageRange:
        """Return the range of time that this page is asked for."""
        return time_ranges.read_page_range(self._request.GET, now_ms=now_ms(self._request))

    @property
    def frame_query(self) -> str:
        """Return the query string that keeps the cluster and the range of time, without its question mark."""
        return "&".join(filter(None, (self.cluster_query[1:], self.time_range.query)))

    @cached_property
    def range_picker(self) -> Mapping[str, Any]:
        """Return what the picker of the range shows and offers."""
        return time_ranges.picker_context(self._request, self.time_range, whole=self._route in _RANGED)

    @property
    def as_of_now(self) -> str:
        """Return what of this page is not of the range that it is asked for, "" where nothing is."""
        return time_ranges.AS_OF_NOW.get(self._route, "") if self.time_range.is_past else ""

    @property
    def cluster_more(self) -> str:
        """Return the same for behind another parameter."""
        return self.cluster_query.replace("?", "&", 1)

    @property
    def where(self) -> str:
        """Return the cluster of the page in a sentence."""
        if self.cluster or len(self.clusters) == 1:
            return self.cluster or self.clusters[0].name
        return "any of the clusters"

    @cached_property
    def nav(self) -> Sequence[SidebarLink]:
        """Return the sidebar's links, which keep the cluster."""
        before = ["", *(heading for *_, heading in PAGES)]
        return [
            SidebarLink(
                name,
                reverse(name) + self.cluster_query,
                words,
                key,
                name in self._trail,
                "" if heading == last else heading,
            )
            for (name, words, key, heading), last in zip(PAGES, before, strict=False)
        ]

    @cached_property
    def switch_path(self) -> str:
        """Return where choosing another cluster leads: an id of one cluster is no id of another."""
        match = self._request.resolver_match
        about_one = self._route in _LIST_OF and match is not None and match.kwargs
        return reverse(self._trail[1]) if about_one else self._request.path

    @property
    def filter_noun(self) -> str:
        """Return what the text filter of the list on this page is of, "" where it has none."""
        return _SEARCHED.get(self._route, "")

    @property
    def filter_text(self) -> str:
        """Return the text that the list on this page is filtered by."""
        return self._request.GET.get("q", "")

    @cached_property
    def filter_keeps(self) -> Sequence[tuple[str, str]]:
        """Return the parameters of the list on this page that another text keeps, and the range of time."""
        query = self._request.GET
        kept = [(key, query[key]) for key in _SEARCH_KEEPS.get(self._route, ()) if query.get(key)]
        return [*kept, *self.time_range.parameters.items()]

    @cached_property
    def downloads(self) -> Sequence[tuple[str, str]]:
        """Return the formats in which the whole list on this page is downloaded, each with its address."""
        if self._route not in _DOWNLOADS:
            return []
        kept = {name: value for name, value in self._request.GET.items() if name not in _PART_OF_LIST}
        if self._route in _RANGED or self._route == "events":
            kept |= self.time_range.bounds
        if self._route in _OPEN_ONLY and not self.time_range.is_live:
            kept.setdefault("state", "all")
        query = f"?{urlencode(kept)}" if kept else ""
        return [(form.upper(), f"/api/v1/exports/{self._route}.{form}{query}") for form in ("csv", "json")]

    @property
    def read_only(self) -> bool:
        """Return whether nobody may act from here."""
        return bool(settings.READ_ONLY)

    @property
    def has_scenes(self) -> bool:
        """Return whether failures can be played here, which a sandbox offers."""
        return scenes.are_offered()

    @property
    def stale_after_ms(self) -> int:
        """Return how old the newest data may be before the page warns."""
        return stale_after_ms()

    @cached_property
    def _route(self) -> str:
        match = self._request.resolver_match
        return (match.url_name if match else "") or ""

    @cached_property
    def _trail(self) -> Sequence[str]:
        """Return the routes of this page and of those that lead to it, up to an entry of the sidebar."""
        trail = [self._route]
        while trail[-1] in _LIST_OF:
            trail.append(_LIST_OF[trail[-1]])
        return trail

    @cached_property
    def all_findings(self) -> Sequence[FindingRecord]:
        """Return the open findings, worst first."""
        return finding_queries.open_findings(self.cluster)

    @cached_property
    def findings(self) -> Sequence[FindingRecord]:
        """Return the open findings that need somebody, worst first."""
        return [row for row in self.all_findings if row.severity in _NEEDS_SOMEBODY]

    def worst_findings(self, kind: str) -> Mapping[tuple[int, str], FindingRecord]:
        """Return the worst open finding about each thing of a kind, by its cluster's key and its name.

        They are in the order in which they need attention.
        """
        found: dict[tuple[int, str], FindingRecord] = {}
        for row in self.all_findings:
            of, _, name = row.subject.partition(":")
            if of == kind:
                found.setdefault((row.cluster_id, name), row)
        return found

    @property
    def has_owners(self) -> bool:
        """Return whether the configuration names owners."""
        return bool(settings.FENCELINE.owners)

    @cached_property
    def only_cluster(self) -> str:
        """Return the one cluster that lists on this page are of, "" where they are of several."""
        if self.cluster or len(self.clusters) != 1:
            return self.cluster
        return self.clusters[0].name

    @cached_property
    def open_number(self) -> int:
        """Return how many incidents are open that need somebody."""
        return incident_queries.open_count(self.cluster, _NEEDS_SOMEBODY) if self.findings else 0

    @cached_property
    def findings_by_list(self) -> Mapping[str, Sequence[FindingRecord]]:
        """Return the findings that need somebody, by the list of what they are about, worst first."""
        found: dict[str, list[FindingRecord]] = {}
        for row in self.findings:
            kind = row.subject.partition(":")[0]
            found.setdefault(_LIST_OF.get(kind, kind), []).append(row)
        return found

    @cached_property
    def firing(self) -> Sequence[tuple[str, int]]:
        """Return how many alerts fire that need somebody, by severity, worst first."""
        found = alert_queries.firing_counts(self.cluster)
        return [(severity, found[severity]) for severity in _NEEDS_SOMEBODY if severity in found]

    @property
    def firing_number(self) -> int:
        """Return how many alerts fire that need somebody."""
        return sum(number for _, number in self.firing)

    @cached_property
    def worst_severity(self) -> str:
        """Return the severity that decides the tab's icon, "" when nothing needs anybody."""
        return self.findings[0].severity if self.findings else ""

    @cached_property
    def freshness(self) -> Freshness:
        """Return how far the clusters of this page have been seen."""
        noun = next((_NOUNS[each] for each in self._trail if each in _NOUNS), TRANSACTIONS)
        return noun_freshness(self.cluster, self.clusters, now_ms(self._request), noun)

    @cached_property
    def collectors(self) -> Sequence[tuple[LiveCollector, CollectorState]]:
        """Return the collectors of this page's clusters, and how each does."""
        return [(row, collector_state(row, now_ms(self._request))) for row in self.freshness.collectors]


def selected_cluster(request: HttpRequest, clusters: Sequence[Cluster]) -> str:
    """Return the cluster that the path or the query string names; an unknown one counts as none."""
    match = request.resolver_match
    asked = (match.kwargs.get("cluster") if match else None) or request.GET.get("cluster", "")
    return asked if any(cluster.name == asked for cluster in clusters) else ""


def chrome_of(request: HttpRequest) -> Chrome:
    """Return the chrome of a request; view and template share one, and its answers."""
    return derive_once(request, "chrome", lambda: Chrome(request))


def chrome_context(request: HttpRequest) -> dict[str, Any]:
    """Return what base.html needs; nothing is asked of the database until it is shown."""
    return {"chrome": chrome_of(request), "now_ms": now_ms(request)}
