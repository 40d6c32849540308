"""Proves the charts in Chromium: drawn under the strict policy, themed, live, and kept while pages change."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import plotly_css
from tests.browser.conftest import Opener, Server

CHARTS = {
    "over-time-chart": "/fencing?since=24h",
    "strip-chart": "/",
    "timeline-chart": "/transactions/prod/payments-1",
}
_COLOURS = """
(name) => [...document.querySelectorAll(`#${name} .point path`)].map((each) => getComputedStyle(each).fill)
"""


def drawn(page: Page, name: str) -> None:
    """Bring a chart into view, and wait until it has bars."""
    page.locator(f"#{name}").scroll_into_view_if_needed()
    expect(page.locator(f"#{name} .point path").first).to_be_attached()


@pytest.fixture
def busy(server: Server) -> Server:
    server("reset", "busy", 40)
    return server


def test_the_sheet_is_the_one_that_the_bundle_makes(browser: Browser) -> None:
    assert (plotly_css.VENDOR / plotly_css.entry("css")["file"]).read_text() == plotly_css.dump(browser)


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chart_is_drawn_without_a_violation(busy: Server, opened: Opener, name: str, scheme: str) -> None:
    page = opened(CHARTS[name], color_scheme=scheme)
    drawn(page, name)
    assert page.locator("head style").count() == 0


def test_hover_tells_the_figures(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["over-time-chart"])
    drawn(page, "over-time-chart")
    page.locator("#over-time-chart .point path").last.hover(force=True)
    expect(page.locator("#over-time-chart .hoverlayer .hovertext").first).to_contain_text(
        re.compile(r"\d+ \w+")
    )


def test_the_modebar_is_styled_and_works(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["over-time-chart"])
    drawn(page, "over-time-chart")
    page.locator("#over-time-chart .nsewdrag").hover()
    bar = page.locator("#over-time-chart .modebar")
    expect(bar).to_have_css("opacity", "1")
    expect(bar).to_have_css("position", "absolute")
    before = page.locator("#over-time-chart .xtick text").all_text_contents()
    bar.locator('[data-title="Zoom in"]').click()
    expect(page.locator("#over-time-chart .xtick text").first).not_to_have_text(before[0])
    with page.expect_download() as download:
        bar.locator('[data-title^="Download"]').click()
    assert download.value.suggested_filename.endswith(".png")


def test_a_change_of_theme_changes_the_colours(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["over-time-chart"], color_scheme="light")
    drawn(page, "over-time-chart")
    light = page.evaluate(_COLOURS, "over-time-chart")
    page.get_by_label("Dark").check()
    page.wait_for_function(f"(light) => ({_COLOURS})('over-time-chart')[0] !== light[0]", arg=light)
    page.get_by_label("Light").check()
    page.wait_for_function(f"(light) => ({_COLOURS})('over-time-chart')[0] === light[0]", arg=light)


def test_a_change_of_zone_moves_the_ticks(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["strip-chart"], timezone_id="Asia/Kolkata")
    drawn(page, "strip-chart")
    utc = page.locator("#strip-chart .xtick text").first.text_content() or ""
    page.get_by_label("Local time").check()
    expect(page.locator("#strip-chart .xtick text").first).not_to_have_text(utc)


def test_a_chart_stays_and_follows_what_happens(busy: Server, live: Opener) -> None:
    page = live("/fencing?since=1h&application=fresh")
    expect(page.locator("#one-by-one")).to_be_visible()
    assert page.locator("#over-time-chart").count() == 0
    busy("fence", "fresh-1")
    expect(page.locator("tbody tr[id^='told-']").first).to_contain_text("takeover")
    drawn(page, "over-time-chart")
    page.evaluate("document.getElementById('over-time-chart').stays = true")
    bars = page.evaluate("document.getElementById('over-time-chart').data[0].y")
    busy("fence", "fresh-2")
    page.wait_for_function(
        "(sum) => document.getElementById('over-time-chart').data[0].y.reduce((a, b) => a + b) > sum",
        arg=sum(bars),
    )
    assert page.evaluate("document.getElementById('over-time-chart').stays")


_FIGURE = "document.getElementById('over-time-chart-figure')"
_RANGE = "document.getElementById('over-time-chart').layout.xaxis.range"
#: As a minute later: the window of a live page moves.
_MOVE = f"""
() => {{
  const figure = JSON.parse({_FIGURE}.textContent);
  figure.layout.xaxis.range = figure.layout.xaxis.range.map((ms) => ms + 60000);
  {_FIGURE}.textContent = JSON.stringify(figure);
  document.dispatchEvent(new Event("fenceline:swapped"));
  return figure.layout.xaxis.range;
}}
"""


def press(page: Page, title: str) -> None:
    """Press a button of the chart over time, and wait until it shows another range."""
    before = page.evaluate(_RANGE)
    page.locator("#over-time-chart .nsewdrag").hover()
    page.locator(f'#over-time-chart [data-title="{title}"]').click()
    page.wait_for_function(f"(before) => {_RANGE}[0] !== before[0]", arg=before)


def test_a_zoom_survives_a_refetch_and_a_window_that_moves_until_it_is_reset(
    busy: Server, live: Opener
) -> None:
    page = live("/fencing?since=1h")
    drawn(page, "over-time-chart")
    press(page, "Zoom in")
    zoomed = page.evaluate(_RANGE)
    busy("fence", "fresh-3")
    expect(page.locator("tbody tr[id^='told-']", has_text="fresh-3").first).to_be_visible()
    assert page.evaluate(_RANGE) == zoomed
    for _ in range(2):
        page.evaluate(_MOVE)
        assert page.evaluate(_RANGE) == zoomed
    press(page, "Reset axes")
    assert page.evaluate(_MOVE) == page.evaluate(_RANGE)


def test_a_change_of_zone_shows_the_whole_window_again(busy: Server, opened: Opener) -> None:
    page = opened(CHARTS["over-time-chart"], timezone_id="Asia/Kolkata")
    drawn(page, "over-time-chart")
    whole = page.evaluate(_RANGE)
    press(page, "Zoom in")
    page.get_by_label("Local time").check()
    ahead = [end + 5.5 * 3_600_000 for end in whole]
    page.wait_for_function(f"(ahead) => String({_RANGE}) === String(ahead)", arg=ahead)


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_fits_a_phone_and_has_a_table_beside_it(busy: Server, opened: Opener, name: str) -> None:
    page = opened(CHARTS[name], viewport={"width": 360, "height": 740})
    drawn(page, name)
    box = page.locator(f"#{name} svg.main-svg").first.bounding_box()
    assert box
    assert box["width"] <= 360
    fold = page.locator("details", has_text="As a table").first
    fold.locator("summary").click()
    assert fold.locator("tbody tr").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_every_chart_says_in_words_what_it_shows(busy: Server, opened: Opener) -> None:
    for name, path in CHARTS.items():
        page = opened(path)
        expect(page.locator(f"#{name}-frame")).to_have_attribute("aria-label", re.compile(r": \d"))
