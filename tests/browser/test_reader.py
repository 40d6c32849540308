"""Proves what readers do: sign in, keys, theme, times, copying, filters; that a click on a mark of the events
opens its evidence, in the same range of time; and that whole lists come as files, CSV with a line, and JSON
with an item, for each row.

Rows are selected by mouse and keyboard, stay so while the page is live, and are sent as one plan; and `/`
filters the list in view, or opens the palette where there is none.
"""

import csv
import json
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import NAME, Opener, Server, press_to, sign_in

pytestmark = pytest.mark.data("busy", 40)
OPEN_IDS = ("payments-ledger-7", "inventory-sync-stuck-3")
LANES = "#events-chart"


def test_at_360_pixels_state_id_and_age_stay(opened: Opener) -> None:
    page = opened("/transactions?q=payments-ledger-7", viewport={"width": 360, "height": 740})
    cells = [cell for cell in page.locator("tbody tr td").all() if cell.is_visible()]
    shown = [cell.inner_text().split("\n")[0] for cell in cells]
    assert shown == ["Ongoing", "payments-ledger-7", "open too long", "open for 1 h 5 min"]


@pytest.mark.data("held")
def test_open_for_is_empty_for_what_is_not_open(opened: Opener) -> None:
    """It showed the age of the last update instead, on a phone alone: there nothing is shown."""
    page = opened("/transactions?state=CompleteCommit", viewport={"width": 390, "height": 844})
    cells = page.locator("table.ids tbody td.col-age")
    assert cells.count() > 10
    assert set(cells.all_inner_texts()) == {""}


def test_a_stranger_signs_in_and_arrives_where_he_wanted(server: Server, browser: Browser) -> None:
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto("/transactions?state=open")
        page.get_by_label("Username").fill(NAME)
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("do not match")
        sign_in(page)
        page.wait_for_url("**/transactions?state=open")
        page.get_by_role("button", name="Sign out").press("Enter")
        page.wait_for_url("**/login/")
    finally:
        context.close()


def test_the_keyboard_goes_everywhere(server: Server, opened: Opener) -> None:
    page = opened("/")
    press_to(page, "g t", "**/transactions")
    page.keyboard.press("/")
    page.keyboard.type("inventory-sync-stuck")
    press_to(page, "Enter", "**/transactions?q=inventory-sync-stuck")
    press_to(page, "j Enter", "**/transactions/prod/inventory-sync-stuck-3")
    press_to(page, "g s", "**/system?cluster=prod")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    press_to(page, "g i", f"{server.url}/?cluster=prod")


def test_keys_are_letters_inside_inputs_and_can_be_turned_off(opened: Opener) -> None:
    page = opened("/transactions")
    page.locator("#search").click()
    page.keyboard.type("gtp?/jk")
    assert page.locator("#search").input_value() == "gtp?/jk"
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_label("Disable shortcuts").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.reload()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.data("calm")
def test_a_chosen_theme_is_there_before_the_first_paint(opened: Opener) -> None:
    page = opened("/", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_label("Dark").check()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert dark != light
    page.goto("/system", wait_until="commit")
    page.wait_for_selector("body", state="attached")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark
    page.get_by_label("Auto").check()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == light


def test_times_are_told_in_utc_or_local_and_remembered(opened: Opener) -> None:
    page = opened("/transactions/prod/inventory-sync-stuck-3", timezone_id="Asia/Kolkata")
    instant = page.locator(".step-time time[data-instant]").first
    utc = instant.inner_text()
    page.get_by_label("Local time").check()
    assert instant.inner_text() != utc
    expect(page.locator("[data-zone-name]").first).to_have_text("UTC+05:30")
    page.reload()
    assert instant.inner_text() != utc
    page.get_by_label("UTC", exact=True).check()
    assert instant.inner_text() == utc


def test_ages_tick_without_asking_the_server(opened: Opener) -> None:
    page = opened("/transactions/prod/inventory-sync-stuck-3")
    page.keyboard.press("p")
    age = page.locator("#content time[data-age='']").first
    before = age.inner_text()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(age).not_to_have_text(before)
    assert not asked


def test_an_id_is_copied_as_it_is_spelled(opened: Opener) -> None:
    page = opened("/transactions?q=back", permissions=["clipboard-read", "clipboard-write"])
    page.locator("a[data-row]").first.click()
    page.get_by_role("button", name="Copy id").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "back\\\\slash"


def test_filters_are_addresses(opened: Opener) -> None:
    page = opened("/transactions", viewport={"width": 1600, "height": 740})
    page.get_by_role("link", name="open", exact=True).click()
    page.wait_for_url("**/transactions?state=open")
    page.locator("#search").fill("payments")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Epoch").click()
    assert "state=open" in page.url
    assert "q=payments" in page.url
    assert "sort=epoch" in page.url
    expect(page.locator("th[aria-sort]")).to_have_text("Epoch")
    page.go_back()
    expect(page.locator("th[aria-sort]")).to_have_text("Open for")


def test_any_id_opens_by_a_click(opened: Opener) -> None:
    page = opened("/transactions")
    for name in ("<script>alert(1)</script>", "a/b/", "back", "not UTF-8", "long-", "{{ 7"):
        page.goto("/transactions")
        page.locator("#search").fill(name)
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions?q=*")
        page.locator("a[data-row]").first.click()
        expect(page.locator("#the-id")).to_contain_text(name)


def test_the_api_describes_itself_under_the_policy(server: Server, opened: Opener) -> None:
    page = opened("/api/v1/docs")
    expect(page.locator(".swagger-ui")).to_contain_text("List transactional ids")


@pytest.mark.data("busy", 20)
def test_admin_works_under_the_policy(opened: Opener) -> None:
    page = opened("/admin/")
    page.get_by_role("link", name="Transactional ids", exact=True).first.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(48)
    page.locator("#result_list tbody th a").first.click()
    expect(page.locator("#content")).to_contain_text("Transactional id")


def selected(page: Page) -> int:
    return page.locator("[data-select-row]:checked").count()


@pytest.mark.data("held")
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


@pytest.mark.data("held")
def test_the_keyboard_selects_the_row_that_it_is_at(opened: Opener) -> None:
    page = opened("/transactions")
    for key in ("j", "x", "j", "x", "k", "x"):
        page.keyboard.press(key)
    assert page.get_by_label(f"Select {OPEN_IDS[1]}").is_checked()
    assert selected(page) == 1
    assert page.locator("[data-select-all]").evaluate("box => box.indeterminate")


@pytest.mark.data("held")
def test_a_selection_survives_what_changes_around_it(server: Server, live: Opener) -> None:
    page = live("/partitions")
    page.get_by_label("Select payments-0").check()
    server("pin", "aaa-new")
    expect(page.get_by_role("link", name="aaa-new-0")).to_be_visible()
    assert page.get_by_label("Select payments-0").is_checked()
    expect(page.get_by_role("button", name="Abort hanging transactions")).to_be_enabled()


@pytest.mark.data("held")
def test_slash_filters_the_list_in_view(opened: Opener) -> None:
    page = opened("/partitions?verdict=pinned&last=6h")
    page.keyboard.press("/")
    page.keyboard.type("payments")
    press_to(page, "Enter", "**/partitions?*q=payments*")
    assert "verdict=pinned" in page.url
    assert "last=6h" in page.url
    expect(page.locator("tbody a[data-row]")).to_have_text(["payments-0", "payments-1"])


@pytest.mark.data("held")
def test_slash_opens_the_palette_where_no_list_is_in_view(opened: Opener) -> None:
    page = opened("/partitions/prod/payments/0")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Find ids")).to_be_focused()


def downloaded(page: Page, form: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("link", name=form, exact=True).click()
    return download.value.path().read_text()


@pytest.mark.data("busy", 700)
def test_a_list_of_several_pages_is_one_whole_file(opened: Opener) -> None:
    page = opened("/transactions")
    items = json.loads(downloaded(page, "JSON"))["items"]
    rows = list(csv.DictReader(downloaded(page, "CSV").splitlines()))
    assert len(items) > 700
    assert [row["transactional_id"] for row in rows] == [item["transactional_id"] for item in items]


@pytest.mark.data("held")
def test_a_click_on_a_mark_opens_its_evidence(opened: Opener) -> None:
    page = opened("/events?last=24h&source=transition")
    evidence = page.locator("a[data-row]").evaluate_all("links => links.map(link => link.pathname)")
    page.locator(f"{LANES} .scatterlayer .point").first.wait_for()
    with page.expect_navigation():
        _click_mark(page)
    assert urlsplit(page.url).path in evidence
    assert urlsplit(page.url).query == "last=24h"


def _click_mark(page: Page) -> None:
    """Click a mark where it is drawn: Plotly takes pointers on a layer above its marks."""
    box = page.locator(f"{LANES} .scatterlayer .point").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(f"{LANES} .hoverlayer .hovertext")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
