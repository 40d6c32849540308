"""Proves who gets in: sign-in on every page, the policy on every route, health for all, no traces; and that a
page without its database says so in plain words, with one line in the log.

And what headers tell browsers: that nothing but a static file is kept, which features are denied, https
alone behind TLS; that a Host header which ALLOWED_HOSTS does not name is refused everywhere, with one log
line; and which settings mean a proxy.
"""

import json
import logging
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from dashboard.runtime.logs import Repeats
from tests.cases import cases
from tests.settings_process import settings_values
from tests.web import factories, roles, scenarios, series

pytestmark = pytest.mark.django_db
POLICED = (
    "/", "/history", "/recoveries/prod/1", "/login/", "/healthz", "/readyz", "/nowhere", "/api/v1/docs",
    "/api/v1/transactions", "/admin/login/", "/static/css/base.css",
)  # fmt: skip
CSP = "default-src 'none'; script-src 'self'; style-src 'self'"


def test_a_stranger_is_sent_to_sign_in_and_back(client: Client) -> None:
    answer = client.get("/groups/prod/billing?q=1")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/groups/prod/billing%3Fq%3D1")


def test_sign_in_and_out(client: Client, user: User) -> None:
    wrong = client.post("/login/", {"username": "operator", "password": "no"})
    assert "do not match" in wrong.content.decode()
    right = client.post(
        "/login/?next=/system", {"username": "operator", "password": "let me in, please", "next": "/system"}
    )
    assert right["Location"] == "/system"
    assert client.get("/system").status_code == 200
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/system").status_code == 302


def test_sign_in_leads_to_no_other_host(client: Client, user: User) -> None:
    words = {"username": "operator", "password": "let me in, please", "next": "https://example.org/"}
    assert client.post("/login/", words)["Location"] == "/"


def test_every_route_carries_the_policy(client: Client, user: User) -> None:
    for signed_in, url in product((False, True), POLICED):
        if signed_in:
            client.force_login(user)
        policy = client.get(url).headers["Content-Security-Policy"]
        assert policy.startswith(CSP), url
        assert "unsafe" not in policy, url


def test_admin_shows_rows_and_changes_none(root: Client) -> None:
    row = factories.transaction(factories.cluster(), b"<script>alert(1)</script>")
    scenarios.busy_partitions(factories.cluster())
    scenarios.busy_queries(factories.cluster())
    factories.flink_job(factories.cluster())
    series.hour(factories.cluster())
    for model in apps.get_app_config("dashboard").get_models():
        if admin.site.is_registered(model):
            assert root.get(f"/admin/dashboard/{model._meta.model_name}/").status_code == 200, model
    shown = root.get(f"/admin/dashboard/transaction/{row.pk}/change/")
    assert shown.status_code == 200
    assert b"<script>alert" not in shown.content
    assert root.post(f"/admin/dashboard/transaction/{row.pk}/change/", {"state": "Empty"}).status_code == 403
    assert root.post(f"/admin/dashboard/transaction/{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_healthz_looks_at_nothing(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def test_readyz_names_what_is_not_ready(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    said = json.loads(answer.content)
    assert answer.status_code == 503
    assert said["database"] is True
    assert said["migrations"] is True
    assert "refused" in said["redis"]
    assert "Traceback" not in answer.content.decode()


def test_readyz_names_the_way_on_for_a_database_from_before_the_first_release(client: Client) -> None:
    MigrationRecorder.Migration.objects.filter(app="dashboard").delete()
    MigrationRecorder.Migration.objects.create(app="dashboard", name="0001_initial")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "before 0.1.0" in json.loads(answer.content)["migrations"]


def test_readyz_survives_a_database_that_does_not_answer(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    def refuse(*_: object) -> None:
        raise OperationalError("unable to open\ndatabase file")

    with connection.execute_wrapper(refuse):
        answer = client.get("/readyz")
    assert answer.status_code == 503
    assert json.loads(answer.content)["database"] == "unable to open database file"


def test_an_error_is_told_without_its_trace(page: Client) -> None:
    page.raise_request_exception = False

    def refuse(*_: object) -> None:
        raise RuntimeError("secret detail")

    with connection.execute_wrapper(refuse):
        answer = page.get("/")
    text = answer.content.decode()
    assert answer.status_code == 500
    assert "This page failed" in text
    assert "secret detail" not in text
    assert "Traceback" not in text


def test_a_page_that_is_not_there_says_so(page: Client) -> None:
    answer = page.get("/nowhere")
    assert answer.status_code == 404
    assert "Page not found" in answer.content.decode()


def test_what_is_not_known_is_said_by_its_name(page: Client) -> None:
    assert "No rule is called “never-made”." in page.get("/rules/never-made").content.decode()


def test_a_form_without_its_token_is_refused_in_words(user: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/login/", {"username": "operator", "password": "x"})
    assert answer.status_code == 403
    assert "could not be verified" in answer.content.decode()


def test_templates_exist_for_what_django_answers_by_itself() -> None:
    names = {path.name for path in (Path(__file__).parents[2] / "templates").glob("4*.html")}
    assert {"400.html", "403.html", "403_csrf.html", "404.html"} <= names


def refuse(*_: Any) -> Any:
    raise OperationalError("unable to open database file")


@cases("/", "/transactions", "/transactions/prod/a", "/events", "/system", "/admin/")
def test_every_page_says_that_the_database_is_gone(caplog: pytest.LogCaptureFixture, path: str) -> None:
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
    @cases("/", "/login/", "/healthz", "/metrics", "/api/v1/transactions", "/nowhere")
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
