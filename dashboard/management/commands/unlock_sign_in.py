"""`manage.py unlock_sign_in NAME --address ADDRESS`: allow sign-ins again."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from dashboard.system.origin import plain_address
from dashboard.system.sign_in import limits as sign_in_limits
from fenceline.formatting import count_noun


class Command(BaseCommand):
    """Forget wrong passwords before their 15 minutes are over."""

    help = "Unlock the sign-in of a name, of an address, of a name from an address, or of all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a name, an address, or all."""
        parser.add_argument("name", nargs="?", help="from all addresses, without --address")
        parser.add_argument("--address", help="for all names, without a name")
        parser.add_argument("--all", action="store_true", help="every name and address")

    def handle(self, *args: object, **options: str | bool | None) -> None:
        """Unlock the given names or addresses; nothing locked is no error."""
        name, address = options["name"], options["address"]
        if not (name or address or options["all"]):
            raise CommandError("Give a name, --address or --all.")
        if address and not plain_address(str(address)):
            raise CommandError(f"{address!r} is no IP address.")
        forgotten = _unlock(str(name or ""), plain_address(str(address or "")))
        what = f"{count_noun(forgotten, 'count')} of wrong passwords"
        self.stdout.write(f"Sign-in is unlocked: forgot {what}." if forgotten else "Nothing was locked.")


def _unlock(name: str, address: str) -> int:
    """Unlock and record it; return the number of forgotten counts."""
    subject = AuditedSubject("user", None, name) if name else AuditedSubject("address", None, address)
    with transaction.atomic():
        forgotten = sign_in_limits.unlock(name or None, address or None)
        if forgotten:
            of_name = {"address": (address, None)} if name and address else {}
            audit.record_change(Event.SIGN_IN_UNLOCKED, subject, of_name)
    return forgotten
