"""A viewer of what a module's `prod` holds."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.models import Cluster
from tests.api.asking import Ask


@pytest.fixture
def ask(prod: Cluster) -> Ask:
    """Ask the API as a viewer; returns the decoded body, of a problem where the status says so."""
    client = Client()
    client.force_login(User.objects.create_user("viewer"))

    def ask(path: str, status: int = 200) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == status, answer.content
        kind = "application/json" if status == 200 else "application/problem+json"
        assert answer["Content-Type"].startswith(kind)
        return answer.json()

    return ask
