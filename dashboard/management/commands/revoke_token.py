"""`manage.py revoke_token NAME`: let nobody use a token any more."""

from __future__ import annotations

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from dashboard.models import Token
from dashboard.runtime.write_transactions import lock_row
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event


class Command(BaseCommand):
    """The row stays, so that whoever sends the token is given the reason; the admin deletes it."""

    help = "Revoke a bearer token: it is refused from now on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the token's name."""
        parser.add_argument("name", help="as `manage.py list_tokens` lists it")

    def handle(self, *args: object, name: str, **options: object) -> None:
        """Revoke it; one that is revoked already stays revoked since then."""
        if _revoke(name):
            self.stdout.write(f"The token '{name}' is revoked.")
        elif Token.objects.filter(name=name).exists():
            self.stdout.write(f"The token '{name}' was revoked already.")
        else:
            raise CommandError(f"No token is named '{name}': `manage.py list_tokens` lists them.")


def _revoke(name: str) -> bool:
    """Revoke a token and record it; False where none of this name may be used."""
    with transaction.atomic():
        row, now = lock_row(Token.objects.filter(name=name, revoked_at=None)), timezone.now()
        if row is None:
            return False
        Token.objects.filter(pk=row.pk).update(revoked_at=now)
        audit.record_change(
            Event.TOKEN_REVOKED, AuditedSubject("token", row.pk, name), {"revoked_at": (None, now)}
        )
        return True
