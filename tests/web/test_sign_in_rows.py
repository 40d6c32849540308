"""Proves that sign-ins through the real page leave rows: who, from where, whether it succeeded; that no name
is kept that nobody has; that guessing fills no table; and that a sign-in does not fail for want of a row."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from dashboard.models import AuditEntry
from dashboard.system.sign_in import limits as sign_in_limits
from tests.web.test_sign_in import ELSEWHERE, HERE, OF_NAME, RIGHT, is_in, lock, sign_in

pytestmark = pytest.mark.django_db
Event = AuditEntry.Event


@pytest.fixture(autouse=True)
def nothing_before(user: User) -> None:
    AuditEntry.objects.all().delete()


def told() -> list[tuple[str, str, str, str | None, int]]:
    rows = AuditEntry.objects.order_by("pk")
    return [(row.event, row.actor, row.subject_name, row.address, row.count) for row in rows]


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


def test_failures_are_one_row_with_a_count_and_a_lock_is_its_own() -> None:
    lock()
    sign_in(password=RIGHT)
    assert told() == [
        ("sign_in.failed", "", "operator", HERE, OF_NAME),
        ("sign_in.locked", "", "operator", HERE, 1),
    ]


def test_a_later_failure_is_another_row() -> None:
    sign_in()
    AuditEntry.objects.update(at=timezone.now() - timedelta(minutes=61))
    sign_in()
    sign_in(address=ELSEWHERE)
    assert [each[3:] for each in told()] == [(HERE, 1), (HERE, 1), (ELSEWHERE, 1)]


def test_a_name_that_nobody_has_is_not_kept() -> None:
    sign_in("my secret typed into the wrong field")
    sign_in("another secret")
    assert told() == [("sign_in.failed", "", "", HERE, 2)]
    assert AuditEntry.objects.get().changes == {}


def test_who_guesses_from_many_addresses_fills_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_limits, "MOST_ROWS", 10)
    for number in range(30):
        sign_in(address=f"198.51.100.{number}")
    rows = AuditEntry.objects.filter(event=Event.SIGN_IN_FAILED)
    assert rows.count() == 11
    rest = rows.get(address=None)
    assert (rest.subject_name, rest.count) == ("", 20)
    assert sum(rows.values_list("count", flat=True)) == 30


def test_what_is_refused_while_locked_leaves_no_row() -> None:
    lock()
    before = told()
    for _ in range(5):
        assert sign_in().status_code == 429
    assert told() == before


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
