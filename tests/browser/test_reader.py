"""Proves what readers do: sign in, keys, theme, times, copying, filters; at every width, and by axe."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import NAME, PASSWORD, Examiner, Opener, Server
from tests.browser.page_checks import states

PAGES = {
    "overview": "/",
    "transactions": "/transactions",
    "no match": "/transactions?q=nothing-like-it&state=open&sort=wrong",
    "transaction": "/transactions/prod/inventory-sync-stuck-3",
    "system": "/system",
    "coordinators": "/coordinators",
    "scenes": "/scenes",
    "sign-in": "/login/",
    "users": "/access",
    "a user": "/access/1",
    "new user": "/access/new",
    "tokens": "/access/tokens",
}
FURTHER = {
    "complete": "/transactions/prod/orders-gateway-0",
    "lived": "/transactions/prod/payments-1",
    "transitions": "/events?last=24h&source=transition&unfolded=true",
    "events, no match": "/events?kind=rotation&confidence=ambiguous&q=nothing-like-it&last=1h&before=x",
}
UNKNOWN = {
    "unknown id": "/transactions/prod/never-seen",
    "not found": "/nowhere",
    "no link": "/access/welcome/MQ/never",
}


def there(pages: dict[str, str], kind: str) -> dict[str, str]:
    """Return the pages that there are in a state of the data: only the busy one has ids."""
    return {name: path for name, path in pages.items() if kind == "busy" or "/prod/" not in path}


@pytest.mark.parametrize("kind", states("busy", "none", "new", "blind", "calm"))
def test_pages_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind, 20)
    assert problems_of_pages(opened("/"), there(PAGES, kind), there(FURTHER, kind)) == {}


@pytest.mark.parametrize("kind", states("busy"))
def test_pages_of_what_is_not_there_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind, 20)
    assert problems_of_pages(opened("/", faults=True), UNKNOWN) == {}


def test_at_360_pixels_state_id_and_age_stay(server: Server, opened: Opener) -> None:
    server("reset", "busy")
    page = opened("/transactions?q=payments-ledger-7", viewport={"width": 360, "height": 740})
    cells = [cell for cell in page.locator("tbody tr td").all() if cell.is_visible()]
    shown = [cell.inner_text().split("\n")[0] for cell in cells]
    assert shown == ["Ongoing", "payments-ledger-7", "open too long", "open for 1 h 5 min"]


def test_a_stranger_signs_in_and_arrives_where_he_wanted(server: Server, browser: Browser) -> None:
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto("/transactions?state=open")
        page.get_by_label("Username").fill(NAME)
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("do not match")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions?state=open")
        page.get_by_role("button", name="Sign out").press("Enter")
        page.wait_for_url("**/login/")
    finally:
        context.close()


def test_the_keyboard_goes_everywhere(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
    page = opened("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/transactions")
    page.keyboard.press("/")
    page.keyboard.type("inventory-sync-stuck")
    page.keyboard.press("Enter")
    page.wait_for_url("**/transactions?q=inventory-sync-stuck")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/transactions/prod/inventory-sync-stuck-3")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/system?cluster=prod")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(f"{server.url}/?cluster=prod")


def test_keys_are_letters_inside_inputs_and_can_be_turned_off(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
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


def test_a_chosen_theme_is_there_before_the_first_paint(server: Server, opened: Opener) -> None:
    server("reset", "calm")
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


def test_times_are_told_in_utc_or_local_and_remembered(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
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


def test_ages_tick_without_asking_the_server(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
    page = opened("/transactions/prod/inventory-sync-stuck-3")
    page.keyboard.press("p")
    age = page.locator("#content time[data-age='']").first
    before = age.inner_text()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(age).not_to_have_text(before)
    assert not asked


def test_an_id_is_copied_as_it_is_spelled(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
    page = opened("/transactions?q=back", permissions=["clipboard-read", "clipboard-write"])
    page.locator("a[data-row]").first.click()
    page.get_by_role("button", name="Copy id").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "back\\\\slash"


def test_filters_are_addresses(server: Server, opened: Opener) -> None:
    server("reset", "busy")
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


def test_any_id_opens_by_a_click(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
    page = opened("/transactions")
    for name in ("<script>alert(1)</script>", "a/b/", "back", "not UTF-8", "long-", "{{ 7"):
        page.goto("/transactions")
        page.locator("#search").fill(name)
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions?q=*")
        page.locator("a[data-row]").first.click()
        expect(page.locator("#the-id")).to_contain_text(name)


def test_no_other_host_is_ever_asked(server: Server, opened: Opener) -> None:
    server("reset", "busy", 40)
    page = opened("/")
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    for path in PAGES.values():
        page.goto(path)
    assert asked
    assert all(url.startswith((f"{server.url}/", "data:")) for url in asked), asked


def test_the_api_describes_itself_under_the_policy(server: Server, opened: Opener) -> None:
    page = opened("/api/v1/docs")
    expect(page.locator(".swagger-ui")).to_contain_text("List transactional ids")


def test_admin_works_under_the_policy(server: Server, opened: Opener) -> None:
    server("reset", "busy", 20)
    page = opened("/admin/")
    page.get_by_role("link", name="Transactional ids", exact=True).first.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(48)
    page.locator("#result_list tbody th a").first.click()
    expect(page.locator("#content")).to_contain_text("Transactional id")
