"""Proves the sign-in with a name: guessing passwords is slow, locks nobody out who is elsewhere, and each
lock says what to do; sign-ins leave rows that keep no unknown name and fill no table; no weak password is set
by a command; and the headers of a proxy are believed at a named address alone."""

import io
import logging
import re
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import AsyncClient, Client
from django.utils import timezone

from dashboard.config import Config
from dashboard.config.identity import IdentityProvider, SignInProxy
from dashboard.models import AuditEntry
from dashboard.system import users
from dashboard.system.sign_in import limits as sign_in_limits
from tests.cases import cases

pytestmark = pytest.mark.django_db
RIGHT = "let me in, please"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
OF_NAME, OF_ADDRESS = 5, 50
Event = AuditEntry.Event
PROXY = SignInProxy(
    (ip_network("10.0.0.0/8"),),
    IdentityProvider(
        "proxy",
        "",
        "",
        "",
        "the proxy",
        (("sre", "operator"),),
        username_claim="X-User",
        groups_claim="X-Groups",
    ),
)


def sign_in(name: str = "operator", password: str = "wrong", address: str = HERE, **headers: str) -> Any:
    words = {"username": name, "password": password, "next": "/system"}
    return Client(REMOTE_ADDR=address).post("/login/", words, headers=headers)


def lock(name: str = "operator", address: str = HERE) -> Any:
    answers = [sign_in(name, address=address) for _ in range(OF_NAME)]
    assert [answer.status_code for answer in answers] == [200] * (OF_NAME - 1) + [429]
    return answers[-1]


def lock_address(address: str = HERE) -> Any:
    for number in range(OF_ADDRESS - 1):
        assert sign_in(f"name-{number}", address=address).status_code == 200
    return sign_in("one more", address=address)


def is_in(answer: Any) -> bool:
    return answer.status_code == 302 and answer["Location"] == "/system"


def test_a_name_is_locked_for_the_address_that_guesses(user: User) -> None:
    answer = lock()
    assert 840 <= int(answer["Retry-After"]) <= 900
    said = answer.content.decode()
    assert "after 5 wrong passwords" in said
    assert "Try again in 15 min" in said
    assert "manage.py unlock_sign_in" in said
    right = sign_in(password=RIGHT)
    assert right.status_code == 429
    assert 0 < int(right["Retry-After"]) <= 900
    assert "sessionid" not in right.cookies
    assert is_in(sign_in(password=RIGHT, address=ELSEWHERE)), "a stranger locks out nobody who is elsewhere"


def test_another_name_signs_in_from_the_same_address(user: User) -> None:
    lock("somebody else")
    assert is_in(sign_in(password=RIGHT))


def test_an_address_that_guesses_many_names_is_locked_for_all(user: User) -> None:
    answer = lock_address()
    assert answer.status_code == 429
    assert "this address" in answer.content.decode()
    assert "after 50 wrong passwords" in answer.content.decode()
    assert sign_in(password=RIGHT).status_code == 429
    assert is_in(sign_in(password=RIGHT, address=ELSEWHERE))


def test_other_browsers_and_headers_are_the_same_address(user: User) -> None:
    for number in range(OF_NAME):
        headers = {"user-agent": f"browser {number}", "x-forwarded-for": f"192.0.2.{number}"}
        answer = sign_in(**headers)
    assert answer.status_code == 429


def test_neighbours_in_one_ipv6_network_are_one_address(user: User) -> None:
    for number in range(OF_NAME):
        answer = sign_in(address=f"2001:db8:0:7::{number:x}")
    assert answer.status_code == 429
    assert is_in(sign_in(password=RIGHT, address="2001:db8:0:8::1"))


@pytest.mark.parametrize("address", ["", "unknown", "::ffff:203.0.113.9"])
def test_an_address_of_any_shape_is_counted(user: User, address: str) -> None:
    lock(address=address)


def test_a_lock_ends_by_itself_and_guessing_on_does_not_prolong_it(user: User) -> None:
    lock()
    until = AccessAttempt.objects.get().attempt_time
    sign_in()
    assert AccessAttempt.objects.get().attempt_time == until
    for row in AccessAttempt.objects.all():
        AccessAttempt.objects.filter(pk=row.pk).update(attempt_time=row.attempt_time - timedelta(minutes=15))
    assert is_in(sign_in(password=RIGHT))


def test_a_sign_in_forgets_one_s_own_mistakes_and_no_others(user: User) -> None:
    for _ in range(OF_NAME - 1):
        sign_in()
        sign_in("admin")
    assert is_in(sign_in(password=RIGHT))
    assert sign_in().status_code == 200
    # An account of one's own is no way to guess on at another's.
    assert sign_in("admin").status_code == 429


def test_passwords_are_checked_one_at_a_time_and_few_wait(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_limits, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(sign_in_limits, "MOST_WAITING", 1)
    with sign_in_limits.password_turn(HERE):
        refused = [sign_in(password=RIGHT, address=address) for address in (HERE, ELSEWHERE)]
    for answer in refused:
        assert (answer.status_code, answer["Retry-After"]) == (429, "5")
        assert "Too many sign-ins at once" in answer.content.decode()
        assert "sessionid" not in answer.cookies
    assert not AccessAttempt.objects.exists()
    assert is_in(sign_in(password=RIGHT))


@cases(
    (["operator"], {("operator", HERE), ("operator", ELSEWHERE)}),
    (["--address", HERE], {("operator", HERE), ("admin", HERE)}),
    (["operator", "--address", HERE], {("operator", HERE)}),
    (["--all"], {("operator", HERE), ("operator", ELSEWHERE), ("admin", HERE)}),
)
def test_a_command_unlocks(user: User, asked: list[str], freed: set[tuple[str, str]]) -> None:
    locked = [("operator", HERE), ("operator", ELSEWHERE), ("admin", HERE)]
    for name, address in locked:
        lock(name, address)
    said = io.StringIO()
    call_command("unlock_sign_in", *asked, stdout=said)
    for name, address in locked:
        expected = 200 if (name, address) in freed else 429
        assert sign_in(name, address=address).status_code == expected, (name, address)
    assert "unlocked" in said.getvalue()


def test_the_command_says_what_it_needs() -> None:
    with pytest.raises(CommandError, match=r"a name, --address or --all"):
        call_command("unlock_sign_in")
    with pytest.raises(CommandError, match=r"'here' is no IP address"):
        call_command("unlock_sign_in", "--address", "here")
    said = io.StringIO()
    call_command("unlock_sign_in", "nobody", stdout=said)
    assert "Nothing was locked" in said.getvalue()


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_admin_has_no_sign_in_of_its_own(user: User, method: str) -> None:
    User.objects.create_superuser("root", password=RIGHT)
    client = Client()
    words = {"username": "root", "password": RIGHT} if method == "post" else {}
    answer = getattr(client, method)("/admin/login/?next=/admin/dashboard/token/", words)
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/admin/dashboard/token/")
    assert "sessionid" not in client.cookies
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/login/?next=/admin/"


def test_whoever_may_not_open_the_admin_reads_so(page: Client) -> None:
    shown = page.get("/admin/", follow=True).content.decode()
    assert "operator may not open" in shown.replace("<bdi>", "").replace("</bdi>", "")


def test_the_log_has_each_sign_in_and_no_unknown_name(user: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dashboard")
    sign_in(password=RIGHT)
    lock()
    sign_in("my secret typed into the wrong field")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("dashboard")]
    assert f"operator has signed in from {HERE}" in told
    assert f"sign-in of operator from {HERE} failed: wrong password" in told
    assert f"sign-in of operator is locked for {HERE}" in told[-2]
    assert told[-1] == f"sign-in of an unknown name from {HERE} failed: wrong password"
    assert "my secret" not in caplog.text
    assert RIGHT not in caplog.text


def test_prepare_takes_no_short_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCELINE_ADMIN_PASSWORD", "elevenchars")
    with pytest.raises(CommandError, match=r"FENCELINE_ADMIN_PASSWORD .*at least 12 characters.*Set another"):
        call_command("prepare")
    assert not User.objects.exists()


def test_nor_does_createsuperuser_without_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"interactive": False, "username": "root", "email": "", "stdout": io.StringIO()}
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "elevenchars")
    with pytest.raises(CommandError, match=r"DJANGO_SUPERUSER_PASSWORD .*at least 12 characters"):
        call_command("createsuperuser", **asked)
    assert not User.objects.exists()
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", RIGHT)
    call_command("createsuperuser", **asked)
    assert User.objects.get().check_password(RIGHT)


@pytest.fixture
def no_rows(user: User) -> None:
    AuditEntry.objects.all().delete()


def told() -> list[tuple[str, str, str, str | None, int]]:
    rows = AuditEntry.objects.order_by("pk")
    return [(row.event, row.actor, row.subject_name, row.address, row.count) for row in rows]


@pytest.mark.usefixtures("no_rows")
def test_a_sign_in_and_a_sign_out_leave_a_row_each() -> None:
    client = Client(REMOTE_ADDR=HERE)
    client.post("/login/", {"username": "operator", "password": RIGHT})
    client.post("/logout/")
    assert told() == [
        ("sign_in.succeeded", "operator", "operator", HERE, 1),
        ("signed_out", "operator", "operator", HERE, 1),
    ]
    assert {row.via for row in AuditEntry.objects.all()} == {"page"}
    assert set(AuditEntry.objects.values_list("subject_id", flat=True)) == {User.objects.get().pk}


@pytest.mark.usefixtures("no_rows")
def test_failures_are_one_row_with_a_count_a_lock_is_its_own_and_what_it_refuses_leaves_none() -> None:
    lock()
    rows = [("sign_in.failed", "", "operator", HERE, OF_NAME), ("sign_in.locked", "", "operator", HERE, 1)]
    assert told() == rows
    assert [sign_in(password=word).status_code for word in (RIGHT, *["wrong"] * 5)] == [429] * 6
    assert told() == rows


@pytest.mark.usefixtures("no_rows")
def test_a_later_failure_is_another_row() -> None:
    sign_in()
    AuditEntry.objects.update(at=timezone.now() - timedelta(minutes=61))
    sign_in()
    sign_in(address=ELSEWHERE)
    assert [each[3:] for each in told()] == [(HERE, 1), (HERE, 1), (ELSEWHERE, 1)]


@pytest.mark.usefixtures("no_rows")
def test_a_name_that_nobody_has_is_not_kept() -> None:
    sign_in("my secret typed into the wrong field")
    sign_in("another secret")
    assert told() == [("sign_in.failed", "", "", HERE, 2)]
    assert AuditEntry.objects.get().changes == {}


@pytest.mark.usefixtures("no_rows")
def test_who_guesses_from_many_addresses_fills_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_limits, "MOST_ROWS", 10)
    for number in range(30):
        sign_in(address=f"198.51.100.{number}")
    rows = AuditEntry.objects.filter(event=Event.SIGN_IN_FAILED)
    assert rows.count() == 11
    rest = rows.get(address=None)
    assert (rest.subject_name, rest.count) == ("", 20)
    assert sum(rows.values_list("count", flat=True)) == 30


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize("password", [RIGHT, "wrong"])
def test_a_sign_in_goes_on_where_its_row_cannot_be_written(
    password: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(execute: Any, sql: str, *others: Any) -> Any:
        if re.match(r"(INSERT INTO|UPDATE) \W*dashboard_auditentry", sql):
            raise OperationalError("attempt to write a readonly database")
        return execute(sql, *others)

    with connection.execute_wrapper(refuse):
        answer = sign_in(password=password)
    assert is_in(answer) if password == RIGHT else answer.status_code == 200
    assert told() == []
    assert [line for line in caplog.messages if line.startswith("no audit row of sign_in.")]


class FromPeer(AsyncClient):
    """A browser behind a proxy at an address."""

    peer = ""

    async def request(self, **request: Any) -> Any:
        return await super().request(**request, state={"peer": self.peer})

    def ask(self, peer: str, **headers: str) -> Any:
        self.peer = peer
        return async_to_sync(self.get)("/system", headers=headers)


def test_a_proxy_at_a_named_address_signs_users_in(settings: Any) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    client = FromPeer()
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff, sre"}).status_code == 200
    assert users.role_of(User.objects.get(username="ada")) == "operator"
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff, sre"}).status_code == 200
    assert AuditEntry.objects.filter(event=AuditEntry.Event.SIGN_IN_SUCCEEDED).count() == 1
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff"}).status_code == 403


@pytest.mark.parametrize("peer", ["", "192.0.2.7", "::1", "no address"])
def test_nobody_else_is_believed(settings: Any, peer: str) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    said = {"X-User": "ada", "X-Groups": "sre", "X-Forwarded-For": "10.1.2.3"}
    answer = FromPeer().ask(peer, **said)
    assert answer.status_code == 302
    assert not User.objects.exists()


def test_a_proxy_names_no_local_user(settings: Any) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    User.objects.create_superuser("root", password="a password of root")
    answer = FromPeer().ask("10.1.2.3", **{"X-User": "root", "X-Groups": "sre"})
    assert answer.status_code == 403
    assert "is not of the proxy" in answer.content.decode()
