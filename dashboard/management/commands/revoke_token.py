"""`manage.py revoke_token NAME`: revoke a token."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from dashboard.models import Token
from dashboard.system.tokens import revoke_token


class Command(BaseCommand):
    """The row stays, so that a client with the token is told the reason; the admin deletes it."""

    help = "Revoke a bearer token: it is refused from now on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the token's name."""
        parser.add_argument("name", help="as `manage.py list_tokens` lists it")

    def handle(self, *args: object, name: str, **options: object) -> None:
        """Revoke it; a revoked token keeps its first revocation."""
        if revoke_token(name):
            self.stdout.write(f"The token '{name}' is revoked.")
        elif Token.objects.filter(name=name).exists():
            self.stdout.write(f"The token '{name}' was revoked already.")
        else:
            raise CommandError(f"No token is named '{name}': `manage.py list_tokens` lists them.")
