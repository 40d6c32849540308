"""Django's `manage.py createsuperuser`; without prompts it also checks the password."""

import os
from typing import Any

from django.contrib.auth.management.commands import createsuperuser
from django.core.management.base import CommandError

from dashboard.system import access

_VARIABLE = "DJANGO_SUPERUSER_PASSWORD"


class Command(createsuperuser.Command):
    """With prompts, Django checks the password itself."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        """Make a superuser; raises CommandError for a weak password."""
        password = os.environ.get(_VARIABLE, "")
        if not options["interactive"] and password:
            try:
                access.check_password(password, options.get("username") or "")
            except ValueError as error:
                raise CommandError(f"{_VARIABLE} cannot be used. {error}") from error
        return super().handle(*args, **options)
