"""The HTTP API, version 1. Lists carry `items`, `next`, `as_of` and `gaps`; errors are RFC 9457 problems."""

from dashboard.api import list_files, problems
from dashboard.api.auth import bearer, limit_rate, session
from dashboard.api.problems import DescribedAPI, know_cluster, know_request
from dashboard.api.routers import (
    actions,
    alerts,
    applications,
    audit,
    channels,
    clusters,
    engines,
    events,
    groups,
    history,
    incidents,
    partitions,
    pipelines,
    queries,
    recoveries,
    transactions,
)

_DESCRIPTION = """\
The control room for exactly-once between Kafka and Spark.

**Callers** send `Authorization: Bearer TOKEN`, or a session cookie with its CSRF token. A token has a role
and may be limited to clusters: every other cluster is 404, like a cluster that is not configured.

**Errors** are RFC 9457 problems; `detail` says what happened and what to do. An unknown parameter or field
is 422 and names the nearest known name. More than API_REQUESTS_PER_MINUTE requests of one caller are 429.
429 and a temporary 503 have `Retry-After`.

**Lists** have `items`, `next`, `as_of` (the data is complete up to this time) and `gaps` (data that could not
be observed). For the next page send `next` as `cursor`, with the same filters; null ends the list. A cursor
names the last row of a page. It does not expire, and rows inserted before that row are not returned.
A cursor of another list is 400. With a cursor give `from` and `to`, because the range of `last` moves.
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
ROUTERS = {
    "transactions": transactions.router,
    "events": events.router,
    "transitions": events.transitions_router,
    "applications": applications.router,
    "partitions": partitions.router,
    "pipelines": pipelines.router,
    "groups": groups.router,
    "history": history.router,
    "queries": queries.router,
    "flink-jobs": engines.router,
    "connectors": engines.connectors_router,
    "recoveries": recoveries.router,
    "actions": actions.router,
    "audit": audit.router,
    "alerts": alerts.router,
    "channels": channels.router,
    "deliveries": channels.deliveries_router,
    "silences": alerts.silences_router,
    "findings": incidents.findings_router,
    "incidents": incidents.router,
    "collectors": clusters.collectors_router,
    "clusters": clusters.router,
    "exports": list_files.router,
}
for noun, router in ROUTERS.items():
    api.add_router(f"/{noun}", router)
    # Pipelines are not exported: their cursor is an index, and their range moves between two pages.
    if noun != "pipelines" and (of := list_files.exported_list(router)):
        list_files.LISTS[noun] = of
problems.install_handlers(api)
