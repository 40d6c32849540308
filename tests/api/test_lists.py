"""Proves what all lists of the API have in common: how far their noun was seen, what was not seen, and which
cursors are refused. test_refusals.py has their parameters, test_exports.py their files."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dashboard.api import schemas
from dashboard.models import Cluster, GapRecord
from tests.api.client import Ask, all_items
from tests.api.description import operations
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db

#: The collector that each list is seen by.
NOUNS = {
    "transactions": "transaction_state",
    "transitions": "transaction_state",
    "applications": "transaction_state",
    "collectors": "transaction_state",
    "partitions": "partitions",
    "clusters": "partitions",
    "groups": "groups",
    "findings": "groups",
    "incidents": "groups",
    "queries": "checkpoints",
    "flink-jobs": "flink",
    "connectors": "engines",
    "recoveries": "recoveries",
    "alerts": "alerts",
    "silences": "alerts",
    "channels": "alerts",
    "deliveries": "alerts",
    "actions": "actions",
    "pipelines": "checkpoints",
    "pipelines/edges": "flink",
}
#: Lists that go on behind a cursor; a query's batches need a query.
PAGED = [
    operation.path.removeprefix("/api/v1/")
    for operation in operations()
    if "cursor" in operation.query and "{" not in operation.path
]


def test_each_list_has_its_collector() -> None:
    assert NOUNS.keys() - {"collectors", "clusters"} == set(PAGED) - {"audit", "events"}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_source_that_stands_still_is_a_gap_of_every_noun(ask: Ask, prod: Cluster, noun: str) -> None:
    """`as_of` is four minutes old, and the gap says so; without its collector nothing is known of it."""
    source, at_ms = NOUNS[noun], factories.now_ms() - 240_000
    assert (ask(noun)["gaps"], bool(ask(noun)["as_of"])) == ([], True)
    prod.collector_set.filter(name=source).delete()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    factories.collector(prod, source, behind=None, seen_through_ms=at_ms, expires_at=long_ago)
    body = ask(noun)
    assert body["as_of"] == schemas.format_iso(at_ms)
    assert [gap for gap in body["gaps"] if gap["source"] == source] == [
        {
            "cluster": "prod",
            "source": source,
            "scope": "cluster",
            "since": schemas.format_iso(at_ms),
            "until": None,
            "reason": "no worker holds its lease; is the worker running?",
            "count": 1,
        }
    ]


def test_a_noun_without_its_collector_is_not_known(ask: Ask, prod: Cluster) -> None:
    prod.collector_set.filter(name="groups").delete()
    assert ask("groups")["as_of"] is None
    factories.gap(prod, source="groups", reason="not authorized")
    assert [gap["reason"] for gap in ask("groups")["gaps"]] == ["not authorized"]


def test_a_source_that_is_on_time_or_has_reported_its_gap_is_no_second_one(ask: Ask, prod: Cluster) -> None:
    now_ms = factories.now_ms()
    factories.collector(prod, "reconcile", behind=None, seen_through_ms=now_ms - 900_000)
    assert ask("groups")["gaps"] == []
    prod.collector_set.filter(name="groups").update(seen_through_ms=now_ms - 240_000)
    GapRecord.objects.create(cluster=prod, source="groups", scope="cluster", since_ms=now_ms, reason="no ACL")
    assert [gap["reason"] for gap in ask("groups")["gaps"]] == ["no ACL"]
    GapRecord.objects.update(scope="group:billing")
    assert {gap["scope"] for gap in ask("groups")["gaps"]} == {"cluster", "group:billing"}


def test_a_cluster_never_seen_makes_as_of_unknown(ask: Ask, prod: Cluster) -> None:
    factories.collector(factories.cluster("other"), seen_through_ms=None, error="cannot reach it")
    body = ask("transactions")
    assert body["as_of"] is None
    assert [gap["reason"] for gap in body["gaps"] if gap["cluster"] == "other"] == ["cannot reach it"]


def cursor(*after: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "written",
    [
        "%00",
        "!",
        "é",
        "YWJj",
        cursor(),
        cursor(1, 2),
        cursor(1.5, True),
        cursor("applications", "prod", "\ud800"),
        cursor("applications", "prod", "\0"),
        cursor("transitions-newest", -1, 0),
        cursor("transitions-newest", 2**63, 0),
        cursor("transitions-told", 1, 2),
        cursor("transactions-by-id", "prod", "a", 1),
        base64.urlsafe_b64encode(b"[" * 5_000).decode(),
        base64.urlsafe_b64encode(b"[" + b"9" * 5_000 + b"]").decode(),
    ],
)
def test_a_cursor_of_nobody_or_of_another_list_is_refused(ask: Ask, written: str) -> None:
    for name in set(PAGED) - {"audit"}:
        assert "cursor" in ask(f"{name}?cursor={written}", 400)["detail"], name


#: With which parameters lists of several rows are asked for; test_history.py walks through the history.
WALKED = {
    "groups": "",
    "queries": "",
    "flink-jobs": "",
    "connectors": "",
    "recoveries": "",
    "alerts": "state=all",
    "silences": "",
    "channels": "",
    "deliveries": "",
    "actions": "",
    "findings": "state=all",
    "incidents": "state=all",
}


def test_a_list_goes_on_page_by_page(ask: Ask, prod: Cluster) -> None:
    prod.delete()
    of = factories.cluster()
    for fill in scenarios.busy_transactions, scenarios.busy_partitions, scenarios.busy_alerts:
        fill(of)
    for fill in scenarios.busy_queries, scenarios.busy_flink_jobs, scenarios.busy_actions:
        fill(of)
    for number in range(3):
        factories.connector(of, name=f"source{number}")
    for noun, asked in WALKED.items():
        whole = ask(f"{noun}?limit=500&{asked}")["items"]
        assert len(whole) > 1, noun
        assert all_items(ask, f"{noun}?limit={len(whole) // 2}&{asked}") == whole, noun


#: How often each list asks the database at most.
MOST_QUERIES = {
    "partitions?limit=1000&internal=true": 8,
    "groups?limit=1000": 7,
    "recoveries": 7,
    "flink-jobs": 7,
    "connectors": 7,
    # Six more for what may be offered, for however many findings; two for the role of who asks.
    "findings": 15,
    "clusters": 22,
    # With readers and queries that wait.
    "transactions?state=open": 16,
}


def test_a_list_asks_the_database_a_bounded_number_of_times(
    ask: Ask, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    prod.delete()
    of = factories.cluster()
    scenarios.busy_transactions(of, 60)
    scenarios.busy_partitions(of)
    for path, most in MOST_QUERIES.items():
        with django_assert_max_num_queries(most):
            ask(path)
