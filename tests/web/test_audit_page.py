"""Proves the page of changes and sign-ins: newest first, filters, paging, hostile names, who may see it."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.models import AuditEntry
from tests.cases import cases
from tests.web import factories, roles
from tests.web.roles import page_text, text_of

pytestmark = pytest.mark.django_db
Event = AuditEntry.Event


@pytest.fixture
def admin(db: None) -> Client:
    found = roles.client_with_role("admin")
    AuditEntry.objects.all().delete()
    return found


def lines(page: Client, query: str = "") -> list[int]:
    return [int(each) for each in re.findall(r'<tr id="e-(\d+)"', page_text(page, f"/audit{query}"))]


def test_it_lists_the_newest_first_and_its_address_filters_it(admin: Client) -> None:
    first = factories.audit_entry().pk
    silence = factories.audit_entry(Event.SILENCE_ENDED, actor="grace").pk
    failed = factories.audit_entry(
        Event.SIGN_IN_FAILED, actor="", subject_name="ada", address="198.51.100.7"
    ).pk
    password = factories.audit_entry(
        Event.PASSWORD_CHANGED, actor="manage.py changepassword", via="command", address=None
    ).pk
    assert lines(admin) == [password, failed, silence, first]
    assert lines(admin, "?event=sign-ins") == [failed]
    assert lines(admin, "?event=users") == [password]
    assert lines(admin, "?event=silence.ended") == [silence]
    assert lines(admin, "?who=grace") == [silence]
    assert lines(admin, "?q=198.51") == [failed]
    assert lines(admin, "?q=ADA") == [failed, first]
    assert lines(admin, "?q=pager&who=ada&event=channels") == [first]
    assert lines(admin, f"?before={failed}") == [silence, first]


def test_a_row_says_what_changed_in_words(admin: Client) -> None:
    changes = {
        "min_severity": ["warning", "critical"],
        "secret": ["***", "***"],
        "enabled": [True, False],
        "group_wait_s": [None, 5.0],
        "groups": [["viewer"], ["admin", "operator"]],
    }
    factories.audit_entry(changes=changes, count=1)
    factories.audit_entry(Event.TOKEN_CREATED, subject_name="ci", changes={"role": [None, "viewer"]})
    factories.audit_entry(Event.SIGN_IN_FAILED, actor="", subject_name="", count=1_234)
    said = text_of(page_text(admin, "/audit"))
    for words in (
        "min severity: warning → critical",
        "secret: changed",
        "enabled: yes → no",
        "group wait s: — → 5.0",
        "groups: added admin, operator; removed viewer",
        "channel changed: pager",
        "role: viewer",
        "unknown username",
        "1,234 times within 1 h",
        "2 changes and 1,234 failed sign-ins in the last 24 h",
    ):
        assert words in said, words


@cases(
    ("?q=nowhere", 'data-empty="unmatched"'),
    ("?before=1", 'data-empty="past"'),
    ("?q=%00&who=%00", 'data-empty="none"'),
)
def test_each_empty_list_has_its_own_words(admin: Client, query: str, said: str) -> None:
    assert said in page_text(admin, f"/audit{query}")


def test_only_an_admin_may_see_it_and_finds_the_link(admin: Client) -> None:
    link = f'href="{reverse("audit")}"'
    assert link in page_text(admin, "/actions")
    for role in ("viewer", "operator"):
        client = roles.client_with_role(role)
        assert link not in page_text(client, "/actions")
        refused = page_text(client, "/audit", 403)
        assert "needs the role admin (permission dashboard.view_auditentry)" in refused
        assert "pager" not in refused


def test_it_is_read_only_and_readable_while_read_only(root: Client, admin: Client, settings: Any) -> None:
    row = factories.audit_entry()
    settings.READ_ONLY = True
    assert lines(admin) == [row.pk]
    assert admin.post("/audit").status_code == 405
    where = "/admin/dashboard/auditentry/"
    assert "pager" in page_text(root, where)
    assert root.get(f"{where}{row.pk}/change/").status_code == 200
    for path in (f"{where}add/", f"{where}{row.pk}/delete/"):
        assert root.post(path, {"post": "yes"}).status_code == 403
    assert root.post(f"{where}{row.pk}/change/", {"actor": "x"}).status_code == 403
