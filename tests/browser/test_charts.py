"""Proves the charts in Chromium: drawn under the strict policy, themed, live, and kept while pages change.
Axes of counts have whole numbers at their ticks, whatever the counts are: no "500m" takeovers, no tick twice,
no batch 41.5; and what may be a fraction is written as one."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.history.queries import Bucket
from dashboard.models import Batch
from dashboard.web.charts import figures, query_figures
from dashboard.web.charts.figures import Bar, Figure
from fenceline.facts import TransitionKind
from tests.browser import plotly_css
from tests.browser.conftest import Opener, Server, opening

CHARTS = {
    "events-chart": "/events?last=24h",
    "timeline-chart": "/transactions/prod/payments-1",
}
_MARKS = (
    "document.getElementById('events-chart').data?.filter((trace) => trace.mode === 'markers+text')"
    ".flatMap((trace) => trace.x).length"
)
_COLOURS = """
(name) => [...document.querySelectorAll(`#${name} .point path`)].map((each) => getComputedStyle(each).fill)
"""
START_MS, MINUTE_MS = 1_795_000_000_000, 60_000
COUNTS = (0, 1, 2, 3, 4, 5, 7, 11, 101, 1_234, 987_654)
#: Heights at which pages draw charts, and smaller ones.
HEIGHTS = (150, 260)
_SUFFIXES = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_DRAW = """
([figure, height]) => {
  const element = document.getElementById("events-chart");
  return Plotly.react(element, figure.data, { ...figure.layout, height, width: 420 }, {}).then(() => {
    const texts = (name) => [...element.querySelectorAll(`.${name} text`)].map((each) => each.textContent);
    return { x: texts("xtick"), y: texts("ytick"), y2: texts("y2tick") };
  });
}
"""


def drawn(page: Page, name: str) -> None:
    """Bring a chart into view, and wait until it has bars."""
    page.locator(f"#{name}").scroll_into_view_if_needed()
    expect(page.locator(f"#{name} .point path").first).to_be_attached()


@pytest.fixture(scope="module")
def busy(server: Server) -> Server:
    """What one test adds is of an application of its own."""
    server("reset", "busy", 40)
    return server


def test_the_sheet_is_the_one_that_the_bundle_makes(browser: Browser) -> None:
    assert (plotly_css.VENDOR / plotly_css.entry("css")["file"]).read_text() == plotly_css.dump(browser)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.matrix)])
def test_each_chart_is_drawn_without_a_violation_and_says_in_words_what_it_shows(
    busy: Server, opened: Opener, scheme: str
) -> None:
    page = opened("/", color_scheme=scheme)
    for name, path in CHARTS.items():
        page.goto(path)
        drawn(page, name)
        assert page.locator("head style").count() == 0
        expect(page.locator(f"#{name}-frame")).to_have_attribute("aria-label", re.compile(r": \d"))


def test_hover_shows_when_and_what(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["events-chart"])
    drawn(page, "events-chart")
    # The chart's own layer for the pointer lies over its points.
    page.locator("#events-chart .scatterlayer .point").first.hover(force=True)
    expect(page.locator("#events-chart .hoverlayer")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d.+[a-z]{3}"))


def test_the_modebar_is_styled_and_works(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["events-chart"])
    drawn(page, "events-chart")
    page.locator("#events-chart .nsewdrag").first.hover()
    bar = page.locator("#events-chart .modebar")
    expect(bar).to_have_css("opacity", "1")
    expect(bar).to_have_css("position", "absolute")
    with page.expect_download() as download:
        bar.locator('[data-title^="Download"]').click()
    assert download.value.suggested_filename.endswith(".png")
    # A zoom is a range of time, as a drag is.
    bar.locator('[data-title="Zoom in"]').click()
    page.wait_for_url("**/events?from=*&to=*")


def test_a_change_of_theme_changes_the_colours(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["events-chart"], color_scheme="light")
    drawn(page, "events-chart")
    light = page.evaluate(_COLOURS, "events-chart")
    page.get_by_label("Dark").check()
    page.wait_for_function(f"(light) => ({_COLOURS})('events-chart')[0] !== light[0]", arg=light)
    page.get_by_label("Light").check()
    page.wait_for_function(f"(light) => ({_COLOURS})('events-chart')[0] === light[0]", arg=light)


def test_a_change_of_zone_moves_the_ticks(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["events-chart"], timezone_id="Asia/Kolkata")
    drawn(page, "events-chart")
    axis = "document.getElementById('events-chart')._fullLayout.xaxis"
    begin = f"Date.parse({axis}.range[0].replace(' ', 'T') + 'Z')"
    utc = page.evaluate(begin)
    page.get_by_label("Local time").check()
    page.wait_for_function(f"(utc) => {begin} - utc > 5 * 3600000", arg=utc)


def test_a_chart_stays_and_follows_what_happens(busy: Server, live: Opener) -> None:
    page = live("/events?application=fresh")
    assert page.locator("#events-chart").count() == 0
    busy("fence", "fresh-1")
    expect(page.locator("[data-event=takeover]")).to_have_count(1)
    page.locator("#events-chart").scroll_into_view_if_needed()
    page.wait_for_function(f"() => {_MARKS} === 1")
    page.evaluate("document.getElementById('events-chart').stays = true")
    busy("fence", "fresh-2")
    page.wait_for_function(f"() => {_MARKS} === 2")
    assert page.evaluate("document.getElementById('events-chart').stays")


def test_a_chart_fits_a_phone_and_has_a_table_beside_it(busy: Server, opened: Opener) -> None:
    name = "timeline-chart"
    page = opened(CHARTS[name], viewport={"width": 360, "height": 740})
    drawn(page, name)
    box = page.locator(f"#{name} svg.main-svg").first.bounding_box()
    assert box
    assert box["width"] <= 360
    fold = page.locator("details", has_text="As a table").first
    fold.locator("summary").click()
    assert fold.locator("tbody tr").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture(scope="module")
def page(busy: Server, browser: Browser, signed_in: dict[str, Any]) -> Iterator[Page]:
    """A page that has loaded Plotly: what it draws is given by each test."""
    with opening(busy, browser, signed_in) as opened:
        page = opened("/")
        expect(page.locator("#events-chart .main-svg").first).to_be_attached()
        # The page must not draw its own figure again.
        page.evaluate("document.querySelector('[data-chart]').removeAttribute('data-chart')")
        yield page


def number_of(tick: str, unit: str = "") -> float:
    match = re.fullmatch(rf"([\d,.]+)([kMG]?){re.escape(unit)}", tick)
    assert match, f"the tick {tick!r} is no plain number"
    return float(match[1].replace(",", "")) * _SUFFIXES[match[2]]


def assert_whole(ticks: Sequence[str], what: str, unit: str = "") -> None:
    numbers = [number_of(tick, unit) for tick in ticks]
    # A dozen decimals: 1.2k is 1,200 in floating point, too.
    assert all(abs(number - round(number)) < 1e-6 for number in numbers), (what, ticks)
    assert len(set(ticks)) == len(ticks), (what, "a tick comes twice", ticks)
    assert 0 in numbers, (what, ticks)
    assert len(ticks) >= 2, (what, "one tick gives no scale", ticks)


def buckets(kind: TransitionKind, count: int) -> Sequence[Bucket]:
    return [Bucket(START_MS + n * MINUTE_MS, MINUTE_MS, {kind: count if n == 3 else 0}) for n in range(10)]


def batches(first: int, number: int, **fields: object) -> Sequence[Batch]:
    return [Batch(batch_id=first + n, **fields) for n in range(number)]


def draw(page: Page, figure: Figure, height: int = 150) -> dict[str, list[str]]:
    found: dict[str, list[str]] = page.evaluate(_DRAW, [figure, height])
    return found


def test_both_axes_of_a_strip_have_whole_ticks(page: Page) -> None:
    for kind, axis in ((TransitionKind.COMMIT, "y"), (TransitionKind.TAKEOVER, "y2")):
        for count in COUNTS:
            for height in HEIGHTS:
                ticks = draw(page, figures.activity_strip(buckets(kind, count)), height)
                assert_whole(ticks[axis], f"{count} of {kind} at {height} px")


def test_rows_and_durations_of_batches_have_whole_ticks(page: Page) -> None:
    for count in COUNTS:
        few = batches(40, 5, input_rows=count, durations={"addBatch": count, "triggerExecution": count})
        assert_whole(draw(page, query_figures.row_figure(few, {}))["y"], f"{count} rows")
        if count:
            assert_whole(draw(page, query_figures.duration_figure(few))["y"], f"{count} ms", unit=" ms")


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 13, 100])
def test_each_batch_tick_is_a_batch_and_comes_once(page: Page, number: int) -> None:
    first = 41
    ticks = draw(page, query_figures.duration_figure(batches(first, number, durations={"addBatch": 5})))["x"]
    found = [number_of(tick) for tick in ticks]
    assert found
    assert len(set(found)) == len(found) <= 7
    assert all(first <= each < first + number for each in found)


def test_a_rate_below_one_is_a_plain_fraction(page: Page) -> None:
    slow = batches(0, 3, input_rows=1, processed_rate=0.9)
    ticks = draw(page, query_figures.row_figure(slow, {}))["y2"]
    numbers = [number_of(tick, "/s") for tick in ticks]
    assert any(0 < each < 1 for each in numbers), ticks
    fast = batches(0, 3, input_rows=1, processed_rate=12_000.0)
    assert any(tick.endswith("k/s") for tick in draw(page, query_figures.row_figure(fast, {}))["y2"])


def test_instants_of_a_short_timeline_differ(page: Page) -> None:
    bars = [Bar(START_MS, START_MS + 300, TransitionKind.COMMIT, "commit")]
    ticks = draw(page, figures.timeline_figure(bars, [], now_ms=START_MS + 300))["x"]
    assert len(ticks) > 1
    assert len(set(ticks)) == len(ticks)
