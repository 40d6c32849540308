"""Tokens of the API: created and revoked by page or command, stored as digests."""

import hashlib
import logging
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone

from dashboard.models import Token
from dashboard.runtime.database_errors import is_locked, log_line
from dashboard.runtime.write_transactions import lock_row, unwaiting_transaction
from dashboard.system import audit, cluster_limits
from dashboard.system.access import AccessRefused
from dashboard.system.audit import AuditedSubject, Event

#: `last_used_at` is written again only after this time: a read with a token costs no write.
_USE_NOTED_EVERY = timedelta(minutes=1)
LONGEST_NAME = 64
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d{1,6})(min|h|d)", re.ASCII)

log = logging.getLogger(__name__)


class TokenRefused(Exception):
    """A token may not be used now; the text is the reason as a sentence."""


def token_digest(token: str) -> str:
    """Return the stored digest of a token: its SHA-256, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(name: str, role: str, expires: str = "", clusters: Sequence[str] = ()) -> str:
    """Create a token and return it, once; "" means no expiry, and no clusters means all clusters.

    Raises `AccessRefused`.
    """
    if not 1 <= len(name) <= LONGEST_NAME or not name.strip() or not name.isprintable():
        raise AccessRefused(
            f"The name is to have 1 to {LONGEST_NAME} printable characters: choose another name.", "name"
        )
    if role not in Token.Role.values:
        raise AccessRefused(f"No such role: choose one of {', '.join(Token.Role.values)}.", "role")
    expires_at = _expiry(expires, timezone.now()) if expires else None
    grants = cluster_limits.checked_grants(clusters)
    if grants and role == Token.Role.INGEST:
        raise AccessRefused("A listener's token posts for the clusters of its queries.", "clusters")
    token = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            Token.objects.create(
                name=name, role=role, digest=token_digest(token), expires_at=expires_at, clusters=grants
            )
    except IntegrityError as error:
        raise AccessRefused(f"A token named '{name}' exists; choose another name.", "name") from error
    return token


def revoke_token(name: str) -> bool:
    """Revoke a token and record it; return False without a usable one of this name.

    The row stays, so that a client with the token is told the reason.
    """
    with transaction.atomic():
        row, now = lock_row(Token.objects.filter(name=name, revoked_at=None)), timezone.now()
        if row is None:
            return False
        Token.objects.filter(pk=row.pk).update(revoked_at=now)
        audit.record_change(
            Event.TOKEN_REVOKED, AuditedSubject("token", row.pk, name), {"revoked_at": (None, now)}
        )
        return True


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
    """Record the use of a token unless another writer has locked it: the next request records it then."""
    try:
        with unwaiting_transaction():
            Token.objects.filter(pk=row.pk).update(last_used_at=now)
    except DatabaseError as error:
        if is_locked(error):
            return
        log.warning("the last use of the token %s is not kept: %s", row.name, log_line(error))


def _expiry(text: str, now: datetime) -> datetime:
    """Return the instant in a duration or a date; raises `AccessRefused` for another text, or a past one."""
    try:
        ends = _instant(text.strip(), now)
    except (ValueError, OverflowError):
        ends = None
    if ends is None or ends <= now:
        raise AccessRefused(
            f"{text[:40]!r} names no instant in the future: give 45min, 12h, 90d, or a date as 2027-01-31.",
            "expires",
        )
    return ends


def _instant(text: str, now: datetime) -> datetime:
    if match := _DURATION.fullmatch(text):
        return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d at %H:%M} UTC"
