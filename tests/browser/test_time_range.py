"""Proves in Chromium that a range of time is chosen by keyboard, by fields in either zone and by a drag over
any chart, goes along to other pages until Live, and is copied as an absolute link."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server, press_to
from tests.browser.page_checks import Looks, problems_of_what_is_open, states
from tests.cases import cases

HOUR_MS = 3_600_000
#: Charts over time, and where they are.
CHARTS = (
    ("events-chart", "/events?last=24h&source=finding"),
    ("events-chart", "/"),
    ("timeline-chart", "/transactions/prod/payments-1"),
)


@pytest.fixture(scope="module", autouse=True)
def held(server: Server) -> None:
    """No test of this file changes what there is."""
    server("reset", "held")


def asked(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def length_ms(page: Page) -> float:
    start, end = (page.evaluate("iso => Date.parse(iso)", asked(page)[name]) for name in ("from", "to"))
    return float(end - start)


def test_the_keyboard_chooses_a_range_and_takes_it_along_until_live(opened: Opener) -> None:
    page = opened("/partitions")
    press_to(page, "t Tab Tab Tab Enter", "**/partitions?last=6h")
    expect(page.locator("[data-time-range]")).to_have_text("last 6 h")
    press_to(page, "g e", "**/events?last=6h")
    press_to(page, "g p", "**/partitions?last=6h")
    press_to(page, "j Enter", "**/partitions/prod/payments/0?last=6h")
    page.get_by_role("link", name="Partitions").last.press("Enter")
    page.wait_for_url("**/partitions?last=6h*")
    page.keyboard.press("t")
    page.keyboard.press("Enter")
    expect(page.locator("[data-time-range]")).to_have_text("Live")
    assert "last" not in asked(page)
    press_to(page, "g e", "**/events")


def test_escape_closes_the_picker_and_leaves_the_keyboard_where_it_was(opened: Opener) -> None:
    page = opened("/events")
    page.keyboard.press("t")
    expect(page.get_by_role("link", name="Live", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Live", exact=True)).to_be_hidden()
    expect(page.locator("#time-range summary")).to_be_focused()


@cases(("UTC", "2026-11-18T02:00:00Z"), ("Local time", "2026-11-17T20:30:00Z"))
def test_the_fields_are_in_the_zone_of_the_page(opened: Opener, zone: str, start: str) -> None:
    page = opened("/events", timezone_id="Asia/Kolkata")
    page.get_by_label(zone, exact=True).check()
    page.locator("#time-range summary").click()
    page.get_by_label("From").fill("2026-11-18T02:00:00")
    page.get_by_label(re.compile("^To UTC")).fill("2026-11-18T02:15:00")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/events?*to=*")
    assert asked(page)["from"] == start
    assert length_ms(page) == 900_000
    expect(page.locator("[data-time-range] time").first).to_have_text("2026-11-18 02:00:00")
    # The fields show the range that is asked for, also in the other zone.
    page.locator("#time-range summary").click()
    expect(page.locator("#range-from")).to_have_value(re.compile("^2026-11-18 02:00"))


@pytest.mark.parametrize(("name", "path"), CHARTS)
def test_a_drag_over_a_chart_is_the_range_of_the_page(opened: Opener, name: str, path: str) -> None:
    page = opened(path)
    before = page.url
    page.locator(f"#{name}").scroll_into_view_if_needed()
    drag = page.locator(f"#{name} .nsewdrag").first
    expect(drag).to_be_attached()
    box = drag.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    with page.expect_navigation():
        page.mouse.up()
    assert urlsplit(page.url).path == urlsplit(before).path
    assert {"from", "to"} <= asked(page).keys()
    assert "last" not in asked(page)
    if "source" in path:
        assert asked(page)["source"] == "finding"
        assert abs(length_ms(page) - 6 * HOUR_MS) < HOUR_MS / 6
    # Whole seconds, which a reader can tell somebody.
    assert all(re.fullmatch(r"[\d-]+T[\d:]+Z", asked(page)[end]) for end in ("from", "to"))


def test_the_copied_link_names_the_range_absolutely(opened: Opener) -> None:
    page = opened("/events?last=6h&source=finding", permissions=["clipboard-read", "clipboard-write"])
    link = copied(page)
    assert re.search(r"\?source=finding&from=[^&]+Z&to=[^&]+Z$", link)
    page.goto(link)
    assert length_ms(page) == 6 * HOUR_MS
    expect(page.locator("[data-ignored]")).to_have_count(0)
    expect(page.locator("[data-group], [data-event]").first).to_be_visible()
    assert copied(page) == page.url
    # Lists of all that is kept have no begin.
    page.goto("/recoveries?outcome=open")
    assert re.search(r"\?outcome=open&to=[^&]+Z$", copied(page))
    page.goto(copied(page))
    expect(page.locator("a[data-row]").first).to_be_visible()


def copied(page: Page) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.locator("#copy-link").click()
    page.wait_for_function("() => navigator.clipboard.readText()")
    return str(page.evaluate("navigator.clipboard.readText()"))


@pytest.mark.parametrize("kind", states("held"))
def test_the_open_picker_passes_axe_and_fits(opened: Opener, looks: Looks, kind: str) -> None:
    page = opened("/partitions?from=2026-11-18T02:00:00Z&to=2026-11-18T02:15:00Z")
    page.keyboard.press("t")
    # What is behind it is partly covered.
    assert problems_of_what_is_open(page, looks, within="#time-range") == []
