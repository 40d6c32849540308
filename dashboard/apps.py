"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"

    def ready(self) -> None:
        """Write a line for each sign-in."""
        from dashboard import sign_in_log  # noqa: F401 - it listens to Django's signals
