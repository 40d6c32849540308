"""Proves that a page without its database says so in plain words, with one line in the log."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client

pytestmark = pytest.mark.django_db


def refuse(*_: Any) -> Any:
    raise OperationalError("unable to open database file")


@pytest.mark.parametrize(
    "path", ["/", "/transactions", "/transactions/prod/a", "/events", "/system", "/admin/"]
)
def test_every_page_says_that_the_database_is_gone(path: str, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("admin"))
    with connection.execute_wrapper(refuse):
        answer = client.get(path)
    assert answer.status_code == 503
    assert "The database cannot be reached" in answer.content.decode()
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    (line,) = [record for record in caplog.records if record.name == "dashboard.web.server.middleware"]
    assert line.exc_info is None
    assert path in line.getMessage()
