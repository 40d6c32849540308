"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Fenceline's one Django application."""

    name = "dashboard"
