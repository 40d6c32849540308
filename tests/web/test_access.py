"""Proves users and access: a colleague is invited, signs in by a link that works once, gets another role, is
disabled; wrong input, the last admin and users with more rights are refused."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from dashboard.models import AuditEntry
from dashboard.system import live_sessions, users
from dashboard.system.access import AccessRefused
from tests.cases import cases
from tests.web import roles
from tests.web.roles import page_html, secret_of

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
Event = AuditEntry.Event


@pytest.fixture
def grace(db: None) -> User:
    """A viewer with a password."""
    user = User.objects.create_user("grace", password=PASSWORD)
    roles.give_role(user, "viewer")
    return user


def note(page: Client, user: User) -> str:
    """Return why the last change of a user was refused, as its page shows it."""
    shown = page_html(page, f"/access/{user.pk}")
    return html.unescape(shown.partition('id="problem"')[2].partition("</span>")[0].partition("<span>")[2])


def set_password(link: str, password: str = PASSWORD, again: str = "") -> Any:
    """Follow a link in a browser of its own, and send its form."""
    client = Client()
    opened = client.get(link.removeprefix("http://testserver"))
    if opened.status_code != 302:
        return opened
    return client.post(opened["Location"], {"new_password1": password, "new_password2": again or password})


def signs_in(name: str, password: str = PASSWORD) -> Client | None:
    client = Client()
    answer = client.post("/login/", {"username": name, "password": password})
    return client if answer.status_code == 302 else None


def invited(admin: Client, name: str = "linus", role: str = "viewer") -> str:
    return secret_of(admin.post("/access/add", {"username": name, "role": role}))


def test_a_read_only_colleague_is_three_clicks_away(admin: Client) -> None:
    assert 'href="/access/new"' in page_html(admin, "/access")
    form = page_html(admin, "/access/new")
    (chosen,) = re.findall(r'name="role" value="(\w+)" checked', form)
    link = secret_of(admin.post("/access/add", {"username": "linus", "role": chosen}))
    done = set_password(link)
    assert (done.status_code, done["Location"]) == (302, "/login/")
    linus = signs_in("linus")
    assert linus is not None
    assert linus.get("/transactions").status_code == 200
    assert linus.get("/access").status_code == 403
    assert linus.post("/silences/make", {}).status_code == 403


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_an_invited_user_has_the_chosen_role_alone(admin: Client, role: str) -> None:
    invited(admin, role=role)
    linus = User.objects.get(username="linus")
    assert [group.name for group in linus.groups.all()] == [role]
    assert (linus.is_staff, linus.is_superuser, linus.has_usable_password()) == (False, False, False)
    row = AuditEntry.objects.get(event=Event.USER_CREATED, subject_name="linus")
    assert row.changes["groups"] == [[], [role]]
    assert (row.actor, row.via) == ("the admin", "page")


def test_the_list_shows_role_state_and_last_sign_in(admin: Client, grace: User) -> None:
    invited(admin)
    User.objects.create_user("alone", is_active=False, password=PASSWORD)
    User.objects.create_superuser("root", password=PASSWORD)
    signs_in("grace")
    rows = page_html(admin, "/access").partition("<tbody>")[2].split("<tr ")[1:]
    said = {re.findall(r'data-user="([^"]+)" data-state="(\w+)"', row)[0]: row for row in rows}
    assert set(said) == {
        ("alone", "disabled"), ("grace", "active"), ("linus", "invited"), ("root", "active"),
        ("the admin", "active"),
    }  # fmt: skip
    assert "no role" in said["alone", "disabled"]
    assert "superuser" in said["root", "active"]
    assert "<time" in said["grace", "active"]
    assert "<time" not in said["linus", "invited"]


def test_names_are_shown_escaped(admin: Client) -> None:
    user = User.objects.create_user("<b>x</b>")
    for path in ("/access", f"/access/{user.pk}"):
        assert "<b>x</b>" not in page_html(admin, path)


@cases(
    ("", "viewer", "name"),
    ("   ", "viewer", "name"),
    ("a" * 151, "viewer", "name"),
    ("two words", "viewer", "name"),
    ("x\0y", "viewer", "name"),
    ("grace", "viewer", "name"),
    ("GRACE", "viewer", "name"),
    ("linus", "", "role"),
    ("linus", "root", "role"),
    ("linus", "ingest", "role"),
)
def test_a_user_that_cannot_be_is_refused_beside_its_field(
    admin: Client, grace: User, username: str, role: str, field: str
) -> None:
    answer = admin.post("/access/add", {"username": username, "role": role})
    assert answer.status_code == 422
    shown = answer.content.decode()
    assert ('id="username-wrong"' in shown) == (field == "name")
    assert 'role="alert"' in shown
    assert User.objects.count() == 2


@cases(("short", ""), ("password1234", ""), ("linus-linus-linus", ""), (PASSWORD, "another one of it"))
def test_a_weak_or_mistyped_password_is_refused_and_the_link_still_works(
    admin: Client, first: str, again: str
) -> None:
    link = invited(admin, "linus-linus-linu")
    refused = set_password(link, first, again)
    assert refused.status_code == 422
    assert 'role="alert"' in refused.content.decode()
    assert set_password(link).status_code == 302


@pytest.mark.sql
def test_a_link_works_once_and_leaves_an_audit_row(admin: Client) -> None:
    link = invited(admin)
    open_twice = Client()
    form = open_twice.get(link)["Location"]
    assert set_password(link).status_code == 302
    assert set_password(link, "another one of it").status_code == 404
    late = {"new_password1": "another one of it", "new_password2": "another one of it"}
    assert open_twice.post(form, late).status_code == 404
    assert signs_in("linus") is not None
    row = AuditEntry.objects.get(event=Event.PASSWORD_CHANGED)
    assert (row.subject_name, row.actor, row.address) == ("linus", "", "127.0.0.1")
    assert row.changes == {"password": ["***", "***"]}


def test_of_two_answers_to_one_link_at_once_one_counts(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, first = invited(admin), Client()
    form = first.get(link)["Location"]
    hash_password = users.make_password

    def overtake(password: str) -> str:
        monkeypatch.setattr(users, "make_password", hash_password)
        assert set_password(link).status_code == 302
        return hash_password(password)

    monkeypatch.setattr(users, "make_password", overtake)
    late = {"new_password1": "another one of it", "new_password2": "another one of it"}
    assert first.post(form, late).status_code == 404
    assert signs_in("linus") is not None


def _expire(link: str, settings: Any) -> str:
    settings.PASSWORD_RESET_TIMEOUT = -1
    return link


def _disable(link: str, settings: Any) -> str:
    User.objects.filter(username="linus").update(is_active=False)
    return link


def _delete(link: str, settings: Any) -> str:
    User.objects.filter(username="linus").delete()
    return link


@cases(
    _expire,
    _disable,
    _delete,
    lambda link, _: link[:-1],
    lambda link, _: re.sub(r"welcome/\w+", "welcome/MQ", link),
    lambda link, _: re.sub(r"welcome/\w+", "welcome/%FF", link),
    lambda link, _: re.sub(r"welcome/\w+", "welcome/OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", link),
)
def test_a_link_that_is_no_more_or_never_was_is_not_found(
    admin: Client, settings: Any, spoil: Callable[[str, Any], str]
) -> None:
    answer = set_password(spoil(invited(admin), settings))
    assert answer.status_code == 404
    assert "data-unusable" in answer.content.decode()


@pytest.mark.sql
def test_a_new_link_ends_the_password_its_sessions_and_the_earlier_link(admin: Client, grace: User) -> None:
    client = signs_in("grace")
    assert client is not None
    key = client.session.session_key
    first = secret_of(admin.post(f"/access/{grace.pk}/link"))
    second = secret_of(admin.post(f"/access/{grace.pk}/link"))
    assert signs_in("grace") is None
    assert client.get("/transactions").status_code == 302
    assert not live_sessions.may_stay(key)
    assert set_password(first).status_code == 404
    assert set_password(second, "another one of it").status_code == 302
    assert signs_in("grace", "another one of it") is not None


@pytest.mark.sql
def test_another_role_replaces_the_first_and_keeps_other_groups(admin: Client, grace: User) -> None:
    grace.groups.add(Group.objects.create(name="night shift"))
    AuditEntry.objects.all().delete()
    for _ in range(2):
        assert admin.post(f"/access/{grace.pk}/role", {"role": "operator"}).status_code == 303
    assert {group.name for group in grace.groups.all()} == {"night shift", "operator"}
    row = AuditEntry.objects.get()
    assert row.changes == {"groups": [["night shift", "viewer"], ["night shift", "operator"]]}


def test_a_disabled_user_is_out_until_enabled_again(admin: Client, grace: User) -> None:
    client = signs_in("grace")
    assert client is not None
    key = client.session.session_key
    admin.post(f"/access/{grace.pk}/disable")
    assert signs_in("grace") is None
    assert client.get("/transactions").status_code == 302
    assert not live_sessions.may_stay(key)
    assert admin.post(f"/access/{grace.pk}/link").status_code == 303
    assert note(admin, grace)
    admin.post(f"/access/{grace.pk}/enable")
    assert signs_in("grace") is not None
    changes = AuditEntry.objects.filter(event=Event.USER_CHANGED, actor="the admin").order_by("pk")
    assert [row.changes for row in changes] == [{"is_active": [True, False]}, {"is_active": [False, True]}]


def myself() -> User:
    return User.objects.get(username="the admin")


@pytest.mark.parametrize(("what", "body"), [("disable", {}), ("link", {}), ("role", {"role": "viewer"})])
def test_the_last_admin_changes_nothing_of_their_own(
    admin: Client, grace: User, what: str, body: dict[str, str]
) -> None:
    # An admin who has never signed in could not undo it.
    invited(admin, role="admin")
    AuditEntry.objects.all().delete()
    assert admin.post(f"/access/{myself().pk}/{what}", body).status_code == 303
    assert note(admin, myself())
    assert not AuditEntry.objects.exists()
    assert admin.get("/access").status_code == 200


@pytest.mark.sql
def test_one_of_two_admins_gives_the_role_up(admin: Client, grace: User) -> None:
    roles.give_role(grace, "admin")
    admin.post(f"/access/{myself().pk}/role", {"role": "viewer"})
    assert users.role_of(myself()) == "viewer"
    assert admin.get("/access").status_code == 403


def test_the_last_admin_is_not_disabled_by_another_whose_role_was_taken_meanwhile(
    admin: Client, grace: User
) -> None:
    with pytest.raises(AccessRefused):
        users.set_active(myself().pk, active=False, by=User.objects.create_superuser("root", is_active=False))
    assert myself().is_active


@pytest.mark.parametrize("rights", ["superuser", "permission"])
@cases(("disable", {}), ("enable", {}), ("link", {}), ("role", {"role": "viewer"}))
def test_a_user_with_more_rights_is_left_alone(
    admin: Client, grace: User, rights: str, what: str, body: dict[str, str]
) -> None:
    if rights == "superuser":
        User.objects.filter(pk=grace.pk).update(is_superuser=True)
    else:
        grace.user_permissions.add(Permission.objects.get(codename="change_user"))
    before = User.objects.filter(pk=grace.pk).values().get()
    assert admin.post(f"/access/{grace.pk}/{what}", body).status_code == 303
    assert note(admin, grace)
    assert User.objects.filter(pk=grace.pk).values().get() == before
    assert [group.name for group in grace.groups.all()] == ["viewer"]
    shown = page_html(admin, f"/access/{grace.pk}")
    assert "data-refused" in shown
    assert f'action="/access/{grace.pk}/{what}"' not in shown


def test_a_superuser_administers_superusers_whose_role_stays(admin: Client) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    other = User.objects.create_superuser("other", password=PASSWORD)
    client = signs_in("root")
    assert client is not None
    client.post(f"/access/{other.pk}/role", {"role": "viewer"})
    assert note(client, other)
    client.post(f"/access/{other.pk}/disable")
    other.refresh_from_db()
    assert (other.is_active, other.is_superuser, other.groups.count()) == (False, True, 0)


def test_an_unknown_role_changes_nobody(admin: Client, grace: User) -> None:
    admin.post(f"/access/{grace.pk}/role", {"role": "root"})
    assert note(admin, grace)
    assert users.role_of(grace) == "viewer"


def test_no_audit_row_or_session_keeps_what_is_shown_once(admin: Client, grace: User) -> None:
    made = [
        secret_of(admin.post("/access/tokens/add", {"name": "ci", "role": "viewer"})),
        invited(admin).rpartition("/")[2],
        secret_of(admin.post(f"/access/{grace.pk}/link")).rpartition("/")[2],
    ]
    kept = json.dumps(
        [*AuditEntry.objects.values_list("changes", flat=True), dict(admin.session)], default=str
    )
    assert not [secret for secret in made if secret in kept]


def test_what_is_shown_once_is_not_cached(admin: Client) -> None:
    answer = admin.post("/access/add", {"username": "linus", "role": "viewer"})
    assert answer["Cache-Control"] == "no-store"
    page = Client().get(secret_of(answer), follow=True)
    assert "no-store" in page["Cache-Control"]


def test_pages_are_seen_with_read_only_and_offer_nothing(admin: Client, grace: User, settings: Any) -> None:
    settings.READ_ONLY = True
    for path in ("/access", "/access/tokens", f"/access/{grace.pk}"):
        shown = page_html(admin, path).partition("<main")[2]
        assert 'action="/access' not in shown
        assert 'href="/access/new"' not in shown


def test_many_users_are_read_at_once_and_paged(admin: Client, django_assert_max_num_queries: Any) -> None:
    User.objects.bulk_create(User(username=f"user-{number:03}", password="!") for number in range(60))
    with django_assert_max_num_queries(14):
        first = page_html(admin, "/access")
    assert first.count("data-user=") == 50
    assert page_html(admin, "/access?page=2").count("data-user=") == 11
