"""Proves the API's contract: who may ask, what the answers look like, and that every error is a problem."""

import json
from pathlib import Path

import pytest
from django.test import Client

from dashboard.api import api
from dashboard.models import Cluster
from dashboard.runtime import collector_store, leases
from dashboard.transactions import store
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from tests.api.client import Ask
from tests.factories import tail_batch

pytestmark = pytest.mark.django_db

NOW_MS = 1_795_000_000_123
OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"


def record(name: str, state: TransactionState = TransactionState.ONGOING) -> TransactionRecord:
    return TransactionRecord(
        name, state, 7, 3, 60_000, (TopicPartitions("orders", (0, 2)),), NOW_MS, NOW_MS - 500, 2
    )


@pytest.fixture
def prod() -> Cluster:
    """`prod` with three ids, seen through NOW_MS; `other` never seen."""
    collector_store.sync_clusters(["prod", "other"])
    lease = leases.acquire("prod", "transaction_state", holder="test", now_ms=NOW_MS)
    assert lease is not None
    facts = [record("a"), record("b", TransactionState.EMPTY)._replace(started_ms=None), record("dir/c d")]
    look = tail_batch(4, *facts, seen_through_ms=NOW_MS)
    store.save_batch(lease, look, topic_id="t", rate=3.0, now_ms=NOW_MS)
    return Cluster.objects.get(name="prod")


def test_a_list_carries_items_next_as_of_and_gaps(ask: Ask) -> None:
    body = ask("transactions?cluster=prod")
    assert set(body) == {"items", "next", "as_of", "gaps"}
    assert sorted(row["transactional_id"] for row in body["items"]) == ["a", "b", "dir/c d"]
    assert (body["next"], body["as_of"]) == (None, "2026-11-18T11:06:40.123Z")
    # What was saved here is older than any collector may be late.
    assert [(gap["source"], gap["since"]) for gap in body["gaps"]] == [("transaction_state", body["as_of"])]


def test_a_transaction_is_told_in_kafkas_words(ask: Ask) -> None:
    told = ask("transactions/prod/a")
    (first,) = told.pop("recent")
    assert (first["kind"], first["confidence"], first["partition"]) == ("baseline", "certain", 4)
    assert told == {
        "cluster": "prod",
        "transactional_id": "a",
        "application": "a",
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "started_at": "2026-11-18T11:06:39.623Z",
        "updated_at": "2026-11-18T11:06:40.123Z",
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 2}],
        "coordinator": {"partition": 4, "broker": None},
        "client_version": 2,
        "verdict": "open",
        "waiting": [],
        "rev": 1,
        "producer": None,
        "connector": None,
        "offsets": {"observation": "complete", "read_at": None, "items": [], "missing": []},
        "offers": [{"act": "fence", "subject": "a"}],
    }


def test_collectors_say_how_far_they_have_seen(ask: Ask) -> None:
    (row,) = ask("collectors")["items"]
    assert (row["cluster"], row["name"], row["alive"], row["behind"]) == (
        "prod",
        "transaction_state",
        True,
        0,
    )
    assert (row["records"], row["seen_through"], row["error"]) == (3, "2026-11-18T11:06:40.123Z", "")


def test_nobody_else_may_ask() -> None:
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}):
        answer = Client().get("/api/v1/transactions", headers=headers)
        assert answer.status_code == 401
        assert answer["Content-Type"].startswith("application/problem+json")
        assert "create_token" in answer.json()["detail"]


def test_the_committed_openapi_file_is_what_the_api_says() -> None:
    """Others build on it: a change must be meant.

    Written by
    `manage.py export_openapi_schema --api dashboard.api.api --output docs/openapi.json --indent 2`.
    """
    assert json.loads(OPENAPI.read_text()) == json.loads(json.dumps(api.get_openapi_schema()))
