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

api = DescribedAPI(
    title="Fenceline",
    version="1",
    description=(
        "The control room for exactly-once between Kafka and Spark. An unknown parameter or field is refused "
        "with 422 and the nearest known name; a cluster that is not configured is 404."
    ),
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
