"""Proves the page of events in Chromium: by axe, at every width; a drag over its lanes chooses a range, a
click on a mark opens its evidence, and a copied link shows the same range."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import problems_of_pages, states

PAGES = {
    "events": "/events?last=24h",
    "no match": "/events?from=2020-01-01&to=2020-01-02&source=alert",
    "wrong": "/events?from=tomorrow&last=1y&before=x",
}
LANES = "#events-chart"


@pytest.mark.parametrize("kind", states("held", "none", "calm"))
def test_the_page_passes_axe_and_fits_every_width(server: Server, opened: Opener, kind: str) -> None:
    server("reset", kind)
    assert problems_of_pages(opened("/events"), PAGES) == {}


def test_a_drag_over_the_lanes_chooses_that_range(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/events?last=24h&source=finding")
    drag = page.locator(f"{LANES} .nsewdrag").first
    expect(drag).to_be_attached()
    box = drag.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    with page.expect_navigation():
        page.mouse.up()
    asked = parse_qs(urlsplit(page.url).query)
    assert asked.keys() == {"source", "from", "to"}
    start, end = (page.evaluate("iso => Date.parse(iso)", asked[name][0]) for name in ("from", "to"))
    assert abs(end - start - 6 * 3_600_000) < 600_000


def test_a_click_on_a_mark_opens_its_evidence(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/events?last=24h&source=finding")
    evidence = page.locator("a[data-row]").evaluate_all("links => links.map(link => link.pathname)")
    page.locator(f"{LANES} .scatterlayer .point").first.wait_for()
    with page.expect_navigation():
        _click_mark(page)
    assert urlsplit(page.url).path in evidence


def test_the_copied_link_names_the_range_absolutely(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/events?last=1h")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"[?&]from=[^&]+Z&to=[^&]+Z$", link)
    page.goto(link)
    expect(page.locator("[data-ignored]")).to_have_count(0)
    expect(page.locator("[data-event]").first).to_be_visible()


def _click_mark(page: Page) -> None:
    """Click a mark where it is drawn: Plotly takes pointers on a layer above its marks."""
    box = page.locator(f"{LANES} .scatterlayer .point").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(f"{LANES} .hoverlayer .hovertext")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
