"""What surrounds every page: navigation, cluster, how far it was seen, what needs somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from dashboard import queries
from dashboard.models import Cluster, FindingRecord
from dashboard.views.clock import now_ms
from dashboard.views.sight import Freshness, freshness, stale_after_ms
from fenceline.facts import Severity

#: Pages of the sidebar: name of the route, words, key after `g`.
PAGES = (
    ("overview", "Overview", "o"),
    ("transactions", "Transactions", "t"),
    ("fencing", "Fencing", "f"),
    ("system", "System", "s"),
)
#: What of a list's address a new search keeps, by the list's route; elsewhere a search leads to the first.
_SEARCH_KEEPS = {
    "transactions": ("state", "application", "min_age_s", "sort", "dir", "size"),
    "fencing": ("since", "kind", "confidence", "application"),
}
_NEEDS_SOMEBODY = (Severity.CRITICAL, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of the sidebar."""

    name: str
    url: str
    words: str
    key: str
    here: bool


class Chrome:
    """The frame of a page; each part asks the database when a template first shows it."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @cached_property
    def clusters(self) -> Sequence[Cluster]:
        """Return the configured clusters."""
        return queries.clusters()

    @cached_property
    def cluster(self) -> str:
        """Return the cluster this page is about, "" for all of them."""
        return selected_cluster(self._request, self.clusters)

    @cached_property
    def nav(self) -> Sequence[Link]:
        """Return the sidebar's links, which keep the cluster."""
        query = f"?{urlencode({'cluster': self.cluster})}" if self.cluster and len(self.clusters) > 1 else ""
        return [
            Link(name, reverse(name) + query, words, key, self._route.rstrip("s") == name.rstrip("s"))
            for name, words, key in PAGES
        ]

    @cached_property
    def switch_path(self) -> str:
        """Return where choosing another cluster leads: an id of one cluster is no id of another."""
        return reverse("transactions") if self._route == "transaction" else self._request.path

    @cached_property
    def search_path(self) -> str:
        """Return where a search leads: to the list on this page, or to the transactions."""
        return reverse(self._route if self._route in _SEARCH_KEEPS else "transactions")

    @cached_property
    def search_words(self) -> str:
        """Return what the list on this page was searched for."""
        return self._request.GET.get("q", "") if self._route in _SEARCH_KEEPS else ""

    @cached_property
    def search_keeps(self) -> Sequence[tuple[str, str]]:
        """Return the parameters of the list on this page that a new search keeps."""
        query = self._request.GET
        return [(key, query[key]) for key in _SEARCH_KEEPS.get(self._route, ()) if query.get(key)]

    @property
    def stale_after_ms(self) -> int:
        """Return how old the newest sight may be before the page says so."""
        return stale_after_ms()

    @cached_property
    def _route(self) -> str:
        match = self._request.resolver_match
        return (match.url_name if match else "") or ""

    @cached_property
    def all_findings(self) -> Sequence[FindingRecord]:
        """Return the open findings, worst first."""
        return queries.findings(self.cluster)

    @cached_property
    def findings(self) -> Sequence[FindingRecord]:
        """Return the open findings that need somebody, worst first."""
        return [row for row in self.all_findings if row.severity in _NEEDS_SOMEBODY]

    @cached_property
    def worst(self) -> str:
        """Return the severity that decides the tab's icon, "" when nothing needs anybody."""
        return self.findings[0].severity if self.findings else ""

    @cached_property
    def freshness(self) -> Freshness:
        """Return how far the clusters of this page have been seen."""
        return freshness(self.cluster, self.clusters, now_ms(self._request))


def selected_cluster(request: HttpRequest, clusters: Sequence[Cluster]) -> str:
    """Return the cluster that the path or the query string names; an unknown one counts as none."""
    match = request.resolver_match
    asked = (match.kwargs.get("cluster") if match else None) or request.GET.get("cluster", "")
    return asked if any(cluster.name == asked for cluster in clusters) else ""


def of(request: HttpRequest) -> Chrome:
    """Return the chrome of a request; view and template share one, and its answers."""
    frame: Chrome = request.__dict__.setdefault("chrome", Chrome(request))
    return frame


def chrome(request: HttpRequest) -> dict[str, Any]:
    """Return what base.html needs; nothing is asked of the database until it is shown."""
    return {"chrome": of(request), "now_ms": now_ms(request)}
