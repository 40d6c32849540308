"""Proves in Chromium that rows are selected by mouse and keyboard, stay so while the page is live, and are
sent as one plan; and that `/` filters the list in view, or opens the palette where there is none."""

from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server, press_to

pytestmark = pytest.mark.data("held")

OPEN_IDS = ("payments-ledger-7", "inventory-sync-stuck-3")


def selected(page: Page) -> int:
    return page.locator("[data-select-row]:checked").count()


def test_selected_rows_are_sent_as_one_plan(opened: Opener) -> None:
    page = opened("/transactions", faults=True)
    button = page.get_by_role("button", name="Fence producers")
    expect(button).to_be_disabled()
    page.get_by_label("Select all rows of this page").check()
    number = page.locator("[data-select-row]").count()
    expect(page.locator("#selected-number")).to_have_text(f"{number} selected")
    page.get_by_role("button", name="Clear selection").click()
    assert selected(page) == 0
    for name in OPEN_IDS:
        page.get_by_label(f"Select {name}").check()
    with page.expect_request("**/actions/plan") as sent:
        button.click()
    fields = parse_qs(sent.value.post_data or "")
    assert fields["subject"] == list(OPEN_IDS)
    assert (fields["act"], fields["cluster"]) == (["fence"], ["prod"])


def test_the_keyboard_selects_the_row_that_it_is_at(opened: Opener) -> None:
    page = opened("/transactions")
    for key in ("j", "x", "j", "x", "k", "x"):
        page.keyboard.press(key)
    assert page.get_by_label(f"Select {OPEN_IDS[1]}").is_checked()
    assert selected(page) == 1
    assert page.locator("[data-select-all]").evaluate("box => box.indeterminate")


def test_a_selection_survives_what_changes_around_it(server: Server, live: Opener) -> None:
    page = live("/partitions")
    page.get_by_label("Select payments-0").check()
    server("pin", "aaa-new")
    expect(page.get_by_role("link", name="aaa-new-0")).to_be_visible()
    assert page.get_by_label("Select payments-0").is_checked()
    expect(page.get_by_role("button", name="Abort hanging transactions")).to_be_enabled()


def test_slash_filters_the_list_in_view(opened: Opener) -> None:
    page = opened("/partitions?verdict=pinned&last=6h")
    page.keyboard.press("/")
    page.keyboard.type("payments")
    press_to(page, "Enter", "**/partitions?*q=payments*")
    assert "verdict=pinned" in page.url
    assert "last=6h" in page.url
    expect(page.locator("tbody a[data-row]")).to_have_text(["payments-0", "payments-1"])


def test_slash_opens_the_palette_where_no_list_is_in_view(opened: Opener) -> None:
    page = opened("/partitions/prod/payments/0")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Find ids")).to_be_focused()
