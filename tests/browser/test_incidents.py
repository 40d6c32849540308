"""Proves the pages of incidents in Chromium: by axe, at every width; what an operator writes is shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import problems_of_pages

LISTS = {"incidents": "/incidents?state=all", "no match": "/incidents?severity=info&state=wrong&before=x"}


def test_pages_pass_axe_and_fit_every_width(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/")
    first = page.locator("a[data-incident]").first.get_attribute("href") or ""
    assert problems_of_pages(page, LISTS | {"incident": first}) == {}


@pytest.mark.parametrize("kind", ["none", "calm", "blind"])
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
