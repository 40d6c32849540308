"""Proves what every answer tells browsers: denied features, https alone behind TLS, and an icon."""

from typing import Any

import pytest
from django.test import Client

from tests.settings_process import settings_values
from tests.web import roles

pytestmark = pytest.mark.django_db
PATHS = ("/login/", "/", "/nowhere", "/healthz", "/api/v1/clusters", "/static/css/base.css", "/favicon.ico")


def test_every_answer_denies_what_no_page_uses() -> None:
    viewer = roles.client_with_role("viewer")
    for path in PATHS:
        policy = viewer.get(path)["Permissions-Policy"]
        assert {"camera=()", "geolocation=()", "microphone=()", "payment=()"} <= set(policy.split(", "))
        assert "clipboard-write" not in policy


def test_https_alone_is_asked_for_behind_tls_and_nowhere_else(settings: Any) -> None:
    header, asked = "Strict-Transport-Security", "max-age=31536000"
    assert [Client().get(path, secure=True).get(header) for path in PATHS] == [None] * len(PATHS)
    settings.SECURE_HSTS_SECONDS = 31_536_000
    assert [Client().get(path, secure=True).get(header) for path in PATHS] == [asked] * len(PATHS)
    assert [Client().get(path).get(header) for path in PATHS] == [None] * len(PATHS)


def test_a_deployment_says_that_it_is_behind_tls_by_secure_cookies() -> None:
    found = settings_values("SECURE_HSTS_SECONDS", *({"SECURE_COOKIES": value} for value in ("", "0", "1")))
    assert found == [0, 0, 31_536_000]


def test_browsers_that_ask_for_the_usual_icon_get_it() -> None:
    answer = Client().get("/favicon.ico")
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/svg+xml")
    assert b"<svg" in answer.content
