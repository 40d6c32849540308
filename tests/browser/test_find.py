"""Proves Ctrl K in Chromium: it opens from anywhere, keys alone lead to a page, axe finds nothing, and the
results have a page of their own."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server
from tests.browser.page_checks import axe_violations, fits, problems_of_pages


def opened_palette(page: Page, asked: str) -> None:
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find ids")
    expect(box).to_be_focused()
    box.press_sequentially(asked)
    expect(page.get_by_role("option").first).to_be_visible()


def test_keys_alone_lead_to_a_page(server: Server, opened: Opener) -> None:
    server("reset", "held")
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


def test_it_opens_over_another_field_and_closes_with_escape(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/transactions")
    page.get_by_role("searchbox").fill("pay")
    opened_palette(page, "orders")
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Find ids")).to_be_hidden()
    assert page.get_by_role("searchbox").input_value() == "pay"


def test_a_button_opens_it(server: Server, opened: Opener) -> None:
    server("reset", "held")
    page = opened("/")
    page.get_by_role("button", name="Go to anything").click()
    expect(page.get_by_role("combobox", name="Find ids")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_palette_passes_axe_and_fits(server: Server, opened: Opener, scheme: str, width: int) -> None:
    server("reset", "held")
    page = opened("/")
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    opened_palette(page, "pay")
    assert axe_violations(page) == []
    assert fits(page, width)


def test_the_page_passes_axe_and_fits_every_width(server: Server, opened: Opener) -> None:
    server("reset", "held")
    assert problems_of_pages(opened("/"), {"find": "/find?q=pay", "nothing": "/find"}) == {}
