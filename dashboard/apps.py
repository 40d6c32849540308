"""The Django application."""

from __future__ import annotations

import gc

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"

    def ready(self) -> None:
        """Connect what follows Django's signals; leave what is imported out of garbage collections."""
        from dashboard.system import (
            audit_signals,  # noqa: F401
            live_sessions,  # noqa: F401
            sign_in_log,  # noqa: F401
        )

        gc.freeze()
        gc.enable()
