"""Proves the charts in Chromium: drawn under the strict policy, themed, live, and kept while pages change."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import plotly_css
from tests.browser.conftest import Opener, Server

CHARTS = {
    "events-chart": "/events?last=24h",
    "timeline-chart": "/transactions/prod/payments-1",
}
_COLOURS = """
(name) => [...document.querySelectorAll(`#${name} .point path`)].map((each) => getComputedStyle(each).fill)
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


_MARKS = (
    "document.getElementById('events-chart').data?.filter((trace) => trace.mode === 'markers+text')"
    ".flatMap((trace) => trace.x).length"
)


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
