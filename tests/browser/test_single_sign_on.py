"""Proves single sign-on in Chromium at a certified provider (oidc-provider of npm): in, with the role of the
group, whichever token tells it; out at both; and in again only with another sign-in there."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from sandbox.ports import free_port
from tests.browser.conftest import Server
from tests.waiting import wait_for

pytestmark = [pytest.mark.matrix, pytest.mark.skipif(not shutil.which("npm"), reason="no npm")]
SECRET = "a secret of the client, long enough"
PROGRAM = Path(__file__).with_name("openid_provider.mjs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that npm has installed the provider to."""
    folder = tmp_path_factory.mktemp("provider")
    shutil.copy(PROGRAM, folder)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "oidc-provider@9.13.3"]
    subprocess.run(npm, cwd=folder, check=True, timeout=600)
    return folder


@contextmanager
def provided(folder: Path, port: int, fenceline: str, told_by: str) -> Iterator[None]:
    """Run the provider for a client at an address."""
    log = folder / f"{port}.log"
    command = ["node", PROGRAM.name, str(port), fenceline, SECRET, told_by]
    with log.open("w") as out:
        node = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        wait_for(lambda: "ready" in log.read_text(), "the provider is ready", 60)
        yield
    finally:
        node.terminate()
        node.wait()


@pytest.fixture(params=["the ID token", "userinfo"])
def fenceline(request: pytest.FixtureRequest, installed: Path, tmp_path: Path) -> Iterator[Server]:
    """Fenceline, and a provider that tells the groups by one of the two ways."""
    server, port = Server(tmp_path), free_port()
    with (tmp_path / "fenceline.toml").open("a") as config:
        config.write(
            f'[[identity_providers]]\nname = "corp"\nlabel = "Example Corp"\nissuer = "http://127.0.0.1:{port}"\n'
            f'client_id = "fenceline"\nclient_secret = "{SECRET}"\noperator = ["sre"]\n'
        )
    try:
        server.start()
        with provided(installed, port, server.url, request.param):
            yield server
    finally:
        server.stop()


def sign_in(page: Page, name: str) -> None:
    page.get_by_role("link", name="Sign in with Example Corp").click()
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def test_a_user_signs_in_and_out_at_both(fenceline: Server, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{fenceline.url}/transactions?state=all")
    sign_in(page, "grace")
    page.wait_for_url(f"{fenceline.url}/transactions?state=all")
    expect(page.locator("body")).to_contain_text("grace")
    page.evaluate("document.querySelector('form[action$=\"/logout/\"]').requestSubmit()")
    page.get_by_role("button", name="Yes, sign me out").click()
    page.wait_for_url(lambda url: url.startswith(f"{fenceline.url}/login/"))
    page.goto(f"{fenceline.url}/system")
    sign_in(page, "ada")
    page.wait_for_url(f"{fenceline.url}/system")
    expect(page.locator("body")).to_contain_text("ada")
