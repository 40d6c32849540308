"""`manage.py create_token NAME --role ROLE --expires 90d`: make a bearer token for the API."""

from argparse import ArgumentParser
from collections.abc import Sequence

from django.core.management.base import BaseCommand, CommandError

from dashboard.models import Token
from dashboard.system import tokens
from dashboard.system.access import AccessRefused


class Command(BaseCommand):
    """Print a new token once; only its digest is stored."""

    help = "Make a bearer token for the API and print it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a name, a role and an expiry."""
        parser.add_argument("name", help="whose token it is")
        parser.add_argument("--role", choices=Token.Role.values, default=Token.Role.VIEWER)
        parser.add_argument(
            "--cluster",
            action="append",
            default=[],
            help="a cluster that it may see, or CLUSTER=ROLE, several times for several; all without it",
        )
        parser.add_argument(
            "--expires",
            metavar="WHEN",
            help="45min, 12h, 90d, or a date as 2027-01-31 (UTC); never without it",
        )

    def handle(
        self,
        *args: object,
        name: str,
        role: str,
        cluster: Sequence[str] = (),
        expires: str | None = None,
        **options: object,
    ) -> None:
        """Make the token; raises CommandError for a name that is taken or unusable, and without an expiry."""
        try:
            # An empty WHEN is a mistake, such as an unset variable.
            token = tokens.create_token(name, role, "" if expires is None else expires or " ", cluster)
        except AccessRefused as error:
            option = "--expires " if error.field == "expires" else ""
            raise CommandError(f"{option}{error}") from error
        self.stdout.write(token)
