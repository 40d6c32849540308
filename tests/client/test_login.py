"""Proves how a token is asked for, checked, kept and never shown."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.models import Cluster
from tests.cases import cases
from tests.client.conftest import Fenceline, make_token
from tests.client.program import terminal

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_token_of_a_file_is_checked_and_kept_for_its_user_alone(
    fenceline: Fenceline, prod: Cluster, server: str, home: Path, tmp_path: Path
) -> None:
    secret = make_token("viewer")
    (tmp_path / "token").write_text(f"{secret}\n")
    done = fenceline("login", f"{server}/", "--token-file", str(tmp_path / "token"))
    assert done.status == 0
    assert f"Logged in to {server}; clusters: prod" in done.out
    assert secret not in done.out + done.err
    assert home.stat().st_mode & 0o777 == 0o600
    assert json.loads(home.read_text()) == {"default": server, "servers": {server: {"token": secret}}}
    assert fenceline("incidents").status == 0


def test_a_person_is_asked_for_the_token_which_is_not_shown(prod: Cluster, server: str, home: Path) -> None:
    secret = make_token("viewer")
    with terminal("login", server) as screen:
        screen.wait_for("Token: ")
        screen.type(secret)
        assert screen.status() == 0
    assert "Logged in" in screen.text
    assert secret not in screen.text
    assert secret in home.read_text()


def test_without_a_terminal_no_token_is_waited_for(fenceline: Fenceline, server: str, home: Path) -> None:
    done = fenceline("login", server)
    assert (done.status, done.error) == (
        2, "No terminal to ask for the token. Give --token-file or set FENCELINE_TOKEN.",
    )  # fmt: skip
    assert not home.exists()


def test_a_token_that_is_refused_is_not_kept(
    fenceline: Fenceline, server: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCELINE_TOKEN", "of-nobody")
    done = fenceline("login", server)
    assert done.status == 2
    assert done.error.startswith(f"{server} answered 401: No such token is known.")
    assert done.error.endswith(f"Run: fenceline login {server}")
    assert "of-nobody" not in done.err
    assert not home.exists()


@pytest.mark.parametrize("token", ["", "two words", "bøse", "a\nb"])
def test_what_is_no_token_is_not_sent(fenceline: Fenceline, server: str, token: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token)
    done = fenceline("login", server, "--token-file", str(tmp_path / "token"))
    assert (done.status, done.error) == (
        2, "The token is empty or has characters that no token has. Copy it again.",
    )  # fmt: skip


@cases(
    ("http://fenceline.example.org", "would send the token unencrypted"),
    ("http://10.0.0.1:8000", "--insecure-http"),
    ("fenceline.example.org", "is no URL of a server"),
    ("ftp://127.0.0.1", "is no URL of a server"),
    ("http://[::1", "is no URL"),
    ("http://127.0.0.1:99999", "is no URL"),
    ("https://user:word@127.0.0.1", "no user, password, query or fragment"),
    ("https://127.0.0.1/?q=1", "no user, password, query or fragment"),
)
def test_a_url_that_endangers_a_token_or_is_none_is_refused(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    monkeypatch.setenv("FENCELINE_TOKEN", "secret")
    for done in (fenceline("login", url), fenceline("--url", url, "incidents")):
        assert done.status == 2
        assert reason in done.error
        assert "word@" not in done.err


def test_servers_have_a_token_each_and_the_last_login_is_the_default(
    fenceline: Fenceline, prod: Cluster, server: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = server.replace("localhost", "127.0.0.1")
    for url, role in ((server, "viewer"), (other, "operator")):
        monkeypatch.setenv("FENCELINE_TOKEN", make_token(role))
        assert fenceline("login", url).status == 0
    monkeypatch.delenv("FENCELINE_TOKEN")
    stored = json.loads(home.read_text())
    assert stored["default"] == other
    assert {*stored["servers"]} == {server, other}
    assert fenceline("--url", server, "incidents").status == 0
    monkeypatch.setenv("FENCELINE_URL", "https://127.0.0.1:1")
    expected = "No token for https://127.0.0.1:1 is stored. Run: fenceline login https://127.0.0.1:1"
    assert fenceline("incidents").error == expected


@pytest.mark.parametrize("kept", ["{", "[]", '{"servers": []}', '{"servers": {"a": "b"}}'])
def test_a_damaged_file_of_tokens_is_reported(fenceline: Fenceline, home: Path, kept: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(kept)
    home.chmod(0o600)
    assert "holds no stored tokens that can be read" in fenceline("incidents").error


def test_a_file_that_others_may_read_is_refused(fenceline: Fenceline, home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("{}")
    home.chmod(0o644)
    assert fenceline("incidents").error.endswith(f"Run: chmod 600 '{home}'")


def test_a_place_that_cannot_be_written_is_named(
    fenceline: Fenceline, signed_in: Callable[[str], str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in("viewer")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    done = fenceline("login", server)
    assert done.status == 2
    assert "Not a directory" in done.error


def test_without_a_login_the_next_step_is_named(fenceline: Fenceline) -> None:
    expected = "No server is known. Run: fenceline login URL, or set FENCELINE_URL."
    assert fenceline("incidents").error == expected
