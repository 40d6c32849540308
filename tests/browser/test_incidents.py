"""Proves the pages of incidents in Chromium: their size, on paper, as a file, and what an operator writes."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import axe_violations, fits


@pytest.mark.parametrize(("kind", "incidents"), [("incidents", 2), ("crowd", 30)])
def test_the_pages_of_a_crash_fit_a_screen_and_a_third(
    server: Server, opened: Opener, kind: str, incidents: int
) -> None:
    """1,200 px of the first page, a query and a transaction, 1,500 px of an incident, at a width of 1,440."""
    server("reset", kind)
    page = opened("/", viewport={"width": 1_440, "height": 900})
    expect(page.locator("[data-incident]").first).to_be_visible()
    incident = page.locator("[data-incident] h3 a").first.get_attribute("href") or ""
    query = page.locator(".home-queries tbody a").first.get_attribute("href") or ""
    heights = {}
    for path in ("/", query, "/transactions/prod/inventory-sync-3", incident):
        page.goto(path)
        expect(page.locator("h1").first).to_be_visible()
        heights[path] = page.evaluate("document.documentElement.scrollHeight")
    assert heights.pop(incident) <= 1_500
    assert max(heights.values()) <= 1_200, heights
    page.goto("/")
    assert page.get_by_role("link", name=f"Incidents {incidents} open").count() == 1


@pytest.mark.data("held")
def test_an_operator_opens_an_incident_acknowledges_it_and_adds_a_note(opened: Opener) -> None:
    page = opened("/")
    page.locator("[data-incident] h3 a").first.click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    page.get_by_role("link", name="Add note").click()
    page.get_by_role("textbox", name="Note").fill("ticket 4711")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".note-list")).to_contain_text("ticket 4711")
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("row").filter(has_text="ticket 4711")).to_be_visible()


@pytest.mark.data("held")
def test_its_html_file_is_complete_without_a_network(
    opened: Opener, browser: Browser, tmp_path: Path
) -> None:
    page = opened("/")
    page.locator("[data-incident] h3 a").first.click()
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
    for title in ("Timeline", "Cause and evidence", "Effects"):
        expect(alone.get_by_role("heading", name=title)).to_be_visible()
    assert axe_violations(alone) == []
    for width in (1280, 390):
        alone.set_viewport_size({"width": width, "height": 740})
        assert fits(alone, width), width
    assert (asked, wrong) == ([(tmp_path / "incident.html").as_uri()], [])
    context.close()


#: A4 at 96 dots an inch, within its margins.
PAPER_WIDTH = 718


@pytest.mark.parametrize(("kind", "path"), [("held", ""), ("acting", "/actions"), ("held", "/")])
def test_incidents_and_plans_print_without_what_only_a_screen_can_do(
    server: Server, opened: Opener, kind: str, path: str
) -> None:
    server("reset", kind)
    page = opened(path or "/", color_scheme="dark")
    if path != "/":
        link = "[data-incident] h3 a" if not path else "a[data-row]"
        page.goto(page.locator(link).first.get_attribute("href") or "")
    page.set_viewport_size({"width": PAPER_WIDTH, "height": 1_000})
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("[data-headline]").first).to_be_visible()
    for hidden in ("#side", "section.top", "main form"):
        assert not any(each.is_visible() for each in page.locator(hidden).all()), hidden
    folded = page.locator("#content details:not(.menu) > :not(summary)")
    assert all(each.is_visible() for each in folded.all())
    assert fits(page, PAPER_WIDTH)
    assert axe_violations(page, ["color-contrast"]) == []
    assert page.pdf().startswith(b"%PDF")
