"""The frame of every page: navigation, cluster, freshness, open findings; and how a streaming query becomes
known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from dashboard.alerts import queries as alert_queries
from dashboard.evaluation import finding_queries
from dashboard.incidents import queries as incident_queries
from dashboard.models import Cluster, FindingRecord
from dashboard.partitions import queries as partition_queries
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import TRANSACTIONS
from dashboard.system import access, cluster_limits, scenes
from dashboard.web.forms import time_ranges
from dashboard.web.forms.time_ranges import PageRange
from dashboard.web.freshness import CollectorState, Freshness, collector_state, noun_freshness, stale_after_ms
from dashboard.web.per_request import derive_once, now_ms
from dashboard.web.routes import ROUTES, PageRoute, route_trail, sidebar_routes
from fenceline.facts import Severity
from fenceline.grouping import grouped
from fenceline.history.time_range import LAST, TimeRange

if TYPE_CHECKING:
    from dashboard.runtime.visibility import LiveCollector


#: Parameters that choose a part of a list, or its order: a download contains the whole range.
_PART_OF_LIST = frozenset({"page", "size", "before", "sort", "dir", *time_ranges.PARAMETERS})
#: Parameters that a new filter text drops: they belong to the former list.
_OF_FILTER = frozenset({"q", "page", "before", "cluster", *time_ranges.PARAMETERS})
_NO_PAGE = PageRoute("", "", lambda _: HttpResponse())
#: The time before the oldest open incident on a Live timeline.
_BEFORE_INCIDENT_MS = 300_000
_NEEDS_SOMEBODY = (Severity.CRITICAL, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class SidebarLink:
    name: str
    url: str
    words: str
    key: str
    here: bool
    #: The heading above it; "" without its own heading.
    heading: str


class Chrome:
    """The frame of a page; each part queries the database when a template first uses it."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        #: The valid parameters of this page's list, without its range of time.
        self.asked: Mapping[str, str] = {}

    @cached_property
    def clusters(self) -> Sequence[Cluster]:
        return visibility.configured_clusters()

    @cached_property
    def cluster(self) -> str:
        """Return the cluster in the path or the query string; "", all of them, for an unknown one too."""
        match = self._request.resolver_match
        asked = (match.kwargs.get("cluster") if match else None) or self._request.GET.get("cluster", "")
        return asked if any(cluster.name == asked for cluster in self.clusters) else ""

    @cached_property
    def cluster_query(self) -> str:
        """Return the query string that keeps the cluster, "" with a single cluster."""
        return f"?{urlencode({'cluster': self.cluster})}" if self.cluster and len(self.clusters) > 1 else ""

    @cached_property
    def time_range(self) -> PageRange:
        return time_ranges.read_page_range(self._request.GET, now_ms=now_ms(self._request))

    @cached_property
    def timeline_range(self) -> TimeRange:
        """Return the range of the timeline; a Live one begins before the oldest open incident."""
        if not self.time_range.is_live:
            return self.time_range.window()
        at_ms = now_ms(self._request)
        begun = min((row.since_ms for row in self.findings), default=at_ms) - _BEFORE_INCIDENT_MS
        return TimeRange(min(max(begun, at_ms - LAST["24h"]), at_ms - LAST["15m"]), at_ms, live=True)

    @property
    def frame_query(self) -> str:
        """Return the query string that keeps the cluster and the range of time, without its question mark."""
        return "&".join(filter(None, (self.cluster_query[1:], self.time_range.query)))

    @cached_property
    def range_picker(self) -> Mapping[str, Any]:
        return time_ranges.picker_context(self._request, self.time_range, whole=self._route.is_ranged)

    @property
    def as_of_now(self) -> str:
        """Return the part of this page that ignores the range, "" without one."""
        return self._route.as_of_now if self.time_range.is_past else ""

    @property
    def cluster_more(self) -> str:
        """Return the same query string for use after another parameter."""
        return self.cluster_query.replace("?", "&", 1)

    @property
    def where(self) -> str:
        """Return the cluster of the page in a sentence."""
        if self.cluster or len(self.clusters) == 1:
            return self.cluster or self.clusters[0].name
        return "any of the clusters"

    @cached_property
    def nav(self) -> Sequence[SidebarLink]:
        """Return the links of the sidebar that the user may open; they keep the cluster."""
        actor = access.actor_of(self._request, "page")
        sidebar = [
            route
            for route in sidebar_routes()
            if (not route.permission or actor.may(route.permission)) and cluster_limits.may_open(route.path)
        ]
        headings = ["", *(route.heading for route in sidebar)]
        return [
            SidebarLink(
                route.name,
                reverse(route.name) + self.cluster_query,
                route.title,
                route.key,
                route in self._trail,
                "" if route.heading == last else route.heading,
            )
            for route, last in zip(sidebar, headings, strict=False)
        ]

    @cached_property
    def switch_path(self) -> str:
        """Return the address for choosing another cluster: a page of one cluster leads to its list."""
        match = self._request.resolver_match
        above = next((route for route in self._trail[1:] if "<" not in route.path), None)
        return reverse(above.name) if above and match is not None and match.kwargs else self._request.path

    @property
    def plural(self) -> str:
        return self._route.noun

    @property
    def filter_noun(self) -> str:
        return self._route.searched

    @property
    def filter_text(self) -> str:
        return self._request.GET.get("q", "")

    @cached_property
    def filter_keeps(self) -> Sequence[tuple[str, str]]:
        """Return the list's parameters that a new filter text keeps, and the range of time."""
        kept = [(name, value) for name, value in self.asked.items() if name not in _OF_FILTER]
        return [*kept, *self.time_range.parameters.items()]

    @cached_property
    def downloads(self) -> Sequence[tuple[str, str]]:
        """Return the download formats of the whole list on this page, each with its address."""
        route = self._route
        if not route.has_files:
            return []
        kept = {name: value for name, value in self.asked.items() if name not in _PART_OF_LIST}
        if route.is_ranged or route.name == "events":
            kept |= self.time_range.bounds
        if route.lists_open and not self.time_range.is_live:
            kept.setdefault("state", "all")
        query = f"?{urlencode(kept)}" if kept else ""
        files = f"{settings.BASE_PATH}/api/v1/exports/{route.name}"
        return [(form.upper(), f"{files}.{form}{query}") for form in ("csv", "json")]

    @property
    def sees_system(self) -> bool:
        """Return whether the user may open System, which is about all clusters."""
        return cluster_limits.may_open("system")

    @property
    def read_only(self) -> bool:
        """Return whether this deployment allows no actions."""
        return bool(settings.READ_ONLY)

    @property
    def has_scenes(self) -> bool:
        """Return whether this is a sandbox, which can play failures."""
        return scenes.are_offered()

    @property
    def stale_after_ms(self) -> int:
        """Return the age of the newest data at which the page warns."""
        return stale_after_ms()

    @cached_property
    def _route(self) -> PageRoute:
        match = self._request.resolver_match
        name = (match.url_name if match else "") or ""
        return ROUTES.get(name, _NO_PAGE)

    @cached_property
    def _trail(self) -> Sequence[PageRoute]:
        """Return the routes of this page and of its parents, up to an entry of the sidebar."""
        return list(route_trail(self._route.name))

    @cached_property
    def all_findings(self) -> Sequence[FindingRecord]:
        """Return the open findings, worst first."""
        return finding_queries.open_findings(self.cluster)

    @cached_property
    def findings(self) -> Sequence[FindingRecord]:
        """Return the open findings that need attention, worst first."""
        return [row for row in self.all_findings if row.severity in _NEEDS_SOMEBODY]

    def worst_findings(self, kind: str) -> Mapping[tuple[int, str], FindingRecord]:
        """Return the worst open finding about each subject of a kind, by its cluster's key and its name.

        They are ordered by need of attention.
        """
        worst: dict[tuple[int, str], FindingRecord] = {}
        for row in self.all_findings:
            of, _, name = row.subject.partition(":")
            if of == kind:
                worst.setdefault((row.cluster_id, name), row)
        return worst

    @property
    def has_owners(self) -> bool:
        return bool(settings.FENCELINE.owners)

    @cached_property
    def only_cluster(self) -> str:
        """Return the one cluster of this page's lists, "" for several."""
        if self.cluster or len(self.clusters) != 1:
            return self.cluster
        return self.clusters[0].name

    @cached_property
    def open_number(self) -> int:
        """Return the number of open incidents that need attention."""
        return incident_queries.open_count(self.cluster, _NEEDS_SOMEBODY) if self.findings else 0

    @cached_property
    def blocked_number(self) -> int:
        """Return the number of partitions that a transaction blocks."""
        return partition_queries.blocked_count(self.cluster, now_ms(self._request))

    @cached_property
    def findings_by_list(self) -> Mapping[str, Sequence[FindingRecord]]:
        """Return the findings that need attention by the list page of their subject, worst first."""
        kinds = [row.subject.partition(":")[0] for row in self.findings]
        pages = [ROUTES[kind].parent if kind in ROUTES else kind for kind in kinds]
        return grouped(zip(pages, self.findings, strict=True))

    @cached_property
    def firing(self) -> Sequence[tuple[str, int]]:
        """Return the number of firing alerts that need attention, by severity, worst first."""
        counts = alert_queries.firing_counts(self.cluster)
        return [(severity, counts[severity]) for severity in _NEEDS_SOMEBODY if severity in counts]

    @property
    def firing_number(self) -> int:
        """Return the number of firing alerts that need attention."""
        return sum(number for _, number in self.firing)

    @cached_property
    def worst_severity(self) -> str:
        """Return the severity of the tab's icon, "" when nothing needs attention."""
        return self.findings[0].severity if self.findings else ""

    @cached_property
    def freshness(self) -> Freshness:
        noun = next((route.shows for route in self._trail if route.shows), TRANSACTIONS)
        return noun_freshness(self.cluster, self.clusters, now_ms(self._request), noun)

    @cached_property
    def collectors(self) -> Sequence[tuple[LiveCollector, CollectorState]]:
        return [(row, collector_state(row, now_ms(self._request))) for row in self.freshness.collectors]


def chrome_of(request: HttpRequest) -> Chrome:
    """Return the chrome of a request; view and template share one with its results."""
    return derive_once(request, "chrome", lambda: Chrome(request))


def chrome_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context of base.html; the database is queried only when it is rendered."""
    return {"chrome": chrome_of(request), "now_ms": now_ms(request)}


def attach_lines(request: HttpRequest) -> Mapping[str, str]:
    """Return the exact lines that make a query known: one for its driver, two for the configuration."""
    frame = chrome_of(request)
    cluster = frame.cluster or (frame.clusters[0].name if frame.clusters else "NAME")
    path = settings.FENCELINE.path
    return {
        "cluster": cluster,
        "url": f"{request.scheme}://{request.get_host()}",
        "root": "s3a://bucket/checkpoints",
        "file": path.name if path else "fenceline.toml",
    }


def first_query(request: HttpRequest) -> str:
    """Return when to expect the demo's first query; "" without one."""
    is_starting = now_ms(request) < settings.DEMO_SPARK_UNTIL_MS
    return "The demo's Spark query appears about 2 min after the start." if is_starting else ""
