"""Proves the API's contract: who may ask, what the answers look like, and that every error is a problem, at
every address for every method; that its description knows each name once, and that documents name no path
that does not exist. Answers: see `tests.api.description`."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from ninja.openapi.schema import OpenAPISchema, get_schema

from dashboard.api import api
from dashboard.models import Cluster
from dashboard.runtime import collector_store, leases
from dashboard.transactions import store
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from tests.api.conftest import Ask
from tests.api.description import description
from tests.cases import cases
from tests.factories import tail_batch
from tests.web import roles

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
    expected = ("prod", "transaction_state", True, 0)
    assert (row["cluster"], row["name"], row["alive"], row["behind"]) == expected
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


ROOT = Path(__file__).parents[2]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
UNKNOWN = (
    "/api/",
    "/api/v2/clusters",
    "/api/v1/nothing",
    "/api/a%0Ab",
    "/ingest/v9/x",
)


@pytest.fixture
def token(capsys: pytest.CaptureFixture[str]) -> str:
    call_command("create_token", "test")
    return capsys.readouterr().out.strip()


def test_no_two_schemas_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, list[Any]] = defaultdict(list)

    def note(self: OpenAPISchema, definitions: dict[str, Any]) -> None:
        for name, definition in definitions.items():
            if definition not in found[name]:
                found[name].append(definition)
        self.schemas.update(definitions)

    monkeypatch.setattr(OpenAPISchema, "add_schema_definitions", note)
    get_schema(api)
    assert found
    assert {
        name: found[name] for name in description()["components"]["schemas"] if len(found[name]) > 1
    } == {}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", UNKNOWN)
def test_an_unknown_address_is_a_problem_whatever_the_method(path: str, method: str, token: str) -> None:
    client = Client(enforce_csrf_checks=True)
    for headers in {}, {"Authorization": f"Bearer {token}"}:
        answer = client.generic(method, path, "{}", "application/json", headers=headers)
        assert answer.status_code == 404, (path, answer.status_code)
        assert answer["Content-Type"].startswith("application/problem+json")
        assert answer.json()["status"] == 404


@cases(
    ("/api/v1/transactions", "GET"),
    ("/api/v1/transactions/prod/a", "GET"),
    ("/api/v1/silences", "GET, POST"),
    ("/api/v1/channels/1", "DELETE, GET, PATCH"),
    ("/api/v1/actions/plan", "POST"),
    ("/ingest/v1/progress", "POST"),
)
def test_a_wrong_method_is_a_problem_that_names_the_right_ones(token: str, path: str, methods: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    for method in {*METHODS, "BREW"} - set(methods.split(", ")):
        answer = Client(enforce_csrf_checks=True).generic(method, path, "{}", headers=headers)
        assert answer.status_code == 405, (method, answer.content)
        assert answer["Content-Type"].startswith("application/problem+json")
        assert ", ".join(sorted(answer["Allow"].split(", "))) == methods
        assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["transactions/prod/", "groups/prod/", "queries/"])
@pytest.mark.parametrize("written", ["a%0Ab", "%0A", "%01", "%7F", "a%00b", "%0D%0A", "%E2%80%A8", "%FF"])
def test_an_unknown_id_with_control_characters_is_a_clear_problem(
    prod: Cluster, path: str, written: str
) -> None:
    address = f"/api/v1/{path}{written}"
    assert Client().get(address).status_code == 401
    answer = roles.client_with_role("viewer").get(address)
    assert answer.status_code in (404, 422)
    assert answer["Content-Type"].startswith("application/problem+json")
    assert answer.json()["detail"]


def test_every_operation_says_which_errors_it_answers() -> None:
    for path, operations in description()["paths"].items():
        for operation in operations.values():
            errors = {status for status in operation["responses"] if status >= "4"}
            assert {"401", "403", "503"} <= errors, path
            assert ("404" in errors) or "{" not in path, path


def named_paths() -> list[tuple[str, str]]:
    """Return each path of the API that a document names, with the document."""
    found = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for path in re.findall(r"/api/v1(/[A-Za-z0-9_{}/.…-]*)", document.read_text()):
            found.append((path.rstrip("."), str(document.relative_to(ROOT))))
    return found


def test_documents_name_no_path_that_does_not_exist() -> None:
    known = {re.sub(r"{\w+}", "{}", path.removeprefix("/api/v1")) for path in description()["paths"]}
    known |= {"/", "/docs", "/openapi.json", "/…"}
    wrong, named = [], named_paths()
    for path, document in named:
        shape = re.sub(r"{\w+}", "{}", path)
        fits = any(re.fullmatch(re.escape(each).replace(r"\{\}", "[^/]+"), shape) for each in known)
        below = shape.endswith("/…") and any(each.startswith(shape.removesuffix("…")) for each in known)
        if not (fits or below):
            wrong.append((path, document))
    assert len(named) > 10
    assert wrong == []
