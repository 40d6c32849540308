"""Proves in Chromium what pages cost to load: bytes as sent, and requests, with an empty and a full cache;
and that a page has its size from the first paint on: nothing moves once data is there."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server

COLD_BYTES, WARM_BYTES, MOST_REQUESTS = 250_000, 40_000, 12
PATHS = {
    "incidents": "/",
    "transactions": "/transactions",
    "partitions": "/partitions",
    "groups": "/groups",
    "alerts": "/alerts",
    "actions": "/actions",
    "system": "/system",
}
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


@dataclass
class Load:
    """What came over the network while it was recorded: what the cache answered costs nothing."""

    requests: int = 0
    received: int = 0
    #: Bytes of the library that draws charts, which is fetched once one is in view; not in the others.
    plotly: int = 0


@pytest.fixture(scope="module")
def busy(server: Server) -> None:
    """The tests that weigh pages come first, and change nothing of it."""
    server("reset", "busy")


def recorded(page: Page) -> Load:
    """Record all loads of a page from now on; WebSockets are not loads."""
    load, session = Load(), page.context.new_cdp_session(page)
    urls: dict[str, str] = {}

    def sent(event: dict[str, Any]) -> None:
        urls[event["requestId"]] = event["request"]["url"]

    def finished(event: dict[str, Any]) -> None:
        if "/plotly.js" in urls[event["requestId"]]:
            load.plotly += int(event["encodedDataLength"])
        elif event["encodedDataLength"]:
            load.requests += 1
            load.received += int(event["encodedDataLength"])

    session.on("Network.requestWillBeSent", sent)
    session.on("Network.loadingFinished", finished)
    session.send("Network.enable")
    return load


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("name", PATHS)
def test_a_page_is_light(opened: Opener, name: str) -> None:
    page = opened("about:blank")
    load = recorded(page)
    page.goto(PATHS[name], wait_until="networkidle")
    assert load.requests, "nothing was recorded"
    assert load.received <= COLD_BYTES
    assert load.requests <= MOST_REQUESTS
    cold = replace(load)
    page.goto("about:blank")
    page.goto(PATHS[name], wait_until="networkidle")
    assert load.received - cold.received <= WARM_BYTES
    assert load.plotly == cold.plotly, "Plotly was fetched twice"
    print(f"{name}: cold {cold}, warm {load.received - cold.received} in {load.requests - cold.requests}")


@pytest.mark.usefixtures("busy")
def test_plotly_is_fetched_once_a_chart_is_in_view(opened: Opener) -> None:
    page = opened("about:blank", viewport={"width": 1280, "height": 100})
    load = recorded(page)
    page.goto("/", wait_until="networkidle")
    assert not load.plotly
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_attached()
    assert load.plotly


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
