"""Proves that a list's file holds every item of the list, whatever its length, with its filters; that CSV is
read again by the csv module and starts no formula; and that a wrong request gets a clear text, not a file."""

import csv
import io
import json
import re
import zlib
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from dashboard.api import list_files
from dashboard.api.list_files import LISTS
from dashboard.models import Cluster
from tests.api.conftest import Ask, all_items
from tests.api.description import operations, words_of
from tests.cases import cases
from tests.web import factories, roles, scenarios

pytestmark = pytest.mark.django_db

#: Parameters with which each list has items, beside its own defaults.
ASKED = {
    "events": "last=30d",
    "incidents": "state=all",
    "findings": "state=all",
    "alerts": "state=all",
    "transactions": "state=open",
}
FILLED = ("transactions", "partitions", "groups", "events", "alerts", "findings")


@pytest.fixture(autouse=True)
def three_rows_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "_AT_ONCE", 3)


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster whose lists have several pages."""
    of = factories.cluster()
    scenarios.busy_transactions(of, 60)
    scenarios.busy_partitions(of)
    scenarios.busy_alerts(of)
    return of


def download(url: str, role: str = "admin") -> tuple[int, str]:
    status, body = download_bytes(url, role)
    return status, body.decode()


def download_bytes(url: str, role: str = "admin", **headers: str) -> tuple[int, bytes]:
    """Return the status and the whole body of a download, as a server on asyncio sends it."""
    client = AsyncClient()
    client.cookies = roles.client_with_role(role).cookies

    async def read() -> tuple[int, bytes]:
        response: Any = await client.get(f"/api/v1/exports/{url}", headers=headers)
        if not response.streaming:
            return response.status_code, response.content
        return response.status_code, b"".join([part async for part in response.streaming_content])

    return async_to_sync(read)()


@pytest.mark.parametrize("noun", [noun for noun in LISTS if noun != "audit"])
def test_a_file_has_every_item_of_the_list(ask: Ask, noun: str) -> None:
    asked = ASKED.get(noun, "")
    items = ask(f"{noun}?limit=500&{asked}")["items"]
    assert len(items) > 3 or noun not in FILLED
    assert all_items(ask, f"{noun}?limit=9&{asked}") == items
    status, text = download(f"{noun}.json?{asked}")
    assert status == 200
    assert json.loads(text)["items"] == items
    status, text = download(f"{noun}.csv?{asked}")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [list(row) for row in rows] == [list(item) for item in items]
    assert [
        [_read(row[name], item[name]) for name in item] for row, item in zip(rows, items, strict=True)
    ] == [list(item.values()) for item in items]


@pytest.mark.parametrize("noun", [noun for noun in LISTS if noun != "audit"])
def test_a_word_lists_the_items_that_have_it(ask: Ask, noun: str) -> None:
    """How many are listed is what is filtered; pages and the API share each noun's filter."""
    asked = dict(parse_qsl(ASKED.get(noun, "")))
    items = ask(f"{noun}?{urlencode(asked | {'limit': 500})}")["items"]
    (listed,) = (each for each in operations() if each.path == f"/api/v1/{noun}" and each.method == "GET")
    for one in listed.parameters:
        name = one["name"]
        values = [item[name] for item in items if name in item]
        for word in words_of(one["schema"]) & {value for value in values if isinstance(value, str)}:
            found = ask(f"{noun}?{urlencode(asked | {'limit': 500, name: word})}")["items"]
            assert [item[name] for item in found] == [word] * values.count(word), (name, word)


def test_a_compressed_file_is_one_gzip_member(prod: Cluster) -> None:
    """Of several members a browser reads the first alone, which has the names of the columns."""
    _, plain = download("transactions.csv")
    _, zipped = download_bytes("transactions.csv", accept_encoding="gzip")
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert stream.decompress(zipped).decode() == plain
    assert stream.eof
    assert not stream.unused_data


@pytest.mark.parametrize("name", ['=HYPERLINK("https://x")', "+1", "-1", "@sum", 'say "hi", you'])
def test_no_text_of_a_cell_is_a_formula(prod: Cluster, name: str) -> None:
    factories.transaction(prod, name)
    _, text = download("transactions.csv")
    names = [row["transactional_id"] for row in csv.DictReader(io.StringIO(text))]
    assert any(each in (name, f"'{name}") for each in names)
    assert not [each for each in names if each.startswith(("=", "+", "-", "@", "\t", "\r"))]


@cases(
    ("transactions.csv?state=nowhere", 422, "query.state"),
    ("transactions.xlsx", 422, "path.form"),
    ("secrets.csv", 404, "secrets: no list; one of actions, alerts,"),
    ("events.json?from=2026-02-01&to=2026-01-01", 400, "from: "),
    ("transactions.csv?application=a%00", 422, "query."),
)
def test_a_wrong_request_gets_a_text_and_no_file(prod: Cluster, url: str, status: int, says: str) -> None:
    found, text = download(url)
    assert found == status
    assert says in json.loads(text)["detail"]


def test_the_audit_log_is_for_admins(prod: Cluster) -> None:
    assert download("audit.csv", "viewer")[0] == 403
    assert download("audit.csv")[0] == 200


@cases(
    "transactions?state=open&page=1&sort=updated", "partitions?q=pay", "groups?q=bill",
    "events?last=24h", "alerts?state=resolved", "incidents?state=all",
    "transactions?application=inventory-sync",
)  # fmt: skip
def test_a_page_links_the_files_of_its_list(prod: Cluster, path: str) -> None:
    noun, _, query = path.partition("?")
    text = roles.client_with_role("viewer").get(f"/{path}").content.decode()
    links = [unescape(url) for url in re.findall(r'href="/api/v1/exports/([^"]+)" download', text)]
    kept = "&".join(each for each in query.split("&") if not each.startswith(("page=", "sort=")))
    # Events are those of a range, and a link names the range that the page shows.
    shown = [re.sub(r"from=[^&]+$", "last=24h", link) for link in links] if noun == "events" else links
    assert shown == [f"{noun}.csv?{kept}", f"{noun}.json?{kept}"]
    assert [download(link)[0] for link in links] == [200, 200]


def test_a_page_links_no_file_with_a_parameter_that_the_api_refuses(prod: Cluster) -> None:
    text = roles.client_with_role("viewer").get("/groups?stat=OK&status=nope&q=bill").content.decode()
    (link, _) = [unescape(url) for url in re.findall(r'href="/api/v1/exports/([^"]+)" download', text)]
    assert link == "groups.csv?q=bill"


def _read(cell: str, like: object) -> object:
    """Return what a cell holds, of the type of the item's value."""
    if like is None:
        return None if cell in ("", "null") else cell
    if isinstance(like, str):
        return cell[1:] if cell.startswith("'") else cell
    return json.loads(cell)
