"""Proves how scripts and styles are sent: whole, in order, compressed if that is accepted, kept for ever."""

import gzip
import re
from pathlib import Path

import pytest
from django.test import Client

from dashboard.web.server.bundles import BUNDLES, bundle_url

STATIC = Path(__file__).resolve().parents[2] / "dashboard" / "static"
#: Fonts and licences: WhiteNoise serves these.
ELSEWHERE = {".woff2", ".txt", ".json"}


def test_every_script_style_and_icon_is_in_one_bundle() -> None:
    bundled = [name for files in BUNDLES.values() for name in files]
    there = [str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*") if path.suffix not in ELSEWHERE]
    assert sorted(bundled) == sorted(there)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_its_files_in_order(client: Client, name: str) -> None:
    content = client.get(bundle_url(name)).content
    at = [content.index((STATIC / each).read_bytes()) for each in BUNDLES[name]]
    assert at == sorted(at)
    zipped = client.get(bundle_url(name), headers={"accept-encoding": "br, gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped.content) == content
    assert "Accept-Encoding" in zipped.headers["Vary"]


def test_only_the_address_of_this_content_is_kept(client: Client) -> None:
    assert "immutable" in client.get(bundle_url("app.js")).headers["Cache-Control"]
    for query in ("", "?v=", "?v=0123456789", "?v=../settings"):
        answer = client.get(f"/static/bundles/app.js{query}")
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-cache"), query


@pytest.mark.parametrize("name", ["app.jss", "base.css", "%2e%2e", "..%2fjs%2flive.js", "app.css%00"])
def test_no_other_file_is_found(client: Client, name: str) -> None:
    assert client.get(f"/static/bundles/{name}").status_code == 404


def test_nothing_is_sent_to_who_would_write(client: Client) -> None:
    assert client.post(bundle_url("app.js")).status_code == 405


@pytest.mark.django_db
def test_a_page_is_compressed_and_keeps_its_tag(page: Client) -> None:
    plain = page.get("/transactions")
    zipped = page.get("/transactions", headers={"accept-encoding": "gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert zipped.headers["ETag"] == plain.headers["ETag"]
    shown = gzip.decompress(zipped.content).decode()
    assert len(re.findall(r'<link rel="stylesheet"', shown)) == 1
    assert len(re.findall("<script ", shown)) <= 3
