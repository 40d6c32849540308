"""Proves in Chromium what pages cost to load: bytes as sent, and requests, with an empty and a full cache."""

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


@dataclass
class Load:
    """What came over the network while it was recorded: what the cache answered costs nothing."""

    requests: int = 0
    received: int = 0
    #: Bytes of the library that draws charts, which is fetched once one is in view; not in the others.
    plotly: int = 0


@pytest.fixture(scope="module", autouse=True)
def busy(server: Server) -> None:
    """No test of this file changes what there is."""
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


def test_plotly_is_fetched_once_a_chart_is_in_view(opened: Opener) -> None:
    page = opened("about:blank", viewport={"width": 1280, "height": 100})
    load = recorded(page)
    page.goto("/", wait_until="networkidle")
    assert not load.plotly
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_attached()
    assert load.plotly
