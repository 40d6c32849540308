"""`manage.py create_token NAME --role ROLE --expires 90d`: make a bearer token for the API."""

from __future__ import annotations

import re
import secrets
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta

from django.core.management.base import BaseCommand, CommandError
from django.db import IntegrityError
from django.utils import timezone

from dashboard.models import Token
from dashboard.system.tokens import token_digest

_LONGEST_NAME = 64
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d{1,6})(min|h|d)", re.ASCII)


class Command(BaseCommand):
    """Print a new token once; only its digest is kept."""

    help = "Make a bearer token for the API and print it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a name, a role and an end."""
        parser.add_argument("name", help="whose token it is")
        parser.add_argument("--role", choices=Token.Role.values, default=Token.Role.VIEWER)
        parser.add_argument(
            "--expires",
            metavar="WHEN",
            help="45min, 12h, 90d, or a date as 2027-01-31 (UTC); never without it",
        )

    def handle(
        self, *args: object, name: str, role: str, expires: str | None = None, **options: object
    ) -> None:
        """Make the token; raises CommandError for a name that is taken or cannot be kept, and for no end."""
        if not 1 <= len(name) <= _LONGEST_NAME or not name.strip() or not name.isprintable():
            raise CommandError(
                f"The name is to have 1 to {_LONGEST_NAME} printable characters: choose another name."
            )
        expires_at = None if expires is None else _expiry(expires, timezone.now())
        token = secrets.token_urlsafe(32)
        try:
            Token.objects.create(name=name, role=role, digest=token_digest(token), expires_at=expires_at)
        except IntegrityError as error:
            raise CommandError(f"A token named '{name}' exists; choose another name.") from error
        self.stdout.write(token)


def _expiry(text: str, now: datetime) -> datetime:
    """Return the instant that a duration or a date names; raises CommandError for none, or a past one."""
    try:
        ends = _instant(text.strip(), now)
    except (ValueError, OverflowError):
        ends = None
    if ends is None or ends <= now:
        raise CommandError(
            f"--expires {text[:40]!r} names no instant in the future: "
            "give 45min, 12h, 90d, or a date as 2027-01-31."
        )
    return ends


def _instant(text: str, now: datetime) -> datetime:
    if match := _DURATION.fullmatch(text):
        return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
