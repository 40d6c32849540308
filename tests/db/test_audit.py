"""Proves that an audit row shares the transaction of its change, in both directions: what is rolled back
leaves no row, and what cannot be recorded is not done; and that sign-ins are pruned, changes never."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from dashboard.alerts import channels, silences, validation
from dashboard.models import SIGN_INS, AuditEntry, Channel, Silence, Token
from dashboard.runtime import retention
from fenceline.limits import Retention
from tests.db import factories
from tests.db.conftest import NOW_MS, Take

pytestmark = pytest.mark.django_db(transaction=True)
Event = AuditEntry.Event
DRAFT = channels.ChannelDraft("pager", "webhook", "https://93.184.216.34/x")


class RolledBack(Exception):
    """Ends a transaction of a test."""


@pytest.fixture(autouse=True)
def without_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (channels, silences):
        monkeypatch.setattr(module, "notify_pages", lambda: None)


def silence() -> Silence:
    draft = silences.SilenceDraft(
        lambda: [("alertname", "=", "x")], "why", lambda: NOW_MS, lambda: NOW_MS + 60_000
    )
    return silences.create_silence(draft, by="ada", now_ms=NOW_MS)


def set_password(user: User) -> None:
    user.set_password("another one of it")
    user.save()


def changes() -> dict[str, Callable[[], object]]:
    """Return every change of channels, silences and users, each ready to be made."""
    row, made, user = channels.add(DRAFT, by="ada"), silence(), User.objects.create_user("grace")
    role = Group.objects.create(name="night shift")
    other = channels.ChannelDraft("chat", "webhook", "https://93.184.216.34/x")
    return {
        "add": lambda: channels.add(other, by="ada"),
        "change": lambda: channels.change(
            row, channels.ChannelDraft("night", "webhook", min_severity="critical")
        ),
        "rotate": lambda: channels.rotate_secret(row),
        "disable": lambda: channels.disable(row, by="ada"),
        "silence": silence,
        "end": lambda: silences.end_silence(made, by="ada", now_ms=NOW_MS + 1),
        "password": lambda: set_password(user),
        "new user": lambda: User.objects.create_user("linus"),
        "new token": lambda: Token.objects.create(name="ci", role="viewer", digest="d"),
        "give": lambda: user.groups.add(role),
        "delete user": user.delete,
        "delete": lambda: channels.delete(row),
    }


NAMES = (
    "add", "change", "rotate", "disable", "silence", "end", "password", "new user", "new token", "give",
    "delete user", "delete",
)  # fmt: skip


def state() -> Any:
    """Return all that these changes change."""
    return (
        Token.objects.count(),
        list(Channel.objects.order_by("pk").values_list("name", "secret", "enabled")),
        list(Silence.objects.order_by("pk").values_list("pk", "ends_ms")),
        list(User.objects.order_by("pk").values_list("username", "password", "groups")),
    )


@contextmanager
def rolled_back() -> Iterator[None]:
    """Run what is inside in a transaction that is rolled back."""
    with suppress(RolledBack), transaction.atomic():
        yield
        raise RolledBack


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_is_rolled_back_leaves_no_row(name: str) -> None:
    change = changes()[name]
    before, rows = state(), AuditEntry.objects.count()
    with rolled_back():
        change()
        assert AuditEntry.objects.count() == rows + 1
    assert (state(), AuditEntry.objects.count()) == (before, rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_cannot_be_recorded_is_not_made(name: str) -> None:
    change = changes()[name]
    before, rows = state(), AuditEntry.objects.count()

    def refuse(execute: Any, sql: str, *others: Any) -> Any:
        if re.match(r"INSERT INTO \W*dashboard_auditentry", sql):
            raise OperationalError("disk full")
        return execute(sql, *others)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError, match="disk full"):
        change()
    assert (state(), AuditEntry.objects.count()) == (before, rows)


def test_a_refused_change_leaves_no_row() -> None:
    row = channels.add(DRAFT, by="ada")
    channels.rotate_secret(row)
    rows = AuditEntry.objects.count()
    with pytest.raises(validation.Unfit):
        channels.rotate_secret(row)
    with pytest.raises(validation.Unfit):
        channels.add(DRAFT, by="ada")
    assert AuditEntry.objects.count() == rows


def test_one_transaction_of_one_user_is_one_row_and_the_next_is_another() -> None:
    user = User.objects.create_user("grace")
    roles = [Group.objects.create(name=name) for name in ("night shift", "day shift")]
    AuditEntry.objects.all().delete()
    with transaction.atomic():
        user.email = "g@example.org"
        user.save()
        user.groups.set(roles)
        user.groups.remove(roles[0])
    (row,) = AuditEntry.objects.all()
    assert row.changes == {"email": ["", "g@example.org"], "groups": [[], ["day shift"]]}
    user.groups.clear()
    last = AuditEntry.objects.latest("pk")
    assert (last.pk > row.pk, last.changes) == (True, {"groups": [["day shift"], []]})


def test_a_row_of_a_rolled_back_transaction_is_not_extended() -> None:
    user = User.objects.create_user("grace")
    role = Group.objects.create(name="night shift")
    AuditEntry.objects.all().delete()
    with rolled_back():
        user.groups.add(role)
    user.groups.add(role)
    assert [row.changes for row in AuditEntry.objects.all()] == [{"groups": [[], ["night shift"]]}]


def test_sign_ins_are_pruned_and_changes_never(take: Take) -> None:
    now = timezone.now()
    for event in Event:
        for days in (399, 401, 4_000):
            row = AuditEntry.objects.create(event=event, via="page")
            AuditEntry.objects.filter(pk=row.pk).update(at=now - timedelta(days=days))
    pruner = take(retention.NAME)
    factories.prune_all(pruner, Retention(), int(now.timestamp() * 1_000))
    left = list(AuditEntry.objects.values_list("event", "at"))
    changes = set(Event) - set(SIGN_INS)
    assert len(left) == len(SIGN_INS) + 3 * len(changes)
    oldest = now - timedelta(days=400)
    assert {event for event, at in left if at < oldest} == changes
