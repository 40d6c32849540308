"""Limits of password guesses: django-axes counts in the database, with two limits of ours.

A name is locked only for the guessing address, so that nobody can lock other people out; after more failures
an address is locked for all names. Passwords are checked one at a time: hashing one takes a core for half a
second, and twenty at once would take both cores from all other requests.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import Max, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from dashboard.system.client_address import client_address, limited_address

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
