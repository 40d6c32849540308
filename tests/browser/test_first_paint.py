"""Proves in Chromium that a page has its size from the first paint on: nothing moves once data is there."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server

WIDTHS = (1440, 390)
#: The sum of all layout shifts, those included that were before this was asked.
_SHIFTED = """
() => new Promise((resolve) => {
  let sum = 0;
  const add = (list) => list.getEntries().forEach((shift) => (sum += shift.hadRecentInput ? 0 : shift.value));
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 500);
})
"""
_SOCKET_UP = '#live[data-socket="up"]'


def timeline(page: Page) -> float:
    """Return the height of the timeline's part of the page."""
    box = page.locator("#timeline-part").bounding_box()
    assert box
    return box["height"]


def lamp_fits(page: Page) -> bool:
    return bool(page.locator("#live-words").evaluate("words => words.scrollWidth <= words.clientWidth"))


@pytest.mark.parametrize("kind", ["calm", "incidents"])
@pytest.mark.parametrize("path", ["/", "/events"])
def test_nothing_moves_once_the_timeline_is_there(
    server: Server, opened: Opener, kind: str, path: str
) -> None:
    server("reset", kind)
    for width in WIDTHS:
        page = opened(path, viewport={"width": width, "height": 900})
        page.locator(_SOCKET_UP).wait_for()
        expect(page.locator('#timeline-part [aria-busy="true"]')).to_have_count(0)
        assert page.evaluate(_SHIFTED) <= 0.02, f"{kind} {path} at {width}"
        assert timeline(page) == 270, f"{kind} {path} at {width}"
        assert lamp_fits(page), f"{kind} {path} at {width}"


@pytest.mark.data("blind")
def test_the_lamp_is_not_cut_off_on_a_phone_while_it_is_blind(opened: Opener) -> None:
    page = opened("/", viewport={"width": 390, "height": 900})
    page.locator(_SOCKET_UP).wait_for()
    assert lamp_fits(page)
