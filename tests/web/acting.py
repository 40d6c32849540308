"""An operator before the pages of acting, and what would go to a worker."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.actions import execute
from dashboard.models import Action, Cluster
from tests.web import roles


def read(page: Client, url: str, status: int = 200) -> str:
    """Return what a page says, in one line."""
    return html.unescape(roles.read(page, url, status))


def text(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


@pytest.fixture
def operator(user: User, prod: Cluster) -> User:
    roles.give(user, "operator")
    return user


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have gone to a worker: no Redis runs here."""
    found: list[Any] = []
    monkeypatch.setattr(execute.app, "send_task", lambda *args, **options: found.append((args, options)))
    return found


def confirmed(page: Client, action: Action, **fields: str) -> Any:
    said = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4411"}
    return page.post(f"/actions/{action.pk}", said | fields)
