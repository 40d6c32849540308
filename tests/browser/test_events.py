"""Proves in Chromium that a click on a mark of the events opens its evidence, in the same range of time."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener

LANES = "#events-chart"


@pytest.mark.data("held")
def test_a_click_on_a_mark_opens_its_evidence(opened: Opener) -> None:
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
