"""A client that reads what a module's `prod` has."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Cluster, Token
from dashboard.system.tokens import token_digest
from tests.api.description import PREFIX, assert_described
from tests.web import factories, roles
from tests.web.conftest import receiver, sent

__all__ = ["receiver", "sent"]

Ask = Callable[..., Any]
Call = Callable[..., Any]


def all_items(ask: Ask, path: str) -> list[Any]:
    """Return every item of a list, page by page."""
    found, after = [], ""
    while after is not None:
        body = ask(f"{path}&cursor={after}")
        found += body["items"]
        after = body["next"]
    return found


@pytest.fixture
def prod() -> Cluster:
    """A cluster all of whose collectors are up to date."""
    return factories.watched_cluster()


@pytest.fixture
def ask(prod: Cluster) -> Ask:
    """Request a path as a viewer; returns the decoded body, a problem's where another status is expected."""
    client = roles.client_with_role("viewer")

    def ask(path: str, status: int = 200) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == status, answer.content
        kind = "application/json" if status == 200 else "application/problem+json"
        assert answer["Content-Type"].startswith(kind)
        return answer.json()

    return ask


@pytest.fixture
def call(prod: Cluster) -> Call:
    """Send a request with the token of a role; returns the decoded body, None where there is none."""

    def call(method: str, path: str, body: Any = None, *, role: str = "admin", status: int = 200) -> Any:
        Token.objects.get_or_create(name=f"ci-{role}", role=role, digest=token_digest(role))
        data = {} if method == "get" else {"data": "" if body is None else json.dumps(body)}
        sent = {**data, "content_type": "application/json"} if data else {}
        headers = {"Authorization": f"Bearer {role}"}
        answer = getattr(Client(enforce_csrf_checks=True), method)(f"/api/v1/{path}", headers=headers, **sent)
        assert answer.status_code == status, answer.content
        if status >= 400:
            assert answer["Content-Type"].startswith("application/problem+json")
        return json.loads(answer.content) if answer.content else None

    return call


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every answer that a test gets from the API with its description."""
    request = Client.request

    def checked(self: Client, **environ: Any) -> Any:
        response = request(self, **environ)
        path = environ["PATH_INFO"]
        if path.startswith(PREFIX) and not path.startswith((f"{PREFIX}docs", f"{PREFIX}openapi")):
            assert_described(environ["REQUEST_METHOD"], path, response)
        return response

    monkeypatch.setattr(Client, "request", checked)
