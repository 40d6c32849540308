"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"

    def ready(self) -> None:
        """Connect what follows Django's signals."""
        from dashboard.system import (
            audit_signals,  # noqa: F401
            live_sessions,  # noqa: F401
            sign_in_log,  # noqa: F401
        )
