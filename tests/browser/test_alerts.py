"""Proves the pages of alerting in Chromium: live, and by hand, from silence to test."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opener, Server, press_to


@pytest.mark.data("watched")
def test_an_alert_appears_by_its_bell_alone(server: Server, live: Opener) -> None:
    page = live("/alerts")
    expect(page.get_by_role("heading", level=1)).to_have_text("No firing alerts.")
    server("fire", "payments-9")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 firing alert.")
    expect(page.locator("#nav-alerts")).to_contain_text("1")
    press_to(page, "j Enter", "**/alerts/*")
    expect(page.locator("h1")).to_have_text("payments-9")
    press_to(page, "g l", "**/alerts")


@pytest.mark.data("alerts")
def test_an_alert_is_silenced_from_its_line_after_a_look_at_what_else_goes_quiet(opened: Opener) -> None:
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


@pytest.mark.data("watched")
def test_a_channel_is_added_and_its_secret_copied_once(opened: Opener) -> None:
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


@pytest.mark.data("alerts")
def test_a_test_says_on_the_page_what_came_of_it(opened: Opener) -> None:
    page = opened("/channels")
    page.get_by_role("link", name="ops", exact=True).first.click()
    page.get_by_role("button", name="Send test").click()
    expect(page.locator("#test ~ [role=status]")).to_contain_text(
        "Not sent to 127.0.0.1: It is a loopback address"
    )
    page.get_by_role("link", name="request and response").click()
    expect(page.locator("h1")).to_contain_text("Delivery")
    expect(page.locator(".try")).to_contain_text("no answer")
