"""Flows of data for pages to show: a small one in which something is blocked, and one of 500 nodes."""

import json

from dashboard.models import Cluster
from tests.web import factories


def busy_flow(of: Cluster) -> None:
    """Let orders go through Spark to two blocked groups, payments through an application to a ledger."""
    _collectors(of)
    factories.topic_tally(of, "orders-gateway", "order_events", 12_600)
    query = factories.query(of)
    factories.batches(query, range(1_190, 1_204))
    factories.sink_decision(query, 1_203)
    factories.topic_tally(of, "orders_enrich", "orders_enriched", 340, unreadable_ms=700)
    for number in range(4):
        factories.partition(of, "order_events", number)
        factories.partition(of, "payments_ledger", number)
        factories.partition(of, "orders_enriched", number)
    pin = factories.lso_blocker(of, "payments", verdict="late", age_ms=420_000)
    for name in ("billing", "shipping"):
        factories.blocked_offset(factories.group(of, name, "BLOCKED", blocked=1), pin, age_ms=420_000)
    factories.topic_tally(of, "payments", "payments", 5_760, unreadable_ms=45)
    factories.topic_tally(of, "ledger-writer", "payments_ledger", 900)
    factories.topic_tally(of, "ledger-writer", "__consumer_offsets", 900, partition=9)
    row = factories.group(of, "ledger", log_partition=9, committers=json.dumps({"payments": "ledger-writer"}))
    factories.group_offset(row, "payments")
    factories.group_offset(factories.group(of, "warehouse"), "orders_enriched", lag_ms=4_100)
    factories.group_offset(factories.group(of, "reports"), "payments_ledger", lag_ms=900)
    factories.finding(
        of, "transaction:payments-7", "critical", affected=["partition:payments-0", "group:billing"]
    )


def large_flow(of: Cluster, pipelines: int = 100) -> None:
    """Let there be five nodes for each of many pipelines, in ten families of names."""
    _collectors(of)
    for number in range(pipelines):
        team = ("shop", "pay", "ship", "crm", "risk", "ads", "ops", "geo", "feed", "iot")[number % 10]
        name = f"{team}-{number // 10:02}"
        factories.topic_tally(of, f"{name}-gateway", f"{name}-events", 600 + number)
        factories.topic_tally(of, f"{name}-enricher", f"{name}-enriched", 500)
        for topic in ("events", "enriched"):
            factories.partition(of, f"{name}-{topic}")
        committers = json.dumps({f"{name}-events": f"{name}-enricher"})
        factories.group_offset(
            factories.group(of, f"{name}-enrich-group", committers=committers), f"{name}-events"
        )
        blocked = number == 42
        row = factories.group(of, f"{name}-sink", "BLOCKED" if blocked else "OK", blocked=int(blocked))
        factories.group_offset(
            row, f"{name}-enriched", status="BLOCKED" if blocked else "OK", lag_ms=number * 37
        )


def _collectors(of: Cluster) -> None:
    if not of.collector_set.exists():
        factories.tail_collectors(of)
    factories.partition_collectors(of)
    factories.collectors(of, "checkpoints")
