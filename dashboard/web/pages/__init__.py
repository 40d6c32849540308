"""The pages, one module per noun: its list, its detail page, its forms, and its `ROUTES`."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.web.pages import (
    actions,
    clusters,
    coordinators,
    events,
    find,
    flink,
    groups,
    incidents,
    overview,
    partitions,
    pipelines,
    preflight,
    queries,
    records,
    recoveries,
    reports,
    system,
    transactions,
)
from dashboard.web.pages.access import audit, users
from dashboard.web.pages.alerting import alerts, channels, deliveries, silences
from dashboard.web.rendering import View, signed_in
from dashboard.web.routes import ROUTES

#: In the order of the sidebar.
_PAGES = (
    overview,
    incidents,
    pipelines,
    transactions,
    partitions,
    records,
    groups,
    queries,
    flink,
    events,
    recoveries,
    actions,
    audit,
    alerts,
    channels,
    deliveries,
    silences,
    reports,
    users,
    clusters,
    system,
    coordinators,
    preflight,
    find,
)
ROUTES |= {route.name: route for page in _PAGES for route in page.ROUTES}


def _cluster_list(name: str) -> View[...]:
    """Return a view that redirects to a list page, filtered by cluster and by topic if the path has one."""

    def cluster_list(request: HttpRequest, cluster: str, topic: str = "") -> HttpResponse:
        wanted = {
            **request.GET.dict(),
            "cluster": cluster,
            **({"q": topic[:LONGEST_SEARCH]} if topic else {}),
        }
        return HttpResponseRedirect(f"{reverse(name)}?{urlencode(wanted, safe=':')}")

    return signed_in(cluster_list)


def page_urls() -> list[URLPattern]:
    """Return the routes of all pages, and of parent paths without their own page."""
    pages = {route.path: path(route.path, route.view, name=route.name) for route in ROUTES.values()}
    parents = {
        parent: path(parent, _cluster_list(parent.split("/")[0]))
        for route in ROUTES.values()
        for parent in route.parent_paths
    }
    return [*pages.values(), *(parents[parent] for parent in parents.keys() - pages.keys())]
