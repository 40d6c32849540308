"""Proves in Chromium how one acts: typed confirmation, live results, expiry."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PASSWORD, Opener, Server, press_to, sign_in
from tests.browser.page_checks import axe_violations


def newest(page: Page) -> str:
    page.goto("/actions")
    return page.locator("tr[id^=a-] a[data-row]").first.get_attribute("href") or ""


@pytest.fixture
def viewer(server: Server, browser: Browser) -> Iterator[Page]:
    """Somebody who may only look."""
    server("user", "vera", PASSWORD, "viewer")
    context = browser.new_context(base_url=server.url)
    page = context.new_page()
    page.goto("/login/")
    sign_in(page, "vera")
    page.wait_for_url(f"{server.url}/")
    yield page
    context.close()


@pytest.mark.data("watched")
def test_the_button_is_on_once_the_text_is_typed_exactly(server: Server, opened: Opener) -> None:
    server("plan", "payments-7")
    page = opened("/")
    page.goto(newest(page))
    send = page.get_by_role("button", name="Fence producer")
    expect(send).to_be_disabled()
    typed = page.get_by_label("Type payments-7")
    for text, off in {
        "payments-": True,
        "payments-7 ": True,
        "Payments-7": True,
        "payments-7": False,
    }.items():
        typed.fill(text)
        assert send.is_disabled() is off, text
    send.click()
    # A reason is required: the browser asks for it and sends nothing.
    assert page.evaluate("document.querySelector('#confirm-reason').validity.valueMissing")
    expect(page.locator(".id-line .badge").first).to_have_text("pending confirmation")


@pytest.mark.data("watched")
def test_without_scripts_the_server_says_what_is_wrong(server: Server, opened: Opener) -> None:
    server("plan", "payments-7")
    page = opened("/", java_script_enabled=False, faults=True)
    page.goto(newest(page))
    page.get_by_label(re.compile("^Reason")).fill("ticket 4411")
    page.get_by_label("Type payments-7").fill("payments")
    page.get_by_role("button", name="Fence producer").click()
    expect(page.get_by_role("alert")).to_contain_text("type exactly that")
    expect(page.get_by_label(re.compile("^Reason"))).to_have_value("ticket 4411")


@pytest.mark.data("watched")
def test_what_is_typed_stays_while_the_page_changes(server: Server, live: Opener) -> None:
    server("plan", "payments-7")
    page = live("/actions")
    page = live(newest(page))
    page.get_by_label("Type payments-7").fill("paym")
    page.get_by_label(re.compile("^Reason")).fill("half a reason")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        server("plan", "orders-1")
    expect(page.get_by_label("Type payments-7")).to_have_value("paym")
    expect(page.get_by_label(re.compile("^Reason"))).to_have_value("half a reason")
    expect(page.get_by_role("button", name="Fence producer")).to_be_disabled()


@pytest.mark.data("watched")
def test_the_same_page_follows_the_execution_by_its_bells_alone(server: Server, live: Opener) -> None:
    server("plan", "payments-7")
    page = live("/actions")
    page = live(newest(page))
    page.evaluate("window.stays = true")
    server("act", "executing")
    expect(page.locator(".now-true")).to_contain_text("ada confirmed it")
    expect(page.locator("#confirm")).to_have_count(0)
    server("act", "done")
    expect(page.locator(".id-line .badge").first).to_have_text("done")
    expect(page.locator(".result-done")).to_contain_text("Its coordinator fenced epoch 3 → 4")
    server("follow")
    expect(page.locator("#follow-1")).to_contain_text("LSO of payments-0 moved 48,211 → 49,981")
    assert page.evaluate("window.stays"), "the page was loaded again"


@pytest.mark.data("watched")
def test_a_plan_that_expires_says_so_by_itself(server: Server, live: Opener) -> None:
    server("plan", "payments-7")
    page = live("/actions")
    page = live(newest(page))
    page.get_by_label("Type payments-7").fill("payments-7")
    expect(page.get_by_role("button", name="Fence producer")).to_be_enabled()
    # Five minutes go by: for the server's clock, and for the page's.
    server("expire")
    page.evaluate("document.querySelector('#confirm').dataset.until = fenceline.now()")
    expect(page.get_by_role("button", name="Plan again")).to_be_visible()
    expect(page.locator("#confirm")).to_have_count(0)
    expect(page.locator(".now-true")).to_contain_text("The plan expired at")


@pytest.mark.data("acting")
def test_a_button_that_finds_no_cluster_says_so(opened: Opener) -> None:
    page = opened("/partitions/prod/payments/0", faults=True)
    page.get_by_role("button", name="Abort hanging transaction…").last.click()
    expect(page.locator("h1")).to_have_text("No plan could be made")
    expect(page.locator(".sorry")).to_contain_text("Nothing was sent to prod.")
    expect(page.get_by_role("button", name="Plan again")).to_be_visible()
    assert not axe_violations(page)


@pytest.mark.data("acting")
def test_who_may_only_look_sees_why(viewer: Page) -> None:
    viewer.goto("/transactions/prod/inventory-sync-stuck-3")
    expect(viewer.get_by_role("button", name="Fence producer…")).to_be_disabled()
    expect(viewer.locator(".offers-line")).to_contain_text("it needs the role operator")
    viewer.goto(newest(viewer))
    expect(viewer.locator("#confirm-not")).to_contain_text("it needs the role operator")
    expect(viewer.get_by_role("button", name="Fence producer")).to_be_disabled()
    assert not axe_violations(viewer)


@pytest.mark.data("acting")
def test_the_keyboard_goes_to_the_log_and_into_a_plan(opened: Opener) -> None:
    page = opened("/")
    press_to(page, "g a", "**/actions*")
    press_to(page, "j Enter", re.compile(r"/actions/\d+$"))
    page.get_by_label(re.compile("^Reason")).focus()
    page.keyboard.type("ticket 4411")
    page.keyboard.press("Tab")
    page.keyboard.type("payments-7")
    expect(page.get_by_role("button", name="Fence producer")).to_be_enabled()
