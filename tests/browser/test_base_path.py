"""Proves in Chromium that Fenceline works under a path of its host: alone, and behind nginx with TLS, which
passes the path on or strips it. No address of any page, answer or cookie leaves the path."""

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from sandbox.ports import free_port
from tests.browser.conftest import Server, sign_in
from tests.waiting import wait_for

BASE = "/control/fenceline"
PAGES = ("", "transactions", "partitions", "groups", "queries", "events", "coordinators", "actions", "system")
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.key;
    location {outside}/ {{
      proxy_pass http://127.0.0.1:{web}{onto};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto https;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $http_connection;
    }}
    {elsewhere}
  }}
}}
"""


@contextmanager
def proxied(folder: Path, server: Server, port: int, outside: str, onto: str) -> Iterator[str]:
    """Run nginx with TLS in front of a server; yields the address of Fenceline."""
    key, certificate = str(folder / "tls.key"), str(folder / "tls.pem")
    made = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *made, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    elsewhere = "location / { return 418; }" if outside else ""
    named = {"port": port, "web": server.port, "outside": outside, "onto": onto, "elsewhere": elsewhere}
    text = NGINX.format(folder=folder, **named)
    (folder / "nginx.conf").write_text(text)
    nginx = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")])
    url = f"https://127.0.0.1:{port}{outside}"
    try:
        wait_for(lambda: is_ready(url), "nginx passes requests on", 60)
        yield url
    finally:
        nginx.terminate()
        nginx.wait()


def is_ready(url: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(f"{url}/readyz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def served(folder: Path, way: str) -> Iterator[tuple[Server, str]]:
    """Run Fenceline under a base path, reached in a way; yields the server and its address."""
    with ExitStack() as stack:
        port, base = free_port(), "" if way == "at the root" else BASE
        https = {"SECURE_COOKIES": "1", "CSRF_TRUSTED_ORIGINS": f"https://127.0.0.1:{port}"}
        behind = {} if way == "alone" else https | {"FORWARDED_ALLOW_IPS": "127.0.0.1"}
        server = Server(folder, base, **behind)
        stack.callback(server.stop)
        server.start()
        onto = "/" if way == "stripped" else ""
        url = server.url if way == "alone" else stack.enter_context(proxied(folder, server, port, base, onto))
        yield server, url


BEHIND_NGINX = [
    pytest.param(
        way, marks=[pytest.mark.matrix, pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx")]
    )
    for way in ("at the root", "passed on", "stripped")
]


@pytest.mark.parametrize("way", ["alone", *BEHIND_NGINX])
def test_the_main_journeys_stay_under_the_path(tmp_path: Path, browser: Browser, way: str) -> None:
    with served(tmp_path, way) as (server, url):
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        outside: list[str] = []
        base = urlsplit(url).path
        page.on("response", lambda answer: within(base, answer.url) or outside.append(answer.url))
        page.on("websocket", lambda socket: within(base, socket.url) or outside.append(socket.url))
        page.on("pageerror", lambda error: outside.append(str(error)))
        server("reset", "held")
        page.goto(f"{url}/transactions?state=all")
        sign_in(page)
        page.wait_for_url(f"{url}/transactions?state=all")
        follow_a_change(page, server, url)
        operate(page, url)
        for name in PAGES:
            page.goto(f"{url}/{name}")
            outside += links_outside(page, base)
        missing = page.goto(f"{url}/no-such-page")
        assert missing
        assert missing.status == 404
        outside += links_outside(page, base)
        assert [cookie["path"] for cookie in context.cookies()] == [f"{base}/"] * len(context.cookies())
        assert outside == []
        context.close()


def within(base: str, address: str) -> bool:
    return urlsplit(address).path.startswith(f"{base}/")


def links_outside(page: Page, base: str) -> list[str]:
    """Return the addresses of a page, of links, forms and refetches, that are not under the path."""
    found = page.evaluate(
        """[...document.querySelectorAll("[href], [src], [action], [hx-get]")].flatMap((part) =>
        ["href", "src", "action", "hx-get"].map((name) => part.getAttribute(name) || "")
        .filter((address) => address.startsWith("/")))"""
    )
    return [address for address in found if not address.startswith(f"{base}/")]


def follow_a_change(page: Page, server: Server, url: str) -> None:
    page.goto(f"{url}/transactions?state=all&q=orders-gateway-0")
    page.locator('#live[data-socket="up"]').wait_for()
    server("change", "orders-gateway-0", "PrepareAbort")
    expect(page.locator("tbody tr td").first).to_have_text("PrepareAbort")


def operate(page: Page, url: str) -> None:
    """Find an id, open an incident and acknowledge it, take a file, see the API and its description."""
    page.keyboard.press("Control+k")
    page.locator("#find input[name=q]").fill("orders-gateway-0")
    page.locator("#find-results a").first.click()
    expect(page.locator("h1")).to_be_visible()
    page.goto(f"{url}/")
    page.locator("[data-incident] h3 a").first.click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    page.goto(f"{url}/transactions")
    with page.expect_download() as download:
        page.locator("a[href*='/api/v1/exports/']", has_text="CSV").first.evaluate("link => link.click()")
    assert download.value.suggested_filename == "transactions.csv"
    page.goto(f"{url}/admin/")
    expect(page.locator("#content")).to_be_visible()
    page.goto(f"{url}/api/v1/docs")
    expect(page.get_by_text(re.compile("Fenceline")).first).to_be_visible()
