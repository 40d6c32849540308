"""Proves `/api/v1/audit`: the newest first, page by page, filtered, for admins alone, without secrets."""

from typing import Any

import pytest
from django.test import Client

from dashboard.models import AuditEntry, Token
from dashboard.system.tokens import token_digest
from tests.api.client import all_items
from tests.web import factories

pytestmark = pytest.mark.django_db


def caller(role: str) -> Client:
    Token.objects.create(name=f"ci-{role}", role=role, digest=token_digest(role))
    AuditEntry.objects.all().delete()
    return Client(headers={"Authorization": f"Bearer {role}"})


@pytest.fixture
def ask() -> Any:
    factories.tail_collectors(factories.cluster())
    client = caller("admin")

    def ask(path: str, status: int = 200) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == status, answer.content
        return answer.json()

    return ask


def entry(number: int = 0, **fields: Any) -> AuditEntry:
    usual: dict[str, Any] = {"event": "channel.changed", "actor": f"user {number}", "via": "page"}
    return AuditEntry.objects.create(**(usual | fields))


def test_an_entry_is_told_whole(ask: Any) -> None:
    changes = {"min_severity": ["warning", "critical"], "url": ["http://a/***", "http://b/***"]}
    row = entry(address="2001:db8::1", subject_kind="channel", subject_id=4, subject_name="pager",
                changes=changes, count=1)  # fmt: skip
    body = ask("audit")
    (item,) = body["items"]
    assert item.pop("at").endswith("Z")
    assert item == {
        "id": row.pk, "event": "channel.changed", "actor": "user 0", "via": "page", "address": "2001:db8::1",
        "subject": {"kind": "channel", "id": 4, "name": "pager"}, "changes": changes, "count": 1,
    }  # fmt: skip
    assert body["next"] is None
    assert body["as_of"]


def test_a_cursor_walks_the_whole_list(ask: Any) -> None:
    numbers = [entry(number).pk for number in range(25)]
    assert [each["id"] for each in all_items(ask, "audit?limit=10")] == numbers[::-1]
    assert "cursor" in ask("audit?cursor=nonsense", 400)["detail"]


def test_it_is_filtered(ask: Any) -> None:
    first = entry(1).pk
    failed = entry(2, event="sign_in.failed", actor="", address="198.51.100.7", subject_name="ada").pk
    for query, found in {
        "event=sign_in.failed": [failed],
        "who=user%201": [first],
        "q=198.51": [failed],
        "q=ADA": [failed],
        "q=nothing": [],
        "event=channel.changed&who=user%201": [first],
    }.items():
        assert [each["id"] for each in ask(f"audit?{query}")["items"]] == found, query
    assert "event" in ask("audit?event=explode", 422)["detail"]


def test_it_is_readable_while_read_only(ask: Any, settings: Any) -> None:
    entry()
    settings.READ_ONLY = True
    assert len(ask("audit")["items"]) == 1
