"""Proves the life of a bearer token: made with an end, listed, used, revoked, deleted; and that one that
may not be used any more is refused with a 401 that names the reason: by the API, ingest and /metrics. The
audit log tells of an entry in full, and the newest first, page by page."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard.models import AuditEntry, Token
from tests.api.conftest import Ask, all_items
from tests.cases import cases
from tests.web import factories, roles

pytestmark = pytest.mark.django_db
#: Whoever is on loopback scrapes without a token.
ELSEWHERE = {"REMOTE_ADDR": "203.0.113.9"}
DOORS = ("/api/v1/clusters", "/ingest/v1/progress", "/metrics")


def made(name: str = "ci", *options: str) -> str:
    said = io.StringIO()
    call_command("create_token", name, *options, stdout=said)
    return said.getvalue().strip()


def knock(door: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    ask = Client().post if door.startswith("/ingest") else Client().get
    return ask(door, headers=headers, **ELSEWHERE)


def refused(door: str, token: str) -> str:
    answer = knock(door, token)
    assert answer.status_code == 401, answer.content
    assert answer["Content-Type"].startswith("application/problem+json")
    assert answer["WWW-Authenticate"] == "Bearer"
    return str(answer.json()["detail"])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("why", ["was revoked on", "expired on"])
def test_a_token_that_is_over_is_refused_with_its_reason(door: str, why: str) -> None:
    role = "ingest" if door.startswith("/ingest") else "viewer"
    token = made("ci", "--role", role, "--expires", "30d")
    assert knock(door, token).status_code != 401
    if "revoked" in why:
        call_command("revoke_token", "ci", stdout=io.StringIO())
    else:
        Token.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    told = refused(door, token)
    assert [words in told for words in ("ci", why, "create_token")] == [True] * 3


@pytest.mark.parametrize("door", DOORS)
def test_a_token_that_nobody_made_is_refused_as_such(door: str) -> None:
    assert "No such token is known" in refused(door, "made up")


@cases(("90d", timedelta(days=90)), ("12h", timedelta(hours=12)), ("45min", timedelta(minutes=45)))
def test_an_end_is_given_as_a_duration(asked: str, lasts: timedelta) -> None:
    before = timezone.now()
    made("ci", "--expires", asked)
    ends = Token.objects.get().expires_at
    assert ends is not None
    assert before + lasts <= ends <= timezone.now() + lasts


@pytest.mark.parametrize(("asked", "hour"), [("2999-01-31", 0), ("2999-01-31T12:00+02:00", 10)])
def test_an_end_is_given_as_a_date(asked: str, hour: int) -> None:
    made("ci", "--expires", asked)
    assert Token.objects.get().expires_at == datetime(2999, 1, 31, hour, tzinfo=UTC)


@cases("", "soon", "0d", "-1d", "90", "999999999999d", "1999-01-31", "2999-02-30")
def test_an_end_that_is_none_is_refused_in_words(asked: str) -> None:
    with pytest.raises(CommandError, match="--expires") as told:
        made("ci", f"--expires={asked}")
    assert "90d" in str(told.value)
    assert not Token.objects.exists()


@pytest.mark.parametrize("name", ["", "x" * 65, "two\nlines", "nul\0", " "])
def test_a_name_that_cannot_be_kept_is_refused_in_words(name: str) -> None:
    with pytest.raises(CommandError, match=r"The name .*1 to 64"):
        made(name)


def test_a_token_is_printed_once_and_never_kept() -> None:
    token = made("mine", "--role", "operator")
    kept = Token.objects.get(name="mine")
    assert kept.role == "operator"
    assert token not in str(kept.__dict__)
    with pytest.raises(CommandError, match="exists"):
        made("mine")


def test_tokens_are_listed_without_what_would_open_a_door() -> None:
    tokens = [made("ci", "--role", "operator", "--expires", "2999-01-31"), made("old"), made("late")]
    knock("/api/v1/clusters", tokens[0])
    call_command("revoke_token", "old", stdout=io.StringIO())
    Token.objects.filter(name="late").update(expires_at=timezone.now() - timedelta(days=1))
    said = io.StringIO()
    call_command("list_tokens", stdout=said)
    lines = {line.split()[0]: line for line in said.getvalue().splitlines()}
    assert "operator" in lines["ci"]
    assert "2999-01-31" in lines["ci"]
    assert lines["old"].split()[2] == "revoked"
    assert lines["late"].split()[2] == "expired"
    assert "never" in lines["old"]
    assert not any(secret in said.getvalue() for secret in tokens)
    assert not any(row.digest in said.getvalue() for row in Token.objects.all())


def test_no_token_is_said_so() -> None:
    said = io.StringIO()
    call_command("list_tokens", stdout=said)
    assert "create_token" in said.getvalue()


def test_what_is_not_there_cannot_be_revoked() -> None:
    with pytest.raises(CommandError, match=r"No token is named 'ghost'.*list_tokens"):
        call_command("revoke_token", "ghost")


def test_a_token_is_revoked_once() -> None:
    made("ci")
    call_command("revoke_token", "ci", stdout=io.StringIO())
    first = Token.objects.get().revoked_at
    said = io.StringIO()
    call_command("revoke_token", "ci", stdout=said)
    assert Token.objects.get().revoked_at == first
    assert "already" in said.getvalue()


def test_the_last_use_is_kept_without_a_write_for_each_request() -> None:
    token = made()
    knock("/api/v1/clusters", token)
    first = Token.objects.get().last_used_at
    assert first is not None
    with CaptureQueriesContext(connection) as asked:
        knock("/api/v1/clusters", token)
    assert not [each for each in asked if each["sql"].startswith("UPDATE")]
    assert Token.objects.get().last_used_at == first
    Token.objects.update(last_used_at=first - timedelta(minutes=2))
    knock("/api/v1/clusters", token)
    last = Token.objects.get().last_used_at
    assert last is not None
    assert last >= first


def test_a_refused_token_is_not_used() -> None:
    token = made()
    call_command("revoke_token", "ci", stdout=io.StringIO())
    refused("/api/v1/clusters", token)
    assert Token.objects.get().last_used_at is None


def test_a_token_is_deleted_in_the_admin_and_its_digest_is_not_shown(client: Client) -> None:
    token = made()
    client.force_login(User.objects.create_superuser("root"))
    row = Token.objects.get()
    for page in ("/admin/dashboard/token/", f"/admin/dashboard/token/{row.pk}/change/"):
        shown = client.get(page).content.decode()
        assert "ci" in shown
        assert row.digest not in shown
    assert client.get("/admin/dashboard/token/add/").status_code == 403
    client.post(f"/admin/dashboard/token/{row.pk}/delete/", {"post": "yes"})
    assert not Token.objects.exists()
    assert "No such token is known" in refused("/api/v1/clusters", token)


def test_the_environment_s_token_stays_revoked_until_another_is_brought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FENCELINE_INGEST_TOKEN", "first")
    call_command("prepare")
    call_command("revoke_token", "environment", stdout=io.StringIO())
    call_command("prepare")
    assert "was revoked" in refused("/ingest/v1/progress", "first")
    monkeypatch.setenv("FENCELINE_INGEST_TOKEN", "second")
    call_command("prepare")
    assert knock("/ingest/v1/progress", "second").status_code != 401


def test_who_asks_too_often_waits_and_nobody_else_does(settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 3
    eager, other = made("eager-ci"), made("other-ci")
    answers = [knock("/api/v1/clusters", eager) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    told = answers[-1].json()
    assert told["detail"].startswith("token eager-ci has asked 3 times within a minute")
    assert 1 <= int(answers[-1]["Retry-After"]) == told["retry_after_s"] <= 60
    assert knock("/api/v1/clusters", other).status_code == 200
    settings.API_REQUESTS_PER_MINUTE = 0
    assert knock("/api/v1/clusters", eager).status_code == 200


@pytest.fixture
def ask_admin(ask: Ask) -> Ask:
    """Ask as an admin."""
    roles.give_role(User.objects.get(), "admin")
    AuditEntry.objects.all().delete()
    return ask


def test_an_entry_is_told_whole(ask_admin: Ask) -> None:
    changes = {"min_severity": ["warning", "critical"], "url": ["http://a/***", "http://b/***"]}
    row = factories.audit_entry(address="2001:db8::1", subject_kind="channel", subject_id=4, changes=changes)
    body = ask_admin("audit")
    (item,) = body["items"]
    assert item.pop("at").endswith("Z")
    assert item == {
        "id": row.pk, "event": "channel.changed", "actor": "ada", "via": "page", "address": "2001:db8::1",
        "subject": {"kind": "channel", "id": 4, "name": "pager"}, "changes": changes, "count": 1,
    }  # fmt: skip
    assert body["next"] is None
    assert body["as_of"]


def test_a_cursor_walks_the_whole_list(ask_admin: Ask) -> None:
    numbers = [factories.audit_entry().pk for _ in range(25)]
    assert [each["id"] for each in all_items(ask_admin, "audit?limit=10")] == numbers[::-1]
    assert "cursor" in ask_admin("audit?cursor=nonsense", 400)["detail"]
