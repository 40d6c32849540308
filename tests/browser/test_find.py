"""Proves Ctrl K in Chromium: it opens from anywhere, keys alone lead to a page, axe finds nothing, and the
results have a page of their own."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import Looks, problems_of_what_is_open, states


@pytest.fixture(scope="module", autouse=True)
def held(server: Server) -> None:
    """No test of this file changes what there is."""
    server("reset", "held")


def opened_palette(page: Page, asked: str) -> None:
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find ids")
    expect(box).to_be_focused()
    box.press_sequentially(asked)
    expect(page.get_by_role("option").first).to_be_visible()


def test_keys_alone_lead_to_a_page(opened: Opener) -> None:
    page = opened("/alerts")
    opened_palette(page, "billing")
    box = page.get_by_role("combobox", name="Find ids")
    expect(box).to_have_attribute("aria-expanded", "true")
    first = page.locator("[role=option][aria-selected=true]")
    expect(first).to_have_count(1)
    before = first.get_attribute("id")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert first.get_attribute("id") == before == box.get_attribute("aria-activedescendant")
    target = first.get_attribute("href") or ""
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(target) + "$"))


def test_it_opens_over_another_field_and_closes_with_escape(opened: Opener) -> None:
    page = opened("/transactions")
    page.get_by_role("searchbox").fill("pay")
    opened_palette(page, "orders")
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Find ids")).to_be_hidden()
    assert page.get_by_role("searchbox").input_value() == "pay"


def test_a_button_opens_it(opened: Opener) -> None:
    page = opened("/")
    page.get_by_role("button", name="Go to anything").click()
    expect(page.get_by_role("combobox", name="Find ids")).to_be_focused()


@pytest.mark.parametrize("kind", states("held"))
def test_the_palette_passes_axe_and_fits(opened: Opener, looks: Looks, kind: str) -> None:
    page = opened("/")
    opened_palette(page, "pay")
    assert problems_of_what_is_open(page, looks) == []
