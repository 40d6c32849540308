"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"

    def ready(self) -> None:
        """Connect what follows Django's signals."""
        from dashboard import live_sessions, sign_in_log  # noqa: F401
