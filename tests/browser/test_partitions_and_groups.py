"""Proves the pages of partitions, groups and recoveries in Chromium: by keyboard, and live."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opener, Server, press_to

pytestmark = pytest.mark.data("held")

#: The second key was pressed at once, and is delivered after the 1.5 s for which the first one holds.
_G_AND_A_LATE_P = """() => {
  const [g, p] = ["g", "p"].map((key) => new KeyboardEvent("keydown", { key, bubbles: true }));
  document.body.dispatchEvent(g);
  setTimeout(() => document.body.dispatchEvent(p), 1600);
}"""


def test_at_360_pixels_name_verdict_and_blocker_stay(opened: Opener) -> None:
    page = opened("/partitions?q=payments-0", viewport={"width": 360, "height": 740})
    cells = [cell.inner_text() for cell in page.locator("tbody td").all() if cell.is_visible()]
    shown = ["payments-0", "hanging", "hanging", "1,770 uncommitted"]
    assert [cell for cell in cells if cell and "\n" not in cell][:4] == shown
    assert "payments-ledger-7" in cells
    page.goto("/groups?q=billing")
    cells = [cell.inner_text() for cell in page.locator("tbody td").all() if cell.is_visible()]
    assert cells[:4] == ["billing", "BLOCKED", "group blocked", "3,540 lag"]


def test_the_keyboard_goes_from_a_pin_to_who_waits(opened: Opener) -> None:
    page = opened("/")
    press_to(page, "g p", "**/partitions")
    page.keyboard.press("/")
    page.keyboard.type("payments-0")
    press_to(page, "Enter", "**/partitions?q=payments-0")
    press_to(page, "j Enter", "**/partitions/prod/payments/0")
    press_to(page, "j j Enter", "**/groups/prod/billing")
    press_to(page, "g g", "**/groups*")
    press_to(page, "g e", "**/events*")
    page.get_by_role("link", name="Recoveries").press("Enter")
    page.wait_for_url("**/recoveries*")


def test_two_keys_belong_together_though_the_page_gets_the_second_late(opened: Opener) -> None:
    page = opened("/groups")
    page.evaluate(_G_AND_A_LATE_P)
    page.wait_for_url("**/partitions")


def test_a_pin_appears_by_its_bell_alone(server: Server, live: Opener) -> None:
    page = live("/partitions?verdict=open")
    partition = live("/partitions/prod/fresh/0", faults=True)
    expect(page.locator("tbody tr", has_text="stock-audit-1")).to_be_visible()
    server("pin", "fresh")
    expect(page.locator("tbody tr", has_text="fresh-0")).to_be_visible()
    expect(partition.locator("[data-fact]")).to_contain_text("at offset 48,211")


def test_an_open_fold_stays_open_while_the_page_changes(server: Server, live: Opener) -> None:
    server("hour")
    page = live("/partitions/prod/payments/0")
    page.locator("#series-table summary").click()
    page.evaluate("document.getElementById('series-table').stays = true")
    server("pin", "other")
    page.wait_for_function("document.getElementById('the-id')")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        server("ring", "groups")
    assert page.evaluate("document.getElementById('series-table').stays")
    expect(page.locator("#series-table table")).to_be_visible()


def test_replicas_are_asked_by_a_press(opened: Opener) -> None:
    page = opened("/partitions/prod/payments/0")
    page.get_by_role("button", name="Query all replicas").click()
    page.wait_for_url("**/partitions/prod/payments/0?asked=*#replicas")
    expect(page.locator("#replicas ~ form [role=status]")).to_contain_text("Waiting for answers.")


def test_lost_ranges_are_copied_and_downloaded(opened: Opener) -> None:
    page = opened("/recoveries?q=payments-ledger-7", permissions=["clipboard-read", "clipboard-write"])
    page.locator('a[data-row][href^="/recoveries/"]').first.click()
    page.get_by_role("button", name="Copy ranges").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "payments 0 48211 48273\npayments 1 7000 7110"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    assert download.value.suggested_filename.endswith(".csv")
    assert "48211,48273,63,true" in download.value.path().read_text()
