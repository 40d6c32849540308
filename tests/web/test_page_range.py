"""Proves that each page has a range of time in its header: it is kept in every link to another page, ended by
Live, refused with a clear text, and what a page knows as of now alone is never shown as of the past."""

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from dashboard.models import Batch, Cluster
from dashboard.web.forms import time_ranges
from dashboard.web.forms.time_ranges import PageRange, read_page_range
from dashboard.web.routes import ROUTES
from fenceline.history.time_range import format_instant
from sandbox.scenes.player import ScenePlayer
from tests.cases import cases
from tests.web import factories, roles, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db

NOW = 1_795_000_000_000
HOUR_MS = 3_600_000
PAST = {"from": "2026-11-18T02:00:00Z", "to": "2026-11-18T02:15:00Z"}
LISTS = (
    "/", "/incidents", "/pipelines", "/transactions", "/partitions", "/groups", "/queries", "/flink-jobs",
    "/events",
    "/recoveries", "/actions", "/audit", "/alerts", "/channels", "/deliveries", "/silences", "/rules",
    "/reports", "/access", "/access/tokens", "/system", "/scenes",
)  # fmt: skip
#: Pages of what is known as of now: an example of each in `ROUTES` with a note.
NOW_ONLY = {
    "transactions": "/transactions",
    "transaction": "/transactions/prod/payments-ledger-7",
    "partitions": "/partitions",
    "partition": "/partitions/prod/payments/0",
    "record": "/partitions/prod/payments/0/record",
    "groups": "/groups",
    "group": "/groups/prod/billing",
    "queries": "/queries",
    "query": "/queries/prod/{query}",
    "flink-jobs": "/flink-jobs",
    "flink-job": f"/flink-jobs/prod/{factories.FLINK_IDENT}",
    "system": "/system",
    "scenes": "/scenes",
    "channels": "/channels",
    "silences": "/silences",
    "rules": "/rules",
    "rule": "/rules/open_too_long",
    "access": "/access",
    "clusters": "/clusters",
    "preflight": "/preflight",
    "coordinators": "/coordinators",
}


@pytest.fixture
def admin(client: Client, sandbox: ScenePlayer) -> Client:
    return roles.client_with_role("admin")


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    of = factories.cluster()
    scenarios.busy_transactions(of, 20)
    scenarios.busy_partitions(of)
    factories.transaction_histories(of, 4, hours=2, trouble=0.4)
    factories.flink_job(of)
    return of


@pytest.fixture
def query(prod: Cluster) -> str:
    return factories.query(prod).ident


def page_links(text: str) -> list[str]:
    """Return the addresses of all links to pages; those of the API and of Django's admin are none."""
    found = map(html.unescape, re.findall(r'<a\b[^>]*?\shref="([^"]*)"', text))
    return [each for each in found if each.startswith("/") and not each.startswith(("/api/", "/admin/"))]


def range_of(url: str) -> dict[str, str]:
    return {
        name: values[0]
        for name, values in parse_qs(urlsplit(url).query).items()
        if name in ("from", "to", "last")
    }


def assert_kept(text: str, asked: dict[str, str], url: str) -> None:
    links = page_links(text)
    assert len(links) > 10, url
    own = [each for each in links if range_of(each) != asked]
    # An incident has the events around it, whatever the page is about.
    assert all(urlsplit(each).path == "/events" for each in own), (url, own)


def test_every_link_of_a_page_keeps_its_range_and_what_is_of_now_is_said_to_be(
    admin: Client, prod: Cluster, query: str
) -> None:
    now_only = {url.format(query=query) for url in NOW_ONLY.values()}
    for url in {*LISTS, *now_only}:
        past, live = page_html(admin, url, **PAST), page_html(admin, url)
        assert_kept(past, PAST, url)
        assert ('id="as-of-now"' in past) is (url in now_only), url
        assert 'id="as-of-now"' not in live, url
        assert url not in LISTS or not any(map(range_of, page_links(live))), url


def test_a_range_that_ends_now_is_kept_and_not_of_the_past(admin: Client, prod: Cluster) -> None:
    for asked in {"last": "6h"}, {"from": "2026-11-18T02:00:00Z"}:
        for url in "/", "/partitions", "/partitions/prod/payments/0":
            text = page_html(admin, url, **asked)
            assert_kept(text, asked, url)
            assert 'id="as-of-now"' not in text


def test_what_htmx_asks_for_again_keeps_the_range(admin: Client, prod: Cluster) -> None:
    part = admin.get("/transactions", PAST, headers={"HX-Request": "true"}).content.decode()
    rows = [each for each in page_links(part) if each.startswith("/transactions/prod/")]
    assert rows
    assert all(range_of(each) == PAST for each in rows)
    found = admin.get("/find", {"q": "payments", **PAST}, headers={"HX-Request": "true"}).content.decode()
    assert all(range_of(each) == PAST for each in page_links(found))
    assert 'id="as-of-now"' in part


def test_live_ends_the_range_and_keeps_the_filters(admin: Client, prod: Cluster) -> None:
    text = page_html(admin, "/events", source="finding", before="5-5-5", **PAST)
    picker = text.partition('id="time-range"')[2].partition("</details>")[0]
    links = [html.unescape(each) for each in re.findall(r'href="(\?[^"]*)"', picker)]
    assert links[0] == "?source=finding"
    assert [range_of(each).get("last") for each in links[1:]] == list(time_ranges.LAST)
    assert 'name="source" value="finding"' in picker
    assert "before" not in picker


def test_a_search_and_a_file_keep_the_range(admin: Client, prod: Cluster) -> None:
    asked = {"from": PAST["from"], "to": format_instant(factories.now_ms())}
    text = page_html(admin, "/events", source="transition", **asked)
    search = text.partition('class="search"')[2].partition("</form>")[0]
    kept = {name: value for name, value in asked.items() if f'name="{name}" value="{value}"' in search}
    assert kept == asked
    files = [html.unescape(each) for each in re.findall(r'href="(/api/v1/exports/[^"]*)"', text)]
    assert files
    assert all(range_of(each) == asked for each in files)
    for url in files:
        assert admin.get(url).status_code == 200
    # The API has no list of the past of these.
    files = re.findall(r'href="(/api/v1/exports/[^"]*)"', page_html(admin, "/partitions", **PAST))
    assert files
    assert not any(map(range_of, files))


def test_the_parent_of_a_page_keeps_what_it_is_asked(admin: Client, prod: Cluster) -> None:
    answer = admin.get("/partitions/prod/payments", {**PAST, "size": "100"})
    asked = parse_qs(urlsplit(answer["Location"]).query)
    expected = {"cluster": ["prod"], "q": ["payments"], "size": ["100"], **{k: [v] for k, v in PAST.items()}}
    assert asked == expected


def test_every_page_of_what_is_known_as_of_now_is_in_the_table() -> None:
    assert set(NOW_ONLY) == {route.name for route in ROUTES.values() if route.as_of_now}


@pytest.mark.parametrize("url", LISTS)
def test_every_page_names_a_wrong_range_once_and_is_live(admin: Client, prod: Cluster, url: str) -> None:
    check_wrong_range(admin, url, {"from": "2026-11-24T03:00:00Z", "to": "2026-11-24T02:00:00Z"})


@cases(
    {"from": "soon", "to": "later"},
    {"last": "2y"},
    {"to": "1969-07-20"},
    {"from": "2001-01-01", "to": "2026-01-01"},
)
def test_each_wrong_range_is_named(admin: Client, prod: Cluster, asked: dict[str, str]) -> None:
    check_wrong_range(admin, "/transactions", asked)


def check_wrong_range(admin: Client, url: str, asked: dict[str, str]) -> None:
    text = page_html(admin, url, **asked)
    assert text.count("data-ignored") == 1
    assert 'id="as-of-now"' not in text
    sidebar = text.partition('aria-label="Pages"')[2].partition("</nav>")[0]
    assert not any(map(range_of, page_links(sidebar)))


def test_a_transaction_has_the_events_of_the_range(admin: Client, prod: Cluster) -> None:
    row = prod.transitionrecord_set.order_by("at_ms").first()
    assert row is not None
    url = f"/transactions/prod/{row.transactional_id}"
    times = sorted(prod.transitionrecord_set.filter(key=row.key).values_list("at_ms", flat=True))

    def told(**asked: str) -> int:
        text = page_html(admin, url, **asked)
        repeats = sum(int(times) - 1 for times in re.findall(r'data-times="(\d+)"', text))
        return len(re.findall(r'<tr id="transition-\d+"', text)) + repeats

    assert 6 <= told() <= min(20, len(times))
    expected = times.count(times[0])
    assert told(**{"from": format_instant(times[0]), "to": format_instant(times[0] + 1)}) == expected
    assert told(**{"from": format_instant(times[0] - HOUR_MS), "to": format_instant(times[0])}) == 0


def test_a_query_has_the_batches_that_began_in_the_range(admin: Client, prod: Cluster) -> None:
    of = factories.query(prod)
    Batch.objects.filter(query=of).delete()
    now = factories.now_ms()
    for number in range(0, 300, 3):
        # Some are known from a listener alone, one from nothing that has an instant.
        began = (
            {"planned_ms": now - (300 - number) * 60_000}
            if number % 2
            else {"started_ms": now - (300 - number) * 60_000}
        )
        Batch.objects.create(query=of, batch_id=number, rev=1, **({} if number == 150 else began))
    asked = {"from": format_instant(now - 200 * 60_000), "to": format_instant(now - 100 * 60_000)}
    wanted = [number for number in range(299, -1, -1) if number % 3 == 0 and 100 <= number < 200]
    text = page_html(admin, f"/queries/prod/{of.ident}", **asked)
    assert [int(each) for each in re.findall(r'<tr id="b-(\d+)"', text)] == wanted[:6]
    api = admin.get(f"/api/v1/queries/{of.ident}/batches", {**asked, "limit": 500}).json()
    assert [each["batch"] for each in api["items"]] == wanted
    early = {"from": "2001-01-01", "to": "2001-01-02"}
    assert admin.get(f"/api/v1/queries/{of.ident}/batches", early).json()["items"] == []


def test_every_list_of_the_api_takes_a_range_or_refuses_it(admin: Client, prod: Cluster, query: str) -> None:
    described = admin.get("/api/v1/openapi.json").json()["paths"]
    lists = {path: each["get"] for path, each in described.items() if _is_list(each)}
    assert len(lists) > 18
    takes = []
    for path, operation in lists.items():
        names = {each["name"] for each in operation.get("parameters", ())}
        answer = admin.get(path.replace("{query}", query), PAST)
        if {"from", "to"} <= names:
            takes.append(path.removeprefix("/api/v1/"))
            assert answer.status_code == 200, path
        elif "first_day" not in names:  # Reports are by day.
            assert answer.status_code == 422, path
            assert answer.json()["detail"].startswith("query.from: "), path
    assert sorted(takes) == [
        "actions", "alerts", "audit", "deliveries", "events", "findings", "incidents",
        "pipelines", "pipelines/edges", "queries/{query}/batches", "recoveries", "transitions",
    ]  # fmt: skip


def _is_list(methods: dict[str, Any]) -> bool:
    answer = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    name = answer.get("application/json", {}).get("schema", {}).get("$ref", "")
    return name.endswith("List")


@cases(
    ({}, PageRange(NOW)),
    ({"last": "6h"}, PageRange(NOW, NOW - 6 * HOUR_MS, last="6h")),
    ({"from": "2026-11-18T02:00:00Z"}, PageRange(NOW, 1_794_967_200_000)),
    (PAST, PageRange(NOW, 1_794_967_200_000, 1_794_968_100_000)),
    ({"to": "2026-11-18T02:15:00Z"}, PageRange(NOW, end_ms=1_794_968_100_000)),
    ({**PAST, "last": "6h"}, PageRange(NOW, 1_794_967_200_000, 1_794_968_100_000)),
)
def test_an_address_names_one_range(asked: dict[str, str], found: PageRange) -> None:
    assert read_page_range(asked, now_ms=NOW) == found


def test_a_range_is_kept_to_the_millisecond() -> None:
    asked = {"from": "2026-11-18T02:00:00.123Z", "to": "2026-11-18T02:15:00Z"}
    assert read_page_range(asked, now_ms=NOW).parameters == asked


def test_a_range_that_ends_after_now_is_not_of_the_past() -> None:
    past, future = (
        read_page_range({"from": format_instant(NOW - HOUR_MS), "to": format_instant(NOW + ms)}, now_ms=NOW)
        for ms in (0, 1)
    )
    assert (past.is_past, future.is_past) == (True, False)


def test_what_needs_both_ends_has_them() -> None:
    live, until = (
        read_page_range(asked, now_ms=NOW).window() for asked in ({}, {"to": "2026-11-18T02:15:00Z"})
    )
    assert (live.from_ms, live.to_ms, live.live) == (NOW - HOUR_MS, NOW, True)
    assert (until.to_ms - until.from_ms, until.live) == (HOUR_MS, False)
