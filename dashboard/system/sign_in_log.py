"""Who has signed in, who tried and who left: a log line each.

A name that nobody has is not written: it may be a password that was typed into the wrong field.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from dashboard.system.client_address import client_address

log = logging.getLogger(__name__)
_UNKNOWN = "an unknown name"


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: AbstractBaseUser, **_: object) -> None:
    log.info("%s has signed in from %s", user.get_username(), _place(request))


@receiver(user_logged_out)
def _signed_out(request: HttpRequest, user: AbstractBaseUser | None, **_: object) -> None:
    if user is not None:
        log.info("%s has signed out from %s", user.get_username(), _place(request))


@receiver(user_login_failed)
def _failed(credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: object) -> None:
    """Axes has counted by now: it was imported before."""
    failures = getattr(request, "axes_failures_since_start", None)
    if request is None or failures is None:
        # Refused while it is locked: no password was checked.
        return
    name, address = _known_name(str(credentials.get("username", ""))), _place(request)
    log.warning("sign-in of %s from %s failed: wrong password", name, address)
    if getattr(request, "axes_locked_out", False):
        log.warning("sign-in of %s is locked for %s: `manage.py unlock_sign_in` unlocks it", name, address)


def _place(request: HttpRequest) -> str:
    return client_address(request) or "an unknown address"


def _known_name(name: str) -> str:
    return name if User.objects.filter(username=name).exists() else _UNKNOWN
