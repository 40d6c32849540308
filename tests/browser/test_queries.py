"""Proves the pages of streaming queries in Chromium: live, and counting down."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Server, press_to
from tests.web import factories

pytestmark = pytest.mark.data("queries")

ONE = f"/queries/prod/{factories.QUERY_ID}"


def test_a_name_is_whole_and_no_tile_is_cut_at_every_width(opened: Opener) -> None:
    page = opened("/")
    cut = "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.innerText)"
    for width in (768, 900, 1001, 1101, 1181, 1281, 1300, 1367, 1401, 1440, 1501, 1920):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.locator(".queries .col-name *", has_text="orders_enrich").evaluate_all(cut) == [], width
        assert page.locator(".tiles").evaluate_all(cut) == [], width


def test_at_360_pixels_state_batch_chain_and_lag_stay(opened: Opener) -> None:
    page = opened("/queries?q=orders_enrich", viewport={"width": 360, "height": 740})
    cells = [
        " ".join(cell.inner_text().split()) for cell in page.locator("tbody td").all() if cell.is_visible()
    ]
    assert cells == [
        "orders_enrich",
        "failed",
        "batch prepared",
        "batch 1,204",
        "not committed",
        "1,168 lag",
        "safe to restart yes",
    ]


def seconds(page: Page, where: str) -> int:
    words = page.locator(where).first.inner_text()
    found = re.fullmatch(r"(\d+) min(?: (\d+) s)?", words)
    assert found, words
    return int(found[1]) * 60 + int(found[2] or 0)


def test_a_prepared_batch_counts_down_without_asking_and_says_when_it_has_run_out(opened: Opener) -> None:
    page = opened(ONE)
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if request.headers.get("hx-request") else None
    )
    page.get_by_role("button", name="Pause").click()
    before = seconds(page, ".chain-remedy time")
    asked.clear()
    page.wait_for_function(
        "(words) => document.querySelector('.chain-remedy time').textContent !== words",
        arg=page.locator(".chain-remedy time").inner_text(),
    )
    assert seconds(page, ".chain-remedy time") < before
    page.evaluate(
        "document.querySelector('.chain-remedy time').dateTime = new Date(fenceline.now() - 1).toISOString();"
        "fenceline.showAges()"
    )
    expect(page.locator(".chain-remedy")).to_contain_text("they may be aborted already")
    assert not asked


def test_a_batch_appears_by_its_bell_alone(server: Server, live: Opener) -> None:
    listed = live("/queries?q=payments_ledger")
    batches = live("/queries/prod/7a2e3b4c-5d6e-4f7a-9b0c-1d2e3f4a5b6c")
    one = live("/queries/prod/7a2e3b4c-5d6e-4f7a-9b0c-1d2e3f4a5b6c?tab=charts")
    one.locator("#durations-chart").scroll_into_view_if_needed()
    expect(one.locator("#durations-chart .point path").first).to_be_attached()
    one.evaluate("document.getElementById('durations-chart').stays = true")
    bars = one.evaluate("document.getElementById('durations-chart').data[0].x.length")
    server("commit_batch", "payments_ledger", 9_872)
    expect(listed.locator("tbody tr").first).to_contain_text("9,872")
    expect(batches.locator("#batches ~ table tbody tr").first).to_contain_text("batch 9,872")
    one.wait_for_function(
        "(bars) => document.getElementById('durations-chart').data[0].x.length > bars", arg=bars
    )
    assert one.evaluate("document.getElementById('durations-chart').stays")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.matrix)])
def test_charts_are_drawn_without_a_violation(opened: Opener, scheme: str) -> None:
    page = opened(f"{ONE}?tab=charts", color_scheme=scheme, timezone_id="Asia/Kolkata")
    page.locator("#durations-chart").scroll_into_view_if_needed()
    for name in ("durations-chart", "rows-chart"):
        expect(page.locator(f"#{name} .point path").first).to_be_attached()
        expect(page.locator(f"#{name}-frame")).to_have_attribute("aria-label", re.compile(r": \d"))
    expect(page.locator("#rows-chart .scatterlayer path.js-line")).to_be_attached()
    ticks = page.locator("#durations-chart .xtick text").all_text_contents()
    # Batches have no time zone.
    page.get_by_label("Local time").check()
    expect(page.locator("#durations-chart .xtick text").first).to_have_text(ticks[0])


def test_the_keyboard_goes_from_the_list_to_a_batch_and_its_transactions(opened: Opener) -> None:
    page = opened("/")
    press_to(page, "g q", "**/queries")
    page.keyboard.press("/")
    page.keyboard.type("orders_enrich")
    press_to(page, "Enter", "**/queries?q=orders_enrich")
    press_to(page, "j Enter", f"**{ONE}")
    page.get_by_role("link", name="batch 1,203").click()
    page.wait_for_url(f"**{ONE}?batch=1203#chain")
    page.get_by_role("link", name="newest: batch 1,204").click()
    page.wait_for_url(re.compile(r"\?#chain$"))
    page.locator(".sent").get_by_role("link", name="orders_enrich-3f9c11d2-p1-g7-b0-s1").click()
    page.wait_for_url("**/transactions/prod/orders_enrich-3f9c11d2-p1-g7-b0-s1")


def test_filters_and_sorts_are_addresses(opened: Opener) -> None:
    page = opened("/queries")
    page.get_by_role("link", name=re.compile("^failed")).click()
    page.wait_for_url("**/queries?state=failed")
    page.get_by_role("link", name="Last commit").click()
    expect(page.locator("th[aria-sort]")).to_have_text("Last commit")
    assert "state=failed" in page.url
    page.get_by_role("link", name=re.compile("^exactly once")).click()
    page.wait_for_url(re.compile("sink=exactly_once"))
    page.go_back()
    expect(page.locator("th[aria-sort]")).to_have_text("Last commit")
