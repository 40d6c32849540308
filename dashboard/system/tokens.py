"""Tokens of the API: made by `manage.py create_token`, kept as digests."""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone

from dashboard.models import Token
from dashboard.runtime.database_errors import log_line

#: `last_used_at` is this old before it is written again: reading with a token costs no write.
_USE_NOTED_EVERY = timedelta(minutes=1)

log = logging.getLogger(__name__)


class TokenRefused(Exception):
    """No token that may be used now; the text is a sentence that gives the reason."""


def token_digest(token: str) -> str:
    """Return what is kept of a token: its SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer_token(request: HttpRequest) -> Token:
    """Return the token that a request carries, of whatever role; raises `TokenRefused`."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise TokenRefused("No token was sent.")
    return usable_token(token.strip())


def usable_token(token: str) -> Token:
    """Return a token's row, of whatever role, and note its use; raises `TokenRefused`."""
    row, now = Token.objects.filter(digest=token_digest(token)).first(), timezone.now()
    if row is None:
        raise TokenRefused("No such token is known.")
    if row.revoked_at is not None:
        raise TokenRefused(f"The token “{row.name}” was revoked on {_minute(row.revoked_at)}.")
    if row.expires_at is not None and row.expires_at <= now:
        raise TokenRefused(f"The token “{row.name}” expired on {_minute(row.expires_at)}.")
    if row.last_used_at is None or row.last_used_at <= now - _USE_NOTED_EVERY:
        _note_use(row, now)
    return row


def _note_use(row: Token, now: datetime) -> None:
    """Keep when a token was used; a database that cannot be written does not keep anybody from reading."""
    try:
        Token.objects.filter(pk=row.pk).update(last_used_at=now)
    except DatabaseError as error:
        log.warning("the last use of the token %s is not kept: %s", row.name, log_line(error))


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d at %H:%M} UTC"
