"""Limits of password guesses, and a log line and an audit row of each sign-in, failed attempt and sign-out.

django-axes counts in the database, with two limits of ours. A name is locked only for the guessing address,
so that nobody can lock other people out; after more failures an address is locked for all names. Passwords
are checked one at a time: hashing one takes a core for half a second, and twenty at once would take both
cores from all other requests.

An unknown name is not written: it may be a password that was typed into the wrong field. A sign-in continues
if its row cannot be written. Attempts during a lock leave no row, and rows of failures are bounded: guesses
from many addresses cannot fill the disk.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import F, Max, QuerySet, Sum
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from dashboard.models import AuditEntry
from dashboard.runtime.database_errors import log_line
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, ChangeOrigin, Changes, Event, Via
from dashboard.system.origin import client_address, limited_address

log = logging.getLogger(__name__)

#: Maximum waiting sign-ins of one address; more are refused immediately.
MOST_WAITING = 4
#: Maximum seconds that a sign-in waits for its turn.
LONGEST_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of sign-ins: its failures, of a name or of the whole address, and its end."""

    of_address: bool
    failures: int
    until: datetime


class SignInBusy(Exception):
    """Too many passwords wait to be checked."""


class AttemptHandler(AxesDatabaseHandler):  # type: ignore[misc]
    """Counts per name and address, and per address with a separate limit."""

    def get_failures(self, request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> int:
        """Return the failures of a name from an address; the limit if the address has reached its own."""
        of_name, of_address = map(_failures, self.get_user_attempts(request, credentials))
        is_full = of_address >= settings.SIGN_IN_FAILURES_OF_ADDRESS
        return settings.AXES_FAILURE_LIMIT if is_full else of_name

    def reset_user_attempts(self, request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> int:
        """Forget the failures of the signed-in name only, not of other names from the address."""
        of_name, _ = self.filter_user_attempts(request, credentials)
        return int(of_name.delete()[0])


def axes_address(request: HttpRequest) -> str | None:
    """Return the client's address for axes."""
    return limited_address(client_address(request))


def lock_of(request: HttpRequest, username: str) -> Lock:
    """Return the lock that refuses a name from a request's address."""
    since = timezone.now() - settings.AXES_COOLOFF_TIME
    rows = AccessAttempt.objects.filter(ip_address=axes_address(request), attempt_time__gte=since)
    of_address = _failures(rows) >= settings.SIGN_IN_FAILURES_OF_ADDRESS
    rows = rows if of_address else rows.filter(username=username)
    last = rows.aggregate(last=Max("attempt_time"))["last"] or timezone.now()
    return Lock(of_address, _failures(rows), last + settings.AXES_COOLOFF_TIME)


def unlock(name: str | None, address: str | None) -> int:
    """Forget the failures of a name, an address or both, by default all. Return their number."""
    wanted = {"username": name, "ip_address": limited_address(address or "")}
    rows = AccessAttempt.objects.filter(**{key: value for key, value in wanted.items() if value is not None})
    return int(rows.delete()[0])


def _failures(rows: QuerySet[AccessAttempt]) -> int:
    return rows.aggregate(failures=Sum("failures_since_start"))["failures"] or 0


_checking = threading.Semaphore(1)
_waiting: Counter[str | None] = Counter()
_waiting_guard = threading.Lock()


@contextmanager
def password_turn(address: str | None) -> Iterator[None]:
    """Wait for the turn to check a password, and hold it for the block; raises `SignInBusy`."""
    with _waiting_guard:
        if _waiting[address] >= MOST_WAITING:
            raise SignInBusy
        _waiting[address] += 1
    try:
        if not _checking.acquire(timeout=LONGEST_WAIT_S):
            raise SignInBusy
        try:
            yield
        finally:
            _checking.release()
    finally:
        with _waiting_guard:
            _waiting[address] -= 1
            if not _waiting[address]:
                del _waiting[address]


#: Failures of one name from one address within this time share one row with a count.
COUNTED_WITHIN = timedelta(hours=1)
#: Maximum rows of failures, and of locks, in that time; further failures share one row without a name.
MOST_ROWS = 100
_LONGEST_REASON = 300
_NOBODY = AuditedSubject("", None, "")


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: AbstractBaseUser, **_: object) -> None:
    log.info("%s has signed in from %s", user.get_username(), _place(request))
    _record(Event.SIGN_IN_SUCCEEDED, request, _subject(user))


@receiver(user_logged_out)
def _signed_out(request: HttpRequest, user: AbstractBaseUser | None, **_: object) -> None:
    if user is not None:
        log.info("%s has signed out from %s", user.get_username(), _place(request))
        _record(Event.SIGNED_OUT, request, _subject(user))


@receiver(user_login_failed)
def _failed(credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: object) -> None:
    """Axes has counted already: it was imported before."""
    failures = getattr(request, "axes_failures_since_start", None)
    if request is None or failures is None:
        # The attempt was refused during a lock, without a check of the password.
        return
    user = User.objects.filter(username=str(credentials.get("username", ""))).first()
    name, address = user.get_username() if user else "an unknown name", _place(request)
    log.warning("sign-in of %s from %s failed: wrong password", name, address)
    _record(Event.SIGN_IN_FAILED, request, _subject(user), is_bounded=True)
    if getattr(request, "axes_locked_out", False):
        log.warning("sign-in of %s is locked for %s: `manage.py unlock_sign_in` unlocks it", name, address)
        _record(Event.SIGN_IN_LOCKED, request, _subject(user), is_bounded=True)


def record_refusal(request: HttpRequest, provider: str, reason: str) -> None:
    """Record the refusal of a sign-in at an identity provider."""
    log.warning("sign-in at %s from %s refused: %s", provider, _place(request), reason)
    _record(
        Event.SIGN_IN_FAILED,
        request,
        _NOBODY,
        {"provider": (None, provider), "reason": (None, reason[:_LONGEST_REASON])},
        is_bounded=True,
    )


def _place(request: HttpRequest) -> str:
    return client_address(request) or "an unknown address"


def _subject(user: AbstractBaseUser | None) -> AuditedSubject:
    return _NOBODY if user is None else AuditedSubject("user", user.pk, user.get_username())


def _record(
    event: Event,
    request: HttpRequest,
    subject: AuditedSubject,
    changes: Changes | None = None,
    *,
    is_bounded: bool = False,
) -> None:
    """Save an audit row; a failing database prevents no sign-in or sign-out."""
    row = audit.audit_entry(event, subject, changes, by=audit.change_origin(request))
    try:
        with transaction.atomic():
            _count(row) if is_bounded else row.save()
    except (DatabaseError, InterfaceError) as error:
        log.error("no audit row of %s %s: %s", event, subject.name, log_line(error))


def _count(row: AuditEntry) -> None:
    """Save a row, or raise the count of its existing row."""
    recent = AuditEntry.objects.filter(event=row.event, at__gt=timezone.now() - COUNTED_WITHIN)
    if _raise_count(recent, row):
        return
    # Providers' refusals have many reasons: they must not crowd out names whose password is guessed.
    alike = recent.exclude(changes={}) if row.changes else recent.filter(changes={})
    if alike.count() >= MOST_ROWS:
        row = audit.audit_entry(Event(row.event), _NOBODY, by=ChangeOrigin("", Via.PAGE, None))
        if _raise_count(recent, row):
            return
    row.save()


def _raise_count(recent: Any, row: AuditEntry) -> bool:
    """Raise the count of a recent row that differs only in its time; return False without one."""
    same = recent.filter(
        actor=row.actor, subject_name=row.subject_name, address=row.address, changes=row.changes
    )
    earlier = same.order_by("pk").first()
    return earlier is not None and bool(AuditEntry.objects.filter(pk=earlier.pk).update(count=F("count") + 1))
