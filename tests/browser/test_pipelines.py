"""Proves the picture of the flow in Chromium: axe and every width, small and of 500 nodes; nodes are reached
and opened with the keyboard; a wide drawing scrolls in its own frame, never the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import problems_of_pages

PAGES = {
    "pipelines": "/pipelines",
    "focus": "/pipelines?focus=topic:payments",
    "no match": "/pipelines?q=nothing-like-it",
    "past": "/pipelines?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z",
}


@pytest.mark.parametrize("kind", ["flow", "large flow", "none"])
def test_pages_pass_axe_and_fit_every_width(server: Server, opened: Opener, kind: str) -> None:
    server("reset", kind)
    assert problems_of_pages(opened("/"), PAGES) == {}


def test_a_node_is_reached_and_opened_with_the_keyboard(server: Server, opened: Opener) -> None:
    server("reset", "flow")
    page = opened("/pipelines")
    node = page.get_by_role("link", name="group billing, blocked")
    node.focus()
    expect(node).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/prod/billing*")


def test_a_wide_drawing_scrolls_in_its_own_frame(server: Server, opened: Opener) -> None:
    server("reset", "large flow")
    page = opened("/pipelines?fold=no", viewport={"width": 390, "height": 844})
    frame = page.get_by_role("region", name="Data flow of prod")
    widths = frame.evaluate("(each) => [each.scrollWidth, each.clientWidth]")
    assert widths[0] > widths[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
