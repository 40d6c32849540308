"""Proves what headers tell browsers: that nothing but a static file is kept, which features are denied, https
alone behind TLS; that a Host header which ALLOWED_HOSTS does not name is refused everywhere, with one log
line; and which settings mean a proxy."""

import logging
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client

from dashboard.runtime.logs import Repeats
from tests.settings_process import settings_values
from tests.web import roles

pytestmark = pytest.mark.django_db

PATHS = (
    "/", "/transactions", "/actions", "/channels/new", "/silences/new", "/system", "/nowhere", "/login/",
    "/healthz", "/readyz", "/metrics", "/admin/", "/ingest/v1/progress", "/api", "/api/v1/docs",
    "/api/v1/openapi.json", "/api/v1/transactions", "/api/v1/channels", "/api/nowhere",
)  # fmt: skip
ANSWERS = ("/login/", "/", "/nowhere", "/healthz", "/api/v1/clusters", "/static/css/base.css", "/favicon.ico")


def test_nothing_is_kept(client: Client, user: User) -> None:
    for asker, path, method in product((client, roles.client_with_role("admin")), PATHS, ("get", "post")):
        answer = getattr(asker, method)(path)
        assert "no-store" in answer.headers["Cache-Control"], (path, method, answer.status_code)


def test_nor_is_an_error(user: User) -> None:
    page = Client(raise_request_exception=False)
    page.force_login(user)

    def refuse(*_: object) -> None:
        raise OperationalError("database is locked")

    with connection.execute_wrapper(refuse):
        assert page.get("/").headers["Cache-Control"] == "no-store"
    assert Client(enforce_csrf_checks=True).post("/login/").headers["Cache-Control"] == "no-store"


def test_static_files_are_kept(client: Client) -> None:
    assert "max-age=3600" in client.get("/static/css/base.css").headers["Cache-Control"]


class TestHost:
    @pytest.mark.parametrize(
        "path", ["/", "/login/", "/healthz", "/metrics", "/api/v1/transactions", "/nowhere"]
    )
    def test_an_unknown_one_is_one_line(
        self, client: Client, caplog: pytest.LogCaptureFixture, path: str
    ) -> None:
        answer = client.get(path, HTTP_HOST="evil.example", REMOTE_ADDR="203.0.113.9")
        assert answer.status_code == 400
        assert "Content-Security-Policy" in answer.headers
        assert len(caplog.records) == 1, caplog.text
        (record,) = caplog.records
        assert "203.0.113.9" in record.getMessage()
        assert "'evil.example'" in record.getMessage()
        assert record.exc_info is None

    @pytest.mark.parametrize("host", ["", "a b", "[::1", "e" * 10_000, "evil.example:x", "a\nb"])
    def test_no_host_breaks_anything(
        self, client: Client, caplog: pytest.LogCaptureFixture, host: str
    ) -> None:
        assert client.get("/", HTTP_HOST=host).status_code == 400
        (record,) = caplog.records
        assert len(record.getMessage()) < 400
        assert "\n" not in record.getMessage()

    def test_the_api_answers_with_a_problem(self, client: Client) -> None:
        answer = client.get("/api/v1/transactions", HTTP_HOST="evil.example")
        assert answer.headers["Content-Type"].startswith("application/problem+json")

    def test_many_are_one_line_a_minute(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        for number in range(5):
            client.get("/", HTTP_HOST=f"evil-{number}.example", REMOTE_ADDR=f"203.0.113.{number}")
        repeats = Repeats(lambda: 0.0)
        assert [len(list(repeats.due_records(record))) for record in caplog.records] == [1, 0, 0, 0, 0]
        assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_what_only_a_proxy_needs_means_a_proxy() -> None:
    unset = dict.fromkeys(
        ("ALLOWED_HOSTS", "FORWARDED_ALLOW_IPS", "CSRF_TRUSTED_ORIGINS", "SECURE_COOKIES"), ""
    )
    direct = ({}, {"ALLOWED_HOSTS": "127.0.0.1,localhost"}, {"SECURE_COOKIES": "0"})
    proxied = (
        {"ALLOWED_HOSTS": "127.0.0.1,fenceline.example"},
        {"FORWARDED_ALLOW_IPS": "127.0.0.1"},
        {"CSRF_TRUSTED_ORIGINS": "https://fenceline.example"},
        {"SECURE_COOKIES": "1"},
    )
    found = settings_values("IS_BEHIND_PROXY", *(unset | variables for variables in (*direct, *proxied)))
    assert found == [False] * len(direct) + [True] * len(proxied)


def test_every_answer_denies_what_no_page_uses() -> None:
    viewer = roles.client_with_role("viewer")
    for path in ANSWERS:
        policy = viewer.get(path)["Permissions-Policy"]
        assert {"camera=()", "geolocation=()", "microphone=()", "payment=()"} <= set(policy.split(", "))
        assert "clipboard-write" not in policy


def test_https_alone_is_asked_for_behind_tls_and_nowhere_else(settings: Any) -> None:
    header, asked = "Strict-Transport-Security", "max-age=31536000"
    assert [Client().get(path, secure=True).get(header) for path in ANSWERS] == [None] * len(ANSWERS)
    settings.SECURE_HSTS_SECONDS = 31_536_000
    assert [Client().get(path, secure=True).get(header) for path in ANSWERS] == [asked] * len(ANSWERS)
    assert [Client().get(path).get(header) for path in ANSWERS] == [None] * len(ANSWERS)


def test_a_deployment_says_that_it_is_behind_tls_by_secure_cookies() -> None:
    found = settings_values("SECURE_HSTS_SECONDS", *({"SECURE_COOKIES": value} for value in ("", "0", "1")))
    assert found == [0, 0, 31_536_000]


def test_browsers_that_ask_for_the_usual_icon_get_it() -> None:
    answer = Client().get("/favicon.ico")
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/svg+xml")
    assert b"<svg" in answer.content
