"""Proves `/api/v1/audit`: an entry in full, and the newest first, page by page."""

import pytest
from django.contrib.auth.models import User

from dashboard.models import AuditEntry
from tests.api.client import Ask, all_items
from tests.web import factories, roles

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(ask: Ask) -> Ask:
    """Ask as an admin."""
    roles.give_role(User.objects.get(), "admin")
    AuditEntry.objects.all().delete()
    return ask


def test_an_entry_is_told_whole(ask: Ask) -> None:
    changes = {"min_severity": ["warning", "critical"], "url": ["http://a/***", "http://b/***"]}
    row = factories.audit_entry(address="2001:db8::1", subject_kind="channel", subject_id=4, changes=changes)
    body = ask("audit")
    (item,) = body["items"]
    assert item.pop("at").endswith("Z")
    assert item == {
        "id": row.pk, "event": "channel.changed", "actor": "ada", "via": "page", "address": "2001:db8::1",
        "subject": {"kind": "channel", "id": 4, "name": "pager"}, "changes": changes, "count": 1,
    }  # fmt: skip
    assert body["next"] is None
    assert body["as_of"]


def test_a_cursor_walks_the_whole_list(ask: Ask) -> None:
    numbers = [factories.audit_entry().pk for _ in range(25)]
    assert [each["id"] for each in all_items(ask, "audit?limit=10")] == numbers[::-1]
    assert "cursor" in ask("audit?cursor=nonsense", 400)["detail"]
