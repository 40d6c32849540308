"""Proves that the API's description knows each name once, that every address answers errors as problems for
every method, and that documents name no path that does not exist. Answers: see `tests.api.description`."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.test import Client
from ninja.openapi.schema import OpenAPISchema, get_schema

from dashboard.api import api
from dashboard.models import Cluster
from fenceline.decode import text
from tests.api.client import Ask
from tests.api.description import description
from tests.web import factories

pytestmark = pytest.mark.django_db
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


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v1/transactions", "GET"),
        ("/api/v1/transactions/prod/a", "GET"),
        ("/api/v1/silences", "GET, POST"),
        ("/api/v1/channels/1", "DELETE, GET, PATCH"),
        ("/api/v1/actions/plan", "POST"),
        ("/ingest/v1/progress", "POST"),
    ],
)
def test_a_wrong_method_is_a_problem_that_names_the_right_ones(path: str, methods: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    for method in {*METHODS, "BREW"} - set(methods.split(", ")):
        answer = Client(enforce_csrf_checks=True).generic(method, path, "{}", headers=headers)
        assert answer.status_code == 405, (method, answer.content)
        assert answer["Content-Type"].startswith("application/problem+json")
        assert ", ".join(sorted(answer["Allow"].split(", "))) == methods
        assert answer.json()["detail"]


@pytest.mark.parametrize("raw", [b"a\nb", b"\n", b"a\r\nb", b"\x01\x1f", b"\x7f", b"tab\there", b"a\x1bb"])
def test_an_id_with_raw_control_characters_has_an_address(ask: Ask, prod: Cluster, raw: bytes) -> None:
    """Its address may have it as it is, percent-encoded, or escaped as lists name it."""
    factories.takeover_history(prod, raw)
    for written in raw.decode(), text.escape_bytes(raw):
        found = ask(f"transactions/prod/{quote(written, safe='')}")
        assert text.unescape_text(found["transactional_id"]) == raw


@pytest.mark.parametrize("path", ["transactions/prod/", "groups/prod/", "queries/"])
@pytest.mark.parametrize("written", ["a%0Ab", "%0A", "%01", "%7F", "a%00b", "%0D%0A", "%E2%80%A8", "%FF"])
def test_an_unknown_id_with_control_characters_is_a_clear_problem(
    ask: Ask, prod: Cluster, path: str, written: str
) -> None:
    client_errors = 404, 422
    answer = Client().get(f"/api/v1/{path}{written}")
    assert answer.status_code == 401
    for status in client_errors:
        try:
            assert ask(f"{path}{written}", status)["detail"]
        except AssertionError:
            continue
        return
    pytest.fail(f"{path}{written}: neither of {client_errors}")


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
    wrong = []
    for path, document in named_paths():
        shape = re.sub(r"{\w+}", "{}", path)
        fits = any(re.fullmatch(re.escape(each).replace(r"\{\}", "[^/]+"), shape) for each in known)
        below = shape.endswith("/…") and any(each.startswith(shape.removesuffix("…")) for each in known)
        if not (fits or below):
            wrong.append((path, document))
    assert len(named_paths()) > 10
    assert wrong == []
