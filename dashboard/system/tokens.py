"""Tokens of the API: created by `manage.py create_token`, kept as digests."""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone

from dashboard.models import Token
from dashboard.runtime.database_errors import is_locked, log_line
from dashboard.runtime.write_transactions import unwaiting_transaction

#: `last_used_at` is written again only after this time: reading with a token costs no write.
_USE_NOTED_EVERY = timedelta(minutes=1)

log = logging.getLogger(__name__)


class TokenRefused(Exception):
    """A token may not be used now; the text is the reason as a sentence."""


def token_digest(token: str) -> str:
    """Return the stored digest of a token: its SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer_token(request: HttpRequest) -> Token:
    """Return the token of a request, of any role; raises `TokenRefused`."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise TokenRefused("No token was sent.")
    return usable_token(token.strip())


def usable_token(token: str) -> Token:
    """Return a token's row, of any role, and record its use; raises `TokenRefused`."""
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
    """Record the use of a token without waiting for other writers: the next request records it then."""
    try:
        with unwaiting_transaction():
            Token.objects.filter(pk=row.pk).update(last_used_at=now)
    except DatabaseError as error:
        if is_locked(error):
            return
        log.warning("the last use of the token %s is not kept: %s", row.name, log_line(error))


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d at %H:%M} UTC"
