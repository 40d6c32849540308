"""The HTTP API, version 1. Lists carry `items`, `next`, `as_of` and `gaps`; errors are RFC 9457 problems."""

from __future__ import annotations

from dashboard.api import (
    problems,
    url_converters,  # noqa: F401 - its addresses need it
)
from dashboard.api.auth import bearer, session
from dashboard.api.description import DescribedAPI
from dashboard.api.known_names import know_cluster, know_request
from dashboard.api.list_files import exported_list
from dashboard.api.request_rate import limit_rate
from dashboard.api.routers import (
    actions,
    applications,
    audit,
    clusters,
    collectors,
    events,
    exports,
    findings,
    groups,
    history,
    incidents,
    partitions,
    queries,
    recoveries,
    transactions,
    transitions,
)
from dashboard.api.routers.alerting import alerts, channels, deliveries, silences
from dashboard.api.routers.flow import connectors, flink, pipelines

_DESCRIPTION = """\
The control room for exactly-once between Kafka and Spark.

**Callers** send `Authorization: Bearer TOKEN`, or the cookie of a session with its CSRF token. A token has a
role, and may be limited to clusters: another cluster is 404, as one that is not configured.

**Errors** are problems of RFC 9457; `detail` says what happened and what to do. An unknown parameter or
field is 422 with the nearest known name. More than API_REQUESTS_PER_MINUTE of one caller is 429; 429 and a
passing 503 have `Retry-After`.

**Lists** have `items`, `next`, `as_of` (until when everything was seen) and `gaps` (what could not be seen).
Send `next` as `cursor`, with the same filters, for the following page; null ends the list. A cursor names
the last row of a page: it does not expire, and what comes before that row later is not repeated. A cursor
of another list is 400. With a cursor give `from` and `to`: the range of `last` moves.
"""
api = DescribedAPI(
    title="Fenceline",
    version="1",
    description=_DESCRIPTION,
    auth=[bearer, session],
    docs_url="/docs",
    openapi_url="/openapi.json",
)
api.add_decorator(know_request, mode="view")
api.add_decorator(know_cluster, mode="operation")
api.add_decorator(limit_rate, mode="operation")
#: By the address that each is at.
ROUTERS = {
    "transactions": transactions.router,
    "events": events.router,
    "transitions": transitions.router,
    "applications": applications.router,
    "partitions": partitions.router,
    "pipelines": pipelines.router,
    "groups": groups.router,
    "history": history.router,
    "queries": queries.router,
    "flink-jobs": flink.router,
    "connectors": connectors.router,
    "recoveries": recoveries.router,
    "actions": actions.router,
    "audit": audit.router,
    "alerts": alerts.router,
    "channels": channels.router,
    "deliveries": deliveries.router,
    "silences": silences.router,
    "findings": findings.router,
    "incidents": incidents.router,
    "collectors": collectors.router,
    "clusters": clusters.router,
    "exports": exports.router,
}
for noun, router in ROUTERS.items():
    api.add_router(f"/{noun}", router)
    # The cursor of pipelines counts items of a range that moves between two pages.
    if noun != "pipelines" and (of := exported_list(router)):
        exports.LISTS[noun] = of
problems.install_handlers(api)
