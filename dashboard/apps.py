"""The Django application."""

import gc

from django.apps import AppConfig
from django.conf import settings

from fenceline.kafka.applications import name_applications


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"

    def ready(self) -> None:
        """Connect Django's signals, and name applications by the configuration.

        Exclude imported objects from garbage collections.
        """
        from dashboard.runtime import write_transactions  # noqa: F401
        from dashboard.system import (
            audit,  # noqa: F401
            live_sessions,  # noqa: F401
        )
        from dashboard.system.sign_in import limits  # noqa: F401

        name_applications(settings.FENCELINE.owners)
        gc.freeze()
        gc.enable()
