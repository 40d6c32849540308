"""For the pages of actions: their text, a confirmation, and what would be sent to a worker."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from dashboard.actions import execute
from dashboard.models import Action
from tests.web import roles


def page_text(page: Client, url: str, status: int = 200) -> str:
    """Return a page in one line, without entities."""
    return html.unescape(roles.page_html(page, url, status))


def text_of(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been sent to a worker: no Redis runs here."""
    found: list[Any] = []
    monkeypatch.setattr(execute.app, "send_task", lambda *args, **options: found.append((args, options)))
    return found


def confirm(page: Client, action: Action, **fields: str) -> Any:
    said = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4411"}
    return page.post(f"/actions/{action.pk}", said | fields)
