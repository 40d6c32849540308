"""Proves that each failure is one clear line and exit status 2, whatever answers at a URL."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard.models import Cluster
from tests.client.conftest import Fenceline
from tests.receivers import Authority, Manner, Receiver, answer, hold, raw
from tests.web import factories

SECRET = "secret-of-a-test"
LIST = {"items": [], "next": None, "as_of": None, "gaps": []}


def as_json(document: Any, status: int = 200, **headers: str) -> Manner:
    return answer(status, json.dumps(document).encode(), content_type="application/json", **headers)


@pytest.fixture(autouse=True)
def token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each command send SECRET."""
    monkeypatch.setenv("FENCELINE_TOKEN", SECRET)


@pytest.fixture
def asked(fenceline: Fenceline) -> Callable[..., str]:
    """Return the one line of a command that a server answers in some manner."""

    def asked(manner: Manner, *arguments: str) -> str:
        with Receiver(usually=manner) as there:
            base = there.url.removesuffix("/hook")
            done = fenceline("--url", base, *(arguments or ("incidents",)))
        assert (done.status, done.out) == (2, "")
        assert SECRET not in done.err
        return done.error.replace(base, "URL")

    return asked


@pytest.mark.parametrize(
    ("manner", "line"),
    [
        (answer(200, b"<html>Welcome</html>", content_type="text/html"),
         "URL answered 200 with text/html that is no valid JSON. Check that the URL is Fenceline's, and the "
         "proxies between."),
        (answer(200, b'{"items": [', content_type="application/json"), "no valid JSON"),
        (answer(200, b"[" * 100_000, content_type="application/json"), "no valid JSON"),
        (answer(200, b"\xff\xfe\x00", content_type="application/json"), "no valid JSON"),
        (answer(302, location="https://sso.example.org/login"),
         "URL answered 302, a redirect to https://sso.example.org/login. Log in with the URL that serves the "
         "API."),
        (answer(401, b"<html>", content_type="text/html"),
         "URL answered 401: Unauthorized. Run: fenceline login URL"),
        (answer(404, b"<html>", content_type="text/html"), "URL answered 404: Not Found."),
        (answer(429, retry_after="7"), "URL answered 429: Too Many Requests. Try again in 7 s."),
        (answer(502, b"<html>nginx", content_type="text/html"), "502: Bad Gateway. Try again later."),
        (as_json({"detail": "The database is away."}, 503, retry_after="5"),
         "URL answered 503: The database is away. Try again in 5 s."),
        (answer(599), "URL answered 599: unknown status. Try again later."),
        (as_json({"detail": "There is nothing at /api/v1/incidents."}, 404),
         "Server and command differ in version: update the older one."),
        (as_json({"detail": f"I know {SECRET}\x1b[31m"}, 400), r"URL answered 400: I know [token]\x1b[31m"),
        (as_json([]), "A list of the API cannot be read"),
        (as_json("text"), "A list of the API cannot be read"),
        (as_json({**LIST, "items": [{}]}), "An answer of the API cannot be read"),
        (as_json({**LIST, "items": [{"number": "x"}]}), "'x' is no int"),
        (as_json({**LIST, "items": 7}), "A list of the API cannot be read"),
        (as_json({**LIST, "gaps": [7]}), "An answer of the API cannot be read"),
        (as_json({**LIST, "gaps": 7}), "An answer of the API cannot be read"),
        (as_json({"candidates": 7}, 400), "URL answered 400: Bad Request."),
        (as_json({"candidates": [7, {}, {"id": "a"}]}, 400), "Candidates: a on None."),
        (raw(b"garbage\r\n\r\n"), "URL cannot be reached"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Type: application/json\r\n\r\n{"),
         "URL cannot be reached"),
        (raw(), "URL cannot be reached"),
    ],
)  # fmt: skip
def test_each_bad_answer_is_one_line(asked: Callable[..., str], manner: Manner, line: str) -> None:
    assert line in asked(manner)


def test_a_server_that_does_not_answer_is_given_up(
    asked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline_client.client._READ_S", 0.2)
    assert asked(hold) == "URL cannot be reached: timed out. Check the URL, and that Fenceline runs."


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://127.0.0.1:1", "Connection refused. Check the URL, and that Fenceline runs."),
        ("https://127.0.0.1:1", "Connection refused"),
        ("https://no-such-host.invalid", "Check the URL"),
        ("https://two words", "cannot be reached"),
    ],
)
def test_an_unreachable_host_is_named(fenceline: Fenceline, url: str, line: str) -> None:
    done = fenceline("--url", url, "incidents")
    assert done.status == 2
    assert done.error.startswith(f"{url} cannot be reached: ")
    assert line in done.error


def test_a_private_ca_is_named_in_the_environment(
    fenceline: Fenceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with Receiver(usually=as_json(LIST), tls=authority.server("localhost")) as there:
        url = f"https://localhost:{there.port}"
        refused = fenceline("--url", url, "incidents")
        assert refused.status == 2
        assert "certificate" in refused.error
        assert refused.error.endswith("REQUESTS_CA_BUNDLE names the file of a private CA.")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
        assert fenceline("--url", url, "incidents").status == 0
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    assert "/no/such/file" in fenceline("--url", url, "incidents").error


def test_a_proxy_of_the_environment_is_used(fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver(usually=as_json(LIST)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        done = fenceline("--insecure-http", "--url", "http://fenceline.example.org", "incidents")
        assert done.status == 0
        (request,) = proxy.received
    assert request.path.startswith("http://fenceline.example.org/api/v1/incidents")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    closed = fenceline("--url", "https://fenceline.example.org", "incidents")
    assert closed.error.endswith("Connection refused. Check HTTPS_PROXY and NO_PROXY.")


def test_a_server_may_be_below_a_path_of_its_host(fenceline: Fenceline) -> None:
    with Receiver(usually=as_json(LIST)) as there:
        assert fenceline("--url", f"http://127.0.0.1:{there.port}/tools/fenceline/", "groups").status == 0
        (request,) = there.received
    assert request.path.partition("?")[0] == "/tools/fenceline/api/v1/groups"


def test_the_token_goes_to_the_server_and_no_password_of_netrc(
    fenceline: Fenceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Receiver(usually=as_json(LIST)) as there:
        assert fenceline("--url", f"http://127.0.0.1:{there.port}", "incidents").status == 0
        (request,) = there.received
    assert request.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.django_db(transaction=True)
def test_the_apis_own_refusals_are_shown(
    fenceline: Fenceline, prod: Cluster, viewer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = factories.planned_action()
    refused = fenceline("execute", str(row.pk), "--confirm", row.plan["confirm"], "--reason", "test")
    assert refused.status == 2
    assert "answered 403: token ci-viewer may not do this: it needs the role operator" in refused.error
    missing = fenceline("execute", "999999999")
    assert (missing.status, missing.error.partition(" answered ")[2]) == (
        2,
        "404: No action 999999999 is known.",
    )
    monkeypatch.setenv("FENCELINE_TOKEN", "of-nobody")
    assert "answered 401: No such token is known." in fenceline("incidents").error


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "Missing command. See: fenceline --help"),
        (("incident",), "See: fenceline --help"),
        (("why",), "Missing argument 'ID'. See: fenceline why --help"),
        (("incidents", "--limit", "0"), "See: fenceline incidents --help"),
        (("safe-to-stop",), "Name a query, or a cluster by --cluster. See: fenceline safe-to-stop --help"),
        (("login", "https://127.0.0.1:1", "--token-file", "/no/such"), "No such file"),
    ],
)
def test_wrong_usage_is_one_line(fenceline: Fenceline, arguments: tuple[str, ...], line: str) -> None:
    done = fenceline(*arguments)
    assert done.status == 2
    assert line in done.error
