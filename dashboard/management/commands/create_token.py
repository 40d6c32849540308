"""`manage.py create_token NAME --role ROLE`: make a bearer token for the API."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import IntegrityError

from dashboard.api.auth import digest
from dashboard.models import Token


class Command(BaseCommand):
    """Print a new token once; only its digest is kept."""

    help = "Make a bearer token for the API and print it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a name and a role."""
        parser.add_argument("name", help="whose token it is")
        parser.add_argument("--role", choices=Token.Role.values, default=Token.Role.VIEWER)

    def handle(self, *args: object, name: str, role: str, **options: object) -> None:
        """Make the token; a name that is taken is refused."""
        token = secrets.token_urlsafe(32)
        try:
            Token.objects.create(name=name, role=role, digest=digest(token))
        except IntegrityError as error:
            raise CommandError(f"A token named '{name}' exists; choose another name.") from error
        self.stdout.write(token)
