"""Proves the History page in Chromium: by axe, at every width, empty and full."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Opener, Server
from tests.browser.test_reader import examined
from tests.web import reported

FULL = "/history?since=1y&by=aborts"


@pytest.fixture(scope="module")
def full(server: Server) -> None:
    """What the history job writes."""
    reported.report(server.reports)


def test_axe_finds_nothing_before_the_job_has_run(server: Server, opened: Opener) -> None:
    server("reset", "watched")
    assert not server.reports.exists()
    assert not examined(opened("/history"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [FULL, "/history?since=2y&application=nobody"])
def test_axe_finds_nothing(server: Server, opened: Opener, full: None, scheme: str, path: str) -> None:
    server("reset", "watched")
    assert not examined(opened(path, color_scheme=scheme))


@pytest.mark.parametrize("width", [320, 360, 1281])
def test_no_page_scrolls_sideways(server: Server, opened: Opener, full: None, width: int) -> None:
    server("reset", "watched")
    page = opened(FULL, viewport={"width": width, "height": 740})
    assert page.locator("tbody tr").count() > 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
