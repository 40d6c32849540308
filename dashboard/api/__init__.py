"""The HTTP API, version 1. Lists carry `items`, `next`, `as_of` and `gaps`; errors are RFC 9457 problems."""

from __future__ import annotations

from dashboard.api import problems
from dashboard.api.auth import bearer, session
from dashboard.api.description import DescribedAPI
from dashboard.api.routers import (
    actions,
    alerts,
    applications,
    audit,
    channels,
    clusters,
    collectors,
    deliveries,
    events,
    exports,
    findings,
    groups,
    history,
    incidents,
    partitions,
    queries,
    recoveries,
    silences,
    transactions,
    transitions,
)
from dashboard.api.routers.flow import connectors, flink, pipelines
from dashboard.runtime import url_converters  # noqa: F401 - its addresses need it

api = DescribedAPI(
    title="Fenceline",
    version="1",
    description="The control room for exactly-once between Kafka and Spark.",
    auth=[bearer, session],
    docs_url="/docs",
    openapi_url="/openapi.json",
)
api.add_router("/transactions", transactions.router)
api.add_router("/events", events.router)
api.add_router("/transitions", transitions.router)
api.add_router("/applications", applications.router)
api.add_router("/partitions", partitions.router)
api.add_router("/pipelines", pipelines.router)
api.add_router("/groups", groups.router)
api.add_router("/history", history.router)
api.add_router("/queries", queries.router)
api.add_router("/flink-jobs", flink.router)
api.add_router("/connectors", connectors.router)
api.add_router("/recoveries", recoveries.router)
api.add_router("/actions", actions.router)
api.add_router("/audit", audit.router)
api.add_router("/alerts", alerts.router)
api.add_router("/channels", channels.router)
api.add_router("/deliveries", deliveries.router)
api.add_router("/silences", silences.router)
api.add_router("/findings", findings.router)
api.add_router("/incidents", incidents.router)
api.add_router("/collectors", collectors.router)
api.add_router("/clusters", clusters.router)
api.add_router("/exports", exports.router)
problems.install_handlers(api)
