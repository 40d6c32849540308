"""`manage.py list_tokens`: the bearer tokens, and their last uses."""

from datetime import datetime

from django.core.management.base import BaseCommand
from django.utils import timezone

from dashboard.models import Token

_HEADINGS = ("NAME", "ROLE", "STATE", "CREATED", "EXPIRES", "LAST USED", "CLUSTERS")


class Command(BaseCommand):
    """One line for each token, without its secret."""

    help = (
        "List the bearer tokens: name, role, state, made, expires, last used (UTC, to the minute), clusters."
    )

    def handle(self, *args: object, **options: object) -> None:
        """Print a table, by name."""
        now = timezone.now()
        rows = [_line(row, now) for row in Token.objects.order_by("name")]
        if not rows:
            self.stdout.write("There is no token: `manage.py create_token NAME` makes one.")
            return
        lines = [_HEADINGS, *rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        for line in lines:
            self.stdout.write(
                "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            )


def _line(row: Token, now: datetime) -> tuple[str, ...]:
    moments = (row.created_at, row.expires_at, row.last_used_at)
    minutes = (f"{moment:%Y-%m-%dT%H:%MZ}" if moment else "never" for moment in moments)
    return (row.name, row.role, row.state(now), *minutes, ",".join(row.clusters) or "all")
