"""Proves that pages show figures over the range of their address: a chart with a table twin, since when there
is history, what is not known and why; and that the lanes of events have what lasted in a range."""

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from dashboard.history import event_lanes
from dashboard.models import Batch, Cluster, FindingRecord, Tally
from dashboard.streaming import batches as streaming_batches
from fenceline.history.time_range import TimeRange, format_instant
from fenceline.series.histograms import bucket_of, pack_histogram
from fenceline.series.points import GROUP, PARTITION
from tests.web import factories, series
from tests.web.roles import page_html
from tests.web.series import HOUR_MS, MINUTE_MS

pytestmark = pytest.mark.django_db

PARTITION_PAGE, GROUP_PAGE = "/partitions/prod/payments/0", "/groups/prod/billing"
PAGES = (PARTITION_PAGE, GROUP_PAGE)


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    """A cluster with a partition and a group, and figures of an hour."""
    of = factories.watched_cluster()
    factories.partition(of)
    factories.group_offset(factories.group(of))
    series.hour(of)
    return of


@pytest.fixture
def unseen(prod: Cluster) -> Cluster:
    """The same cluster without figures."""
    series.forget(prod)
    return prod


def figure(text: str, name: str) -> dict[str, Any]:
    """The figure that a page carries for a chart."""
    found = re.search(rf'id="{name}-figure" hidden>(.*?)</span>', text, re.DOTALL)
    assert found, f"no figure {name}"
    return dict(json.loads(html.unescape(found[1])))


def trace(text: str, name: str, chart: str = "series-chart") -> dict[str, Any]:
    (found,) = [each for each in figure(text, chart)["data"] if each["name"] == name]
    return dict(found)


def table(text: str, name: str) -> list[list[str]]:
    """The cells of a table twin, without its first column."""
    body = text.split(f'id="{name}"')[1].split("</details>")[0].split("<tbody>")[1]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in body.split("<tr>")[1:]]
    return [[each.strip() for each in row] for row in cells]


def number(cell: str) -> int:
    return int(cell.rpartition(" ")[2].replace(",", ""))


def test_a_partition_has_its_offsets_over_the_range(page: Client, prod: Cluster) -> None:
    text = page_html(page, PARTITION_PAGE)
    uncommitted = trace(text, "uncommitted")
    peak = max(y for y in uncommitted["y"] if y is not None)
    assert peak > 10_000
    assert trace(text, "LSO")["y"][-1] is None, "a line ends where the range does"
    rows = table(text, "series-table")
    assert max(number(row[2]) for row in rows) == peak
    assert 10 < len(rows) <= 61
    now = factories.now_ms()
    quiet = page_html(
        page,
        PARTITION_PAGE,
        **{"from": format_instant(now - 20 * MINUTE_MS), "to": format_instant(now - MINUTE_MS)},
    )
    assert {number(row[2]) for row in table(quiet, "series-table")} == {0}


def test_a_group_has_its_lag_over_the_range(page: Client, prod: Cluster) -> None:
    text = page_html(page, GROUP_PAGE)
    assert max(y for y in trace(text, "lag to end")["y"] if y is not None) > 10_000
    behind = trace(text, "behind")
    assert max(y for y in behind["y"] if y is not None) > 14, "minutes"
    rows = table(text, "series-table")
    assert "14 min" in " ".join(row[2] for row in rows)


@pytest.mark.parametrize("url", PAGES)
def test_the_chart_is_loaded_with_the_others_and_sets_the_range(
    page: Client, prod: Cluster, url: str
) -> None:
    text = page_html(page, url)
    assert "plotly.js" in text
    assert figure(text, "series-chart")["layout"]["xaxis"]["type"] == "date"


@pytest.mark.parametrize("url", PAGES)
def test_a_range_that_begins_before_the_first_record_says_since_when(
    page: Client, prod: Cluster, url: str
) -> None:
    assert "data-kept-since" in page_html(page, url, last="24h")
    assert "data-kept-since" not in page_html(page, url, last="15m")
    now = factories.now_ms()
    past = {"from": format_instant(now - 9 * HOUR_MS), "to": format_instant(now - 8 * HOUR_MS)}
    before = page_html(page, url, tab="charts", **past)
    assert "data-kept-since" in before
    assert "series-chart" not in before


@pytest.mark.parametrize("url", PAGES)
def test_a_page_without_any_history_says_so(page: Client, unseen: Cluster, url: str) -> None:
    text = page_html(page, url)
    assert "No history in this range" in text
    assert "data-kept-since" not in text


def test_what_could_not_be_seen_is_named_with_its_reason(page: Client, unseen: Cluster) -> None:
    now = factories.now_ms()
    series.observed(unseen, (HOUR_MS, 30 * MINUTE_MS), (20 * MINUTE_MS, -HOUR_MS), now_ms=now)
    polls = [(59 * MINUTE_MS, (1, 0)), (10 * MINUTE_MS, None), (5 * MINUTE_MS, (2, 0))]
    series.polled(unseen, PARTITION, "payments-0", polls, now_ms=now)
    factories.gap(unseen, source="partitions", scope="broker:2", since_ms=now - 10 * MINUTE_MS,
             until_ms=now - 5 * MINUTE_MS, reason="broker 2: no answer in time")  # fmt: skip
    text = page_html(page, PARTITION_PAGE)
    assert text.count("data-hole") == 2
    assert "The collector did not run." in text
    assert "broker 2: no answer in time" in text
    line = trace(text, "LSO")
    for since_ms, until_ms in ((now - 30 * MINUTE_MS, now - 20 * MINUTE_MS), (now - 600_000, now - 300_000)):
        inside = [y for x, y in zip(line["x"], line["y"], strict=True) if since_ms < x < until_ms - 10_000]
        assert set(inside) <= {None}


def test_many_holes_are_counted(page: Client, unseen: Cluster) -> None:
    now = factories.now_ms()
    spans = [(n * MINUTE_MS + 10_000, n * MINUTE_MS) for n in range(58, 1, -1)]
    series.observed(unseen, *spans, now_ms=now)
    series.polled(unseen, GROUP, "billing", [(59 * MINUTE_MS, (1, 1, 1, 0))], now_ms=now)
    text = page_html(page, GROUP_PAGE)
    assert text.count("data-hole") == 5
    assert "earlier times of which nothing is known" in text


def lanes(of: Cluster, application: str = "") -> event_lanes.TimelineLanes:
    now = factories.now_ms()
    shown = TimeRange(now - HOUR_MS, now)
    return event_lanes.read_lanes(of.name, application, shown, now_ms=now)


def long_open(of: Cluster, name: str, since_ago_ms: int, closed_ago_ms: int | None) -> FindingRecord:
    now = factories.now_ms()
    row = factories.finding(of, f"transaction:{name}", rule="open_too_long")
    closed = None if closed_ago_ms is None else datetime.fromtimestamp((now - closed_ago_ms) / 1_000, UTC)
    FindingRecord.objects.filter(pk=row.pk).update(since_ms=now - since_ago_ms, closed_at=closed)
    return row


def test_transactions_that_were_open_for_long_are_bars(page: Client, prod: Cluster) -> None:
    inside = long_open(prod, "inside", 30 * MINUTE_MS, 10 * MINUTE_MS)
    across = long_open(prod, "across", 3 * HOUR_MS, 50 * MINUTE_MS)
    still = long_open(prod, "still", 5 * MINUTE_MS, None)
    long_open(prod, "before", 5 * HOUR_MS, 2 * HOUR_MS)
    factories.finding(prod, "partition:payments-0", rule="lso_pinned")
    assert {row.pk for row in lanes(prod).open_too_long} == {inside.pk, across.pk, still.pk}
    assert [row.pk for row in lanes(prod, "across").open_too_long] == [across.pk]
    bars = [
        each
        for each in figure(page_html(page, "/timeline", last="1h"), "events-chart")["data"]
        if each.get("base")
    ]
    drawn = [pair for each in bars for pair in zip(each["y"], each["customdata"], strict=True)]
    expected = {f"/transactions/prod/{name}" for name in ("inside", "across", "still")}
    assert {url for lane, (_, url) in drawn if lane == "transactions"} == expected


def test_lanes_have_backlog_and_the_worst_groups_with_a_table_twin(page: Client, prod: Cluster) -> None:
    text = page_html(page, "/timeline", last="1h")
    names = {each["name"] for each in figure(text, "events-chart")["data"]}
    assert {"blocked", "billing", "orders-view"} <= names
    backlog = max(y for y in trace(text, "blocked", "events-chart")["y"] if y is not None)
    rows = table(text, "lanes-table")
    assert max(number(row[0]) for row in rows if row[0] != "—") == backlog
    assert '<a href="/groups/prod/billing?last=1h">' in text
    of_one = figure(page_html(page, "/timeline", last="1h", application="payments"), "events-chart")["data"]
    assert "billing" not in {each["name"] for each in of_one}
    assert "blocked" in {each["name"] for each in of_one}
    day = page_html(page, "/timeline", last="24h")
    assert "data-kept-since" in day
    assert table(day, "lanes-table")[0][0] == "—", "nothing was recorded yet"


def batches_of(of: Cluster, number_of: int, every_ms: int) -> Any:
    query = factories.query(of)
    now = factories.now_ms()
    Batch.objects.bulk_create(
        Batch(
            query=query, batch_id=n, started_ms=now - (number_of - n) * every_ms, rev=1,
            duration_ms=9_000 if n == number_of // 2 else 400 + n % 7,
            durations={"addBatch": 300, "triggerExecution": 400},
        )
        for n in range(number_of)
    )  # fmt: skip
    return query


@pytest.mark.sql
@pytest.mark.parametrize("most", [5, 40])
def test_of_many_batches_the_slowest_of_each_step_is_found(prod: Cluster, most: int) -> None:
    query = batches_of(prod, 300, 10_000)
    now = factories.now_ms()
    from_ms, step_ms = now - 3_000_000, -(-3_000_000 // most)
    found = streaming_batches.slowest_batches([query], from_ms, now, most=most)
    assert not found.is_whole
    rows = Batch.objects.filter(started_ms__gte=from_ms, started_ms__lt=now)
    slowest: dict[int, int] = {}
    for row in rows:
        step = (row.started_ms or 0) // step_ms
        slowest[step] = max(slowest.get(step, 0), row.duration_ms or 0)
    shown = {(each.started_ms or 0) // step_ms: each.duration_ms for each in found.batches}
    assert shown == slowest
    assert found.number == rows.count()
    assert streaming_batches.slowest_batches([query], now - 50_000, now, most=most).is_whole


def test_batches_are_a_lane_and_lead_to_their_chain(page: Client, prod: Cluster) -> None:
    query = batches_of(prod, 300, 10_000)
    bars = trace(page_html(page, "/timeline", last="1h"), "ok", "events-chart")
    assert set(bars["y"]) == {"batches"}
    assert len(bars["x"]) <= event_lanes.MOST_BATCHES + 1
    assert f"/queries/prod/{query.ident}?batch=150#chain" in [url for _, url in bars["customdata"]]


def test_too_many_batches_are_not_looked_through(
    page: Client, prod: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = batches_of(prod, 40, 10_000)
    monkeypatch.setattr(streaming_batches, "MOST_RANKED", 30)
    found = streaming_batches.slowest_batches([query], 0, factories.now_ms(), most=5)
    assert (found.batches, found.number, found.is_whole) == ((), 31, False)
    assert "choose a shorter range" in page_html(
        page, f"/queries/prod/{query.ident}", last="1h", tab="charts"
    )


def test_a_query_s_charts_follow_the_range(page: Client, prod: Cluster) -> None:
    query = batches_of(prod, 300, 10_000)
    url = f"/queries/prod/{query.ident}"
    latest = trace(page_html(page, url, tab="charts"), "addBatch", "durations-chart")
    assert latest["x"] == list(range(240, 300))
    whole = page_html(page, url, last="1h", tab="charts")
    shown = trace(whole, "addBatch", "durations-chart")
    assert len(shown["x"]) <= 61
    assert all(x > 10**12 for x in shown["x"]), "instants, not numbers"
    assert "of 300 batches" in whole
    now = factories.now_ms()
    past = {"from": format_instant(now - 9 * HOUR_MS), "to": format_instant(now - 8 * HOUR_MS)}
    before = page_html(page, url, tab="charts", **past)
    assert "No batch to show in this range" in before


def test_the_events_of_an_application_have_its_ends_and_durations(page: Client, prod: Cluster) -> None:
    start_ms = factories.now_ms() // 60_000 * 60_000 - 120_000
    for application, count in (("billing", 40), ("other", 7)):
        Tally.objects.create(
            cluster=prod, application=application, span_s=60, start_ms=start_ms, shard=0,
            counts=json.dumps({"commit": count, "timeout": 2}), marker_times="{}",
            open_times=pack_histogram({bucket_of(500): count}),
        )  # fmt: skip
    drawn = figure(page_html(page, "/events", last="1h", application="billing"), "ends-chart")
    sums = {trace["name"]: sum(value or 0 for value in trace["y"]) for trace in drawn["data"]}
    assert (sums["commits"], sums["aborts"]) == (40, 2)
    assert sums["p50"] == pytest.approx(0.5, rel=0.07)
    assert "ends-chart" not in page_html(page, "/events", last="1h")
