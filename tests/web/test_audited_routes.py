"""Proves that every door that changes a setting leaves exactly one audit row, with who, via what and from
where: pages, API, Django's admin and commands; that no door is forgotten; and that no row has a secret."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import AsyncClient, Client, RequestFactory

import manage
from dashboard.models import AuditEntry, Channel, Token
from dashboard.system import access, origin
from dashboard.system.tokens import token_digest
from fenceline.alerts.engine import Alerting
from tests.web import factories, roles
from tests.web.audited_routes import ADMIN, AUDITED_WRITES, EXCEPTED
from tests.web.route_permissions import ROUTE_PERMISSIONS

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sandbox")]
HERE = "203.0.113.9"
PASSWORD = "correct horse battery"
Event = AuditEntry.Event


@pytest.fixture(autouse=True)
def limits(configured: None, settings: Any) -> None:
    alerts = Alerting(allow_private=("127.0.0.0/8",), timeout_s=5)
    settings.FENCELINE = replace(django_settings.FENCELINE, alerts=alerts)
    factories.cluster()


@pytest.fixture
def root(db: None) -> Client:
    """A superuser in Django's admin."""
    client = Client(REMOTE_ADDR=HERE)
    client.force_login(User.objects.create_superuser("root", password=PASSWORD))
    forget()
    return client


def forget() -> None:
    """Drop the rows of what a test has set up."""
    AuditEntry.objects.all().delete()


def only() -> AuditEntry:
    (row,) = AuditEntry.objects.all()
    return row


def by_admin(path: str) -> tuple[Client, str, str]:
    """Return an admin's session for a page, a token for the API; the actor's name, and via what."""
    if not path.startswith("/api/"):
        client = roles.client_with_role("admin")
        client.defaults["REMOTE_ADDR"] = HERE
        return client, "the admin", "page"
    Token.objects.create(name="ci", role="admin", digest=token_digest("secret token"))
    return Client(REMOTE_ADDR=HERE, headers={"Authorization": "Bearer secret token"}), "token ci", "api"


def test_no_door_that_writes_is_forgotten() -> None:
    writing = {(door.method, door.path) for door in ROUTE_PERMISSIONS if door.method != "GET"}
    assert not AUDITED_WRITES.keys() & EXCEPTED.keys()
    assert writing == AUDITED_WRITES.keys() | EXCEPTED.keys()


@pytest.mark.parametrize(("method", "path"), AUDITED_WRITES)
def test_a_door_leaves_one_row(method: str, path: str) -> None:
    write = AUDITED_WRITES[method, path]
    channel = factories.channel(url="http://127.0.0.1:9/services/T0/a-token-that-is-secret")
    silence, incident = factories.silence(), factories.incident(factories.cluster())
    Channel.objects.update(**write.channel)
    grace = User.objects.create_user("grace", password=PASSWORD, **write.user)
    roles.give_role(grace, "viewer")
    Token.objects.create(name="old", role="viewer", digest=token_digest("old"))
    client, actor, via = by_admin(path)
    forget()
    kind = {"content_type": "application/json"} if via == "api" else {}
    where = path.format(channel=channel.pk, silence=silence.pk, incident=incident.pk, user=grace.pk)
    answer = getattr(client, method.lower())(where, dict(write.body), **kind)
    assert answer.status_code < 400, answer.content
    row = only()
    assert (row.event, row.actor, row.via, row.address) == (write.event, actor, via, HERE)
    assert row.subject_kind == write.event.partition(".")[0].replace("password", "user")
    assert row.subject_name
    said = json.dumps(row.changes)
    secrets = Channel.objects.values_list("secret", "old_secret")
    assert not [each for pair in secrets for each in pair if each and each in said]
    assert "a-token-that-is-secret" not in said
    kept = (*User.objects.values_list("password", flat=True), *Token.objects.values_list("digest", flat=True))
    assert not [each for each in kept if each and each in said]


def test_no_model_of_the_admin_is_forgotten(root: Client) -> None:
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="root")
    may = {
        model._meta.model_name: (
            of.has_add_permission(request),
            of.has_change_permission(request),
            of.has_delete_permission(request),
        )
        for model, of in admin.site._registry.items()
    }
    assert {name: each for name, each in may.items() if any(each)} == ADMIN


def _user(**fields: Any) -> dict[str, Any]:
    """What the admin's form of a user sends."""
    joined = {"date_joined_0": "2026-01-31", "date_joined_1": "12:00:00"}
    return {"username": "grace", "is_active": "on"} | joined | fields


def test_the_admin_s_pages_of_users_leave_one_row_each(root: Client) -> None:
    access.ensure_roles()
    grace = User.objects.create_user("grace", password=PASSWORD)
    operator = Group.objects.get(name="operator")
    right = Permission.objects.get(codename="force_action")
    url = f"/admin/auth/user/{grace.pk}"
    made = {"username": "linus", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    both = _user(email="g@example.org", groups=[operator.pk], user_permissions=[right.pk])
    steps: list[tuple[str, dict[str, Any], Event, str]] = [
        ("/admin/auth/user/add/", made, Event.USER_CREATED, "linus"),
        (f"{url}/change/", both, Event.USER_CHANGED, "grace"),
        (f"{url}/password/", {**made, "password1": "another one of it", "password2": "another one of it"},
         Event.PASSWORD_CHANGED, "grace"),
        (f"{url}/delete/", {"post": "yes"}, Event.USER_DELETED, "grace"),
    ]  # fmt: skip
    for path, body, event, name in steps:
        forget()
        assert root.post(path, body).status_code == 302, path
        row = only()
        assert (row.event, row.actor, row.via, row.address) == (event, "root", "admin", HERE), path
        assert (row.subject_kind, row.subject_name) == ("user", name)
        if event == Event.USER_CHANGED:
            assert row.changes == {
                "email": ["", "g@example.org"],
                "groups": [[], ["operator"]],
                "user_permissions": [[], ["dashboard.force_action"]],
            }
        if event == Event.PASSWORD_CHANGED:
            assert row.changes == {"password": ["***", "***"]}


def test_the_admin_s_pages_of_roles_and_tokens_leave_one_row_each(root: Client) -> None:
    right = Permission.objects.get(codename="force_action")
    role = Group.objects.create(name="night shift")
    token = Token.objects.create(name="ci", role="viewer", digest="d")
    fields = {"name": "day shift", "permissions": [right.pk]}
    steps: list[tuple[str, dict[str, Any], Event]] = [
        ("/admin/auth/group/add/", {"name": "leads"}, Event.ROLE_CREATED),
        (f"/admin/auth/group/{role.pk}/change/", fields, Event.ROLE_CHANGED),
        (f"/admin/auth/group/{role.pk}/delete/", {"post": "yes"}, Event.ROLE_DELETED),
        (f"/admin/dashboard/token/{token.pk}/delete/", {"post": "yes"}, Event.TOKEN_DELETED),
    ]
    for path, body, event in steps:
        forget()
        assert root.post(path, body).status_code == 302, path
        row = only()
        assert (row.event, row.actor, row.via, row.address) == (event, "root", "admin", HERE), path
        if event == Event.ROLE_CHANGED:
            assert row.changes == {
                "name": ["night shift", "day shift"],
                "permissions": [[], ["dashboard.force_action"]],
            }


def test_users_deleted_together_leave_a_row_each(root: Client) -> None:
    doomed = [User.objects.create_user(name).pk for name in ("grace", "linus")]
    forget()
    chosen = {"action": "delete_selected", "_selected_action": doomed, "post": "yes"}
    assert root.post("/admin/auth/user/", chosen).status_code == 302
    assert {row.subject_name for row in AuditEntry.objects.all()} == {"grace", "linus"}
    assert {row.event for row in AuditEntry.objects.all()} == {Event.USER_DELETED}


def test_a_password_that_is_changed_by_its_user_leaves_a_row(root: Client) -> None:
    new = {
        "old_password": PASSWORD,
        "new_password1": "another one of it",
        "new_password2": "another one of it",
    }
    assert root.post("/admin/password_change/", new).status_code == 302
    assert (only().event, only().actor, only().subject_name) == (Event.PASSWORD_CHANGED, "root", "root")


def test_roles_given_from_the_other_side_leave_a_row_of_each_user(db: None) -> None:
    access.ensure_roles()
    users = [User.objects.create_user(name) for name in ("grace", "linus")]
    operator = Group.objects.get(name="operator")
    forget()
    operator.user_set.set(users)
    operator.user_set.clear()
    told = [(row.subject_name, row.changes["groups"]) for row in AuditEntry.objects.order_by("pk")]
    assert told == [
        ("grace", [[], ["operator"]]),
        ("linus", [[], ["operator"]]),
        ("grace", [["operator"], []]),
        ("linus", [["operator"], []]),
    ]


@pytest.mark.parametrize("field", ["last_login", "last_used_at"])
def test_what_is_noted_at_each_use_is_no_change(field: str) -> None:
    user = User.objects.create_user("grace")
    token = Token.objects.create(name="ci", role="viewer", digest=token_digest("secret token"))
    Group.objects.all().delete()
    forget()
    if field == "last_login":
        user.save(update_fields=["last_login"])
    else:
        Client(headers={"Authorization": "Bearer secret token"}).get("/api/v1/clusters")
        token.refresh_from_db()
        assert token.last_used_at is not None
    user.save()
    access.ensure_roles()
    access.ensure_roles()
    assert set(AuditEntry.objects.values_list("event", flat=True)) <= {Event.ROLE_CREATED, Event.ROLE_CHANGED}
    assert AuditEntry.objects.filter(subject_kind="role").count() == 3


def test_a_password_that_is_hashed_anew_at_a_sign_in_is_no_change(settings: Any) -> None:
    user = User.objects.create_user("grace", password=PASSWORD)
    forget()
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.ScryptPasswordHasher", *settings.PASSWORD_HASHERS,
    ]  # fmt: skip
    before = user.password
    Client().post("/login/", {"username": "grace", "password": PASSWORD})
    user.refresh_from_db()
    assert user.password != before
    assert only().event == Event.SIGN_IN_SUCCEEDED


def test_an_unchanged_form_leaves_no_row(root: Client) -> None:
    row = factories.channel()
    client = roles.client_with_role("admin")
    fields: Mapping[str, Any] = {"name": row.name, "min_severity": row.min_severity, "send_resolved": "on"}
    client.post(f"/channels/{row.pk}/change", fields)
    forget()
    assert client.post(f"/channels/{row.pk}/change", fields).status_code == 303
    assert not AuditEntry.objects.exists()


def test_a_new_address_is_kept_without_its_secrets(root: Client) -> None:
    row = factories.channel(url="http://ada:hunter2@127.0.0.1:9/services/T0123456789abcdefgh?key=hunter3")
    client = roles.client_with_role("admin")
    forget()
    url = "http://127.0.0.1:9/services/T9876543210abcdefgh"
    fields = {"name": row.name, "min_severity": row.min_severity, "send_resolved": "on", "url": url}
    assert client.post(f"/channels/{row.pk}/change", fields).status_code == 303
    expected = {"url": ["http://***@127.0.0.1:9/services/***?key=***", "http://127.0.0.1:9/services/***"]}
    assert only().changes == expected


def test_a_request_knows_who_makes_a_change_under_asgi_too(transactional_db: None) -> None:
    access.ensure_roles()
    user = User.objects.create_user("ada")
    user.groups.set([Group.objects.get(name="admin")])
    client = AsyncClient(headers={"host": "127.0.0.1"})
    client.force_login(user)
    forget()
    asked = {"matchers": 'alertname="coordinator_overdue"', "reason": "x", "lasts": "7200"}
    answer = async_to_sync(client.post)("/silences/make", asked)
    assert answer.status_code == 303, answer.content
    row = only()
    assert (row.event, row.actor, row.via) == (Event.SILENCE_CREATED, "ada", "page")
    assert row.address == "127.0.0.1"
    assert origin.current_request.get() is None


def test_a_worker_s_changes_are_fenceline_s_own() -> None:
    Token.objects.create(name="ci", role="viewer", digest="d")
    assert (only().actor, only().via, only().address) == ("", "system", None)


@pytest.mark.django_db(transaction=True)
def test_each_command_leaves_one_row_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    created = ["createsuperuser", "--no-input", "--username", "root", "--email", ""]
    for arguments, event, name in (
        (["create_token", "ci", "--role", "operator"], Event.TOKEN_CREATED, "ci"),
        (["revoke_token", "ci"], Event.TOKEN_REVOKED, "ci"),
        (created, Event.USER_CREATED, "root"),
        (["unlock_sign_in", "root"], Event.SIGN_IN_UNLOCKED, "root"),
    ):
        if event == Event.SIGN_IN_UNLOCKED:
            Client().post("/login/", {"username": "root", "password": "wrong"})
        forget()
        manage.main(["manage.py", *arguments])
        row = only()
        assert (row.event, row.subject_name, row.address) == (event, name, None)
        assert (row.actor, row.via) == (f"manage.py {arguments[0]}", "command")
        assert PASSWORD not in json.dumps(row.changes)
    token = Token.objects.get()
    assert token.digest not in json.dumps(list(AuditEntry.objects.values_list("changes", flat=True)))
    forget()
    manage.main(["manage.py", "revoke_token", "ci"])
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_changepassword_leaves_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    User.objects.create_user("root", password=PASSWORD)
    forget()
    monkeypatch.setattr("getpass.getpass", lambda **_: "another one of it")
    manage.main(["manage.py", "changepassword", "root"])
    row = only()
    assert (row.event, row.actor) == (Event.PASSWORD_CHANGED, "manage.py changepassword")
    assert row.changes == {"password": ["***", "***"]}


def test_prepare_records_what_it_makes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCELINE_ADMIN_PASSWORD", PASSWORD)
    monkeypatch.setenv("FENCELINE_INGEST_TOKEN", "an ingest token")
    Group.objects.all().delete()
    forget()
    with origin.command_origin("prepare"):
        call_command("prepare", stdout=io.StringIO())
        found = AuditEntry.objects.order_by("event", "pk").values_list("event", "subject_name", "actor")
        assert list(found) == [
            ("role.created", "viewer", "manage.py prepare"),
            ("role.created", "operator", "manage.py prepare"),
            ("role.created", "admin", "manage.py prepare"),
            ("token.created", "environment", "manage.py prepare"),
            ("user.created", "admin", "manage.py prepare"),
        ]
        call_command("prepare", stdout=io.StringIO())
        assert found.count() == 5
        monkeypatch.setenv("FENCELINE_INGEST_TOKEN", "another ingest token")
        call_command("prepare", stdout=io.StringIO())
    assert AuditEntry.objects.get(event=Event.TOKEN_CHANGED).changes == {"digest": ["***", "***"]}
