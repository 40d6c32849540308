"""Proves tokens of users with access: one is made, works until it is revoked, and wrong input is refused."""

import pytest
from django.test import Client

from dashboard.models import AuditEntry, Token
from dashboard.system.tokens import token_digest
from tests.cases import cases
from tests.web.roles import page_html, secret_of

pytestmark = pytest.mark.django_db
Event = AuditEntry.Event


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "ingest"])
def test_a_token_is_shown_once_and_works_until_it_is_revoked(admin: Client, role: str) -> None:
    secret = secret_of(admin.post("/access/tokens/add", {"name": "ci", "role": role, "expires": "90d"}))
    token = Token.objects.get()
    assert (token.digest, token.role) == (token_digest(secret), role)
    assert token.expires_at is not None
    assert secret not in page_html(admin, "/access/tokens")
    door = ("/ingest/v1/progress", "post") if role == "ingest" else ("/api/v1/clusters", "get")
    ask = getattr(Client(headers={"Authorization": f"Bearer {secret}"}), door[1])
    assert ask(door[0]).status_code != 401
    for _ in range(2):
        assert admin.post("/access/tokens/revoke", {"name": "ci"})["Location"] == "/access/tokens"
    assert ask(door[0]).status_code == 401
    shown = page_html(admin, "/access/tokens")
    assert 'data-token="ci" data-state="revoked"' in shown
    assert 'action="/access/tokens/revoke"' not in shown
    events = AuditEntry.objects.filter(subject_name="ci").order_by("pk").values_list("event", flat=True)
    assert list(events) == [Event.TOKEN_CREATED, Event.TOKEN_REVOKED]


@cases(
    {"name": "", "role": "viewer"},
    {"name": "x" * 65, "role": "viewer"},
    {"name": "a\nb", "role": "viewer"},
    {"name": "taken", "role": "viewer"},
    {"name": "ci", "role": "root"},
    {"name": "ci"},
    {"name": "ci", "role": "viewer", "expires": "yesterday"},
    {"name": "ci", "role": "viewer", "expires": "2020-01-31"},
)
def test_a_token_that_cannot_be_is_refused(admin: Client, body: dict[str, str]) -> None:
    Token.objects.create(name="taken", role="viewer", digest="d")
    answer = admin.post("/access/tokens/add", body)
    assert answer.status_code == 422
    assert answer.content.decode().count('class="wrong"') == 2
    assert Token.objects.count() == 1


@pytest.mark.sql
def test_an_unknown_token_is_not_found(admin: Client) -> None:
    for name in ("never", "x\0y", ""):
        assert admin.post("/access/tokens/revoke", {"name": name}).status_code == 404
