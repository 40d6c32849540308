"""Proves the API's contract: who may ask, what the answers look like, and that every error is a problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from dashboard.api import api
from dashboard.models import Token
from dashboard.runtime import collector_store, leases
from dashboard.transactions import store
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from tests.factories import tail_batch
from tests.web import roles

pytestmark = pytest.mark.django_db

NOW_MS = 1_795_000_000_123
OPENAPI = Path(__file__).parents[2] / "docs" / "openapi.json"
Ask = Callable[..., Any]


def names(body: Any) -> list[str]:
    return sorted(row["transactional_id"] for row in body["items"])


def record(name: str, state: TransactionState = TransactionState.ONGOING) -> TransactionRecord:
    return TransactionRecord(
        name, state, 7, 3, 60_000, (TopicPartitions("orders", (0, 2)),), NOW_MS, NOW_MS - 500, 2
    )


@pytest.fixture(autouse=True)
def transactions() -> None:
    """`prod` with three ids, seen through NOW_MS; `other` never seen."""
    collector_store.sync_clusters(["prod", "other"])
    lease = leases.acquire("prod", "transaction_state", holder="test", now_ms=NOW_MS)
    assert lease is not None
    facts = [record("a"), record("b", TransactionState.EMPTY)._replace(started_ms=None), record("dir/c d")]
    look = tail_batch(4, *facts, seen_through_ms=NOW_MS)
    store.save_batch(lease, look, topic_id="t", rate=3.0, now_ms=NOW_MS)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Ask the API with a viewer's token; returns the decoded body of a 200."""
    call_command("create_token", "test")
    token = capsys.readouterr().out.strip()

    def ask(path: str, status: int = 200) -> Any:
        answer = Client().get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status, answer.content
        return answer.json()

    return ask


def test_a_list_carries_items_next_as_of_and_gaps(ask: Ask) -> None:
    body = ask("transactions?cluster=prod")
    assert set(body) == {"items", "next", "as_of", "gaps"}
    assert names(body) == ["a", "b", "dir/c d"]
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


def test_an_id_with_slashes_and_spaces_has_an_address(ask: Ask) -> None:
    assert ask("transactions/prod/dir%2Fc%20d")["transactional_id"] == "dir/c d"
    assert ask("transactions/prod/dir/c%20d")["transactional_id"] == "dir/c d"


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("state=Empty", ["b"]),
        ("state=open", ["a", "dir/c d"]),
        ("q=C", ["dir/c d"]),
        ("cluster=other", []),
        ("cluster=nowhere", []),
        ("min_age_s=1", ["a", "dir/c d"]),
        ("min_age_s=1e9", []),
    ],
)
def test_filters(ask: Ask, query: str, ids: list[str]) -> None:
    assert names(ask(f"transactions?{query}")) == ids


def test_a_cluster_never_seen_makes_as_of_unknown(ask: Ask) -> None:
    lease = leases.acquire("other", "transaction_state", holder="test", now_ms=NOW_MS)
    assert lease is not None
    collector_store.save_trouble(lease, "cannot reach it", now_ms=NOW_MS)
    body = ask("transactions")
    assert body["as_of"] is None
    reasons = [gap["reason"] for gap in body["gaps"] if gap["cluster"] == "other"]
    assert reasons == ["cannot reach it"]


def test_cursors_walk_through_every_row_once(ask: Ask) -> None:
    seen, cursor = [], ""
    while cursor is not None:
        body = ask(f"transactions?limit=2&cursor={cursor}")
        seen += names(body)
        cursor = body["next"]
    assert sorted(seen) == ["a", "b", "dir/c d"]


def test_collectors_say_how_far_they_have_seen(ask: Ask) -> None:
    (row,) = ask("collectors")["items"]
    assert (row["cluster"], row["name"], row["alive"], row["behind"]) == (
        "prod",
        "transaction_state",
        True,
        0,
    )
    assert (row["records"], row["seen_through"], row["error"]) == (3, "2026-11-18T11:06:40.123Z", "")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("transactions/prod/nobody", 404),
        ("transactions?state=Hanging", 422),
        ("transactions?limit=0", 422),
        ("transactions?limit=1001", 422),
        ("transactions?min_age_s=old", 422),
        ("transactions?min_age_s=nan", 422),
        ("transactions?min_age_s=inf", 422),
        ("transactions?cursor=!", 400),
        ("transactions?cursor=WzEsIDJd", 400),  # One of another list.
        ("transitions?since_rev=0", 400),  # Whose revision? Two clusters are configured.
        ("transitions?since_rev=-1&cluster=prod", 422),
        ("transitions?kind=commit", 422),
        ("transitions?confidence=sure", 422),
        ("transitions?limit=0", 422),
        ("transitions?cursor=!", 400),
        ("transitions?since=yesterday", 422),
        ("applications?window_s=1", 422),
        ("applications?cursor=WzEsIDJd", 400),
        ("transactions?cursor=YWJj", 400),
        ("transactions?cursor=YWZ0ZXI6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", 400),
        ("transactions/prod/a%00b", 404),
        ("transactions/prod/bad%5Cescape", 404),
        ("nothing/here", 404),
    ],
)
def test_every_error_is_a_problem(ask: Ask, path: str, status: int) -> None:
    body = ask(path, status)
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]


def test_nobody_else_may_ask() -> None:
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}):
        answer = Client().get("/api/v1/transactions", headers=headers)
        assert answer.status_code == 401
        assert answer["Content-Type"].startswith("application/problem+json")
        assert "create_token" in answer.json()["detail"]


def test_an_ingest_token_reads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_token", "spark", "--role", "ingest")
    token = capsys.readouterr().out.strip()
    assert Client().get("/api/v1/collectors", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_signed_in_session_may_ask() -> None:
    client = roles.client_with_role("viewer")
    assert client.get("/api/v1/collectors").status_code == 200


def test_a_token_is_printed_once_and_never_kept(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_token", "mine", "--role", "operator")
    token = capsys.readouterr().out.strip()
    kept = Token.objects.get(name="mine")
    assert kept.role == "operator"
    assert token not in str(kept.__dict__)
    with pytest.raises(CommandError, match="exists"):
        call_command("create_token", "mine")


def test_the_committed_openapi_file_is_what_the_api_says() -> None:
    """Others build on it: a change must be meant.

    Written by
    `manage.py export_openapi_schema --api dashboard.api.api --output docs/openapi.json --indent 2`.
    """
    assert json.loads(OPENAPI.read_text()) == json.loads(json.dumps(api.get_openapi_schema()))
