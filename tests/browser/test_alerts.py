"""Proves the pages of alerting in Chromium: by axe, at every width, live; by hand, from silence to test."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Examiner, Opener, Server
from tests.browser.page_checks import states

LISTS = {
    "alerts": "/alerts",
    "channels": "/channels",
    "deliveries": "/deliveries",
    "silences": "/silences",
    "new channel": "/channels/new",
    "new silence": "/silences/new",
}
FURTHER = {"alerts, no match": "/alerts?q=nothing-like-it&state=wrong"}
#: The first row of a list leads to these.
ONES = {
    "alert": "/alerts",
    "channel": "/channels",
    "delivery, failed": "/deliveries?state=failed",
    "silence": "/silences",
}


def every(page: Page) -> dict[str, str]:
    """Return the address of each page that is about one thing, and of each list."""
    found = dict(LISTS)
    for name, where in ONES.items():
        page.goto(where)
        found[name] = page.locator("a[data-row]").first.get_attribute("href") or ""
    channel = found["channel"]
    return found | {name: f"{channel}/{name}" for name in ("edit", "secret", "delete")}


@pytest.mark.parametrize("kind", states("alerts"))
def test_pages_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    page = opened("/alerts")
    assert problems_of_pages(page, every(page), FURTHER) == {}


@pytest.mark.parametrize("kind", states("none", "new", "watched", "blind"))
def test_empty_lists_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    assert problems_of_pages(opened("/"), LISTS, FURTHER) == {}


def test_an_alert_appears_by_its_bell_alone(server: Server, live: Opener) -> None:
    server("reset", "watched")
    page = live("/alerts")
    expect(page.get_by_role("heading", level=1)).to_have_text("No firing alerts.")
    server("fire", "payments-9")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 firing alert.")
    expect(page.locator("#nav-alerts")).to_contain_text("1")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/alerts/*")
    expect(page.locator("h1")).to_have_text("payments-9")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/alerts")


def test_an_alert_is_silenced_from_its_line_after_a_look_at_what_else_goes_quiet(
    server: Server, opened: Opener
) -> None:
    server("reset", "alerts")
    # A refused form is answered with 422, which Chromium logs.
    page = opened("/alerts?q=payments-7", faults=True)
    page.get_by_role("link", name=re.compile("^Silence… open too long payments-7")).click()
    expect(page.locator("#preview li")).to_have_count(1)
    page.get_by_label("Matchers").fill('alertname="open_too_long", severity="critical"')
    expect(page.locator("#preview li")).to_have_count(3)
    page.get_by_label("Matchers").fill("nonsense")
    expect(page.locator("#preview")).to_contain_text("cannot be read")
    page.get_by_label("Reason").fill("maintenance")
    page.get_by_role("button", name="Silence").click()
    expect(page.locator("#matchers-wrong")).to_contain_text("cannot be read")
    expect(page.get_by_label("Reason")).to_have_value("maintenance")
    page.get_by_label("Matchers").fill('severity="critical"')
    page.get_by_role("button", name="Silence").click()
    expect(page.locator(".now-true")).to_contain_text("Suppresses 3 alerts now")
    page.get_by_role("button", name="End now").click()
    expect(page.locator(".now-true")).to_contain_text("by operator")


def test_a_channel_is_added_and_its_secret_copied_once(server: Server, opened: Opener) -> None:
    server("reset", "watched")
    page = opened("/channels", faults=True, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Add channel…").click()
    page.get_by_label("Name").fill("ops")
    page.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Add channel").click()
    expect(page.locator("#url-wrong")).to_contain_text("adds 127.0.0.1 to [alerts] allow_private")
    page.get_by_label("Address").fill("https://receiver.invalid/hook?token=abcdefghijk")
    page.get_by_role("button", name="Add channel").click()
    secret = page.locator("#the-secret").inner_text()
    page.get_by_role("button", name="Copy secret").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == secret
    assert secret.startswith("whsec_")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("This secret is not shown again")
    page.get_by_role("link", name="Open the channel").click()
    expect(page.locator("#content")).to_contain_text("https://receiver.invalid/hook?token=***")


def test_a_test_says_on_the_page_what_came_of_it(server: Server, opened: Opener) -> None:
    server("reset", "alerts")
    page = opened("/channels")
    page.get_by_role("link", name="ops", exact=True).first.click()
    page.get_by_role("button", name="Send test").click()
    expect(page.locator("#test ~ [role=status]")).to_contain_text(
        "Not sent to 127.0.0.1: It is a loopback address"
    )
    page.get_by_role("link", name="request and response").click()
    expect(page.locator("h1")).to_contain_text("Delivery")
    expect(page.locator(".try")).to_contain_text("no answer")
