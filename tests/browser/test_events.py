"""Proves the page of events in Chromium: by axe, at every width; a click on a mark opens its evidence, in the
same range of time."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Examiner, Opener, Server
from tests.browser.page_checks import states

PAGES = {"events": "/events?last=24h"}
FURTHER = {
    "no match": "/events?from=2020-01-01&to=2020-01-02&source=alert",
    "wrong": "/events?from=tomorrow&last=1y&before=x",
}
LANES = "#events-chart"


@pytest.mark.parametrize("kind", states("held", "none", "calm"))
def test_the_page_passes_axe_and_fits_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    assert problems_of_pages(opened("/events"), PAGES, FURTHER) == {}


def test_a_click_on_a_mark_opens_its_evidence(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/events?last=24h&source=transition")
    evidence = page.locator("a[data-row]").evaluate_all("links => links.map(link => link.pathname)")
    page.locator(f"{LANES} .scatterlayer .point").first.wait_for()
    with page.expect_navigation():
        _click_mark(page)
    assert urlsplit(page.url).path in evidence
    assert urlsplit(page.url).query == "last=24h"


def _click_mark(page: Page) -> None:
    """Click a mark where it is drawn: Plotly takes pointers on a layer above its marks."""
    box = page.locator(f"{LANES} .scatterlayer .point").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(f"{LANES} .hoverlayer .hovertext")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
