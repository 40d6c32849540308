"""Proves the pages of incidents in Chromium: by axe, at every width; what an operator writes is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import axe_violations, fits, problems_of_pages, states

LISTS = {"incidents": "/incidents?state=all", "no match": "/incidents?severity=info&state=wrong&before=x"}


def test_pages_pass_axe_and_fit_every_width(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/")
    first = page.locator("a[data-incident]").first.get_attribute("href") or ""
    assert problems_of_pages(page, LISTS | {"incident": first}) == {}


@pytest.mark.parametrize("kind", states("none", "calm", "blind"))
def test_empty_lists_pass_axe_and_fit_every_width(server: Server, opened: Opener, kind: str) -> None:
    server("reset", kind)
    assert problems_of_pages(opened("/"), {"incidents": LISTS["incidents"]}) == {}


def test_an_operator_opens_an_incident_acknowledges_it_and_adds_a_note(
    server: Server, opened: Opener
) -> None:
    server("reset", "held")
    page = opened("/")
    page.locator("a[data-incident]").first.click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    page.locator("#add-note summary").click()
    page.get_by_label("Note").fill("ticket 4711")
    page.get_by_role("button", name="Add note").click()
    expect(page.get_by_role("row").filter(has_text="ticket 4711")).to_be_visible()


def test_its_html_file_is_complete_without_a_network(
    server: Server, opened: Opener, browser: Browser, tmp_path: Path
) -> None:
    server("reset", "held")
    page = opened("/")
    page.locator("a[data-incident]").first.click()
    with page.expect_download() as download:
        page.get_by_role("link", name="HTML").click()
    download.value.save_as(tmp_path / "incident.html")
    context = browser.new_context(offline=True)
    asked: list[str] = []
    wrong: list[str] = []
    alone = context.new_page()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("console", lambda said: wrong.append(said.text))
    alone.on("pageerror", lambda error: wrong.append(str(error)))
    alone.goto((tmp_path / "incident.html").as_uri())
    bars = alone.locator(".js-plotly-plot .point path")
    expect(bars.first).to_be_attached()
    bars.first.hover(force=True)
    expect(alone.locator(".hoverlayer .hovertext").first).to_be_attached()
    expect(alone.get_by_role("table")).to_have_count(2)
    assert axe_violations(alone) == []
    for width in (1280, 390):
        alone.set_viewport_size({"width": width, "height": 740})
        assert fits(alone, width), width
    assert (asked, wrong) == ([(tmp_path / "incident.html").as_uri()], [])
    context.close()
