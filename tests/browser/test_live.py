"""Proves in Chromium that open pages follow changes by themselves, and leave alone what the reader holds."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import PASSWORD, Opener, Server, sign_in
from tests.waiting import wait_for

pytestmark = pytest.mark.data("busy", 40)


def row(page: Page, name: str) -> str:
    return page.locator("tr", has_text=name).get_attribute("id") or ""


@pytest.mark.data("busy")
def test_a_bell_changes_a_row_and_nothing_the_reader_holds(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway", viewport={"width": 1200, "height": 600})
    page.evaluate("window.stays = true")
    search = page.locator("#search")
    search.click()
    search.fill("half a word")
    page.evaluate("document.activeElement.setSelectionRange(2, 6); window.scrollTo(0, 300)")
    name = "orders-gateway-110"
    before = row(page, name)
    node = page.locator(f"#{before}").element_handle()
    server("change", name, "PrepareAbort")
    expect(page.locator(f"#{before} td").first).to_have_text("PrepareAbort")
    assert page.evaluate("window.stays"), "the page was loaded again"
    assert page.evaluate("node => node.isConnected", node), "the row is another element now"
    assert page.evaluate("document.activeElement.id") == "search"
    assert search.input_value() == "half a word"
    caret = "[document.activeElement.selectionStart, document.activeElement.selectionEnd]"
    assert page.evaluate(caret) == [2, 6]
    assert page.evaluate("window.scrollY") == 300


def test_a_changed_row_is_highlighted_again_at_each_change(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway-0")
    first = page.locator("tbody tr")
    # In each frame, because a highlight is shorter than the rest between two questions of a test.
    first.evaluate("""row => {
        const note = () => {
            window.highlighted ||= row.getAnimations().some((each) => each.playState === "running");
            requestAnimationFrame(note);
        };
        note();
    }""")
    for state in ("Ongoing", "PrepareAbort"):
        page.evaluate("window.highlighted = false")
        server("change", "orders-gateway-0", state)
        wait_for(lambda: page.evaluate("window.highlighted"), "the highlight begins")
        expect(first.locator("td").first).to_have_text(state)
        wait_for(lambda: first.evaluate("row => row.getAnimations().length") == 0, "the highlight ends")


def test_an_open_fold_and_a_selection_stay(server: Server, live: Opener) -> None:
    page = live("/transactions/prod/orders-gateway-0")
    page.get_by_text("Raw facts").click()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#the-id'))")
    server("change", "orders-gateway-0", "Ongoing")
    expect(page.locator("[data-fact]")).to_contain_text(re.compile("been open for|has blocked"))
    expect(page.locator(".drawing-wide .box-lit")).to_have_text("Ongoing")
    assert page.locator("#raw-facts").get_attribute("open") is not None
    assert '"state": "Ongoing"' in page.locator(".raw").inner_text()
    assert page.evaluate("getSelection().toString()") == "orders-gateway-0"


def test_focus_on_a_row_stays_on_it_when_rows_come_before_it(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.textContent")
    server("add", "a-orders-gateway")
    expect(page.locator("a[data-row]", has_text="a-orders-gateway")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == focused


def test_a_row_that_no_longer_matches_leaves(server: Server, live: Opener) -> None:
    page = live("/transactions?state=Ongoing&q=orders-aborting")
    expect(page.get_by_text("No matching transactions")).to_be_visible()
    server("change", "orders-aborting", "Ongoing")
    expect(page.locator("tbody tr")).to_have_count(1)
    server("change", "orders-aborting", "CompleteAbort")
    expect(page.get_by_text("No matching transactions")).to_be_visible()


@pytest.mark.data("calm")
def test_the_verdict_the_title_and_the_icon_follow_a_finding(server: Server, live: Opener) -> None:
    page = live("/")
    expect(page.locator("h1")).to_have_text("No transaction is stuck.")
    expect(page).to_have_title("Incidents · Fenceline")
    server("find", "only")
    expect(page.locator("h1")).to_have_text(re.compile(r"^1 open incident\. only has been open for \d+ min"))
    expect(page).to_have_title("(1) Incidents · Fenceline")
    expect(page.locator("#icon")).to_have_attribute("href", re.compile("icon-critical"))
    expect(page.locator("#announcer")).to_have_text(re.compile("^1 open incident. only has been open"))


def test_a_bell_before_a_late_frame_is_answered_after_it(server: Server, live: Opener) -> None:
    """On a busy machine: htmx has settled what it swapped before the frame with it is painted."""
    page = live("/transactions?q=orders-gateway-0")
    page.evaluate("() => { window.requestAnimationFrame = (then) => setTimeout(then, 500); }")
    state = page.locator("tbody tr td").first
    for name in ("Ongoing", "PrepareAbort", "CompleteAbort"):
        server("change", "orders-gateway-0", name)
        expect(state).to_have_text(name, timeout=10_000)


@pytest.mark.data("calm")
def test_lost_sight_is_shown_and_its_return(server: Server, live: Opener) -> None:
    page = live("/transactions")
    server("lose")
    expect(page.locator("#blind")).to_contain_text("connection refused")
    server("recover")
    expect(page.locator("#blind")).to_have_count(0)


@pytest.mark.data("calm")
def test_sight_that_stops_without_a_word_is_told_by_the_browser(server: Server, live: Opener) -> None:
    server("seen", -8_000)
    page = live("/")
    # Nobody rings any more: the page finds out by its own clock.
    expect(page.locator("#live")).to_have_attribute("data-state", "stale")
    expect(page.locator("#blind")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("is unknown")


def test_many_bells_make_few_requests_and_the_last_state_is_shown(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway-0")
    asked: list[float] = []
    page.on(
        "request",
        lambda request: asked.append(time.monotonic()) if request.headers.get("hx-request") else None,
    )
    began = time.monotonic()
    for n in range(60):
        server("change", "orders-gateway-0", ("Ongoing", "PrepareCommit")[n % 2])
    server("change", "orders-gateway-0", "CompleteAbort")
    expect(page.locator("tbody tr td").first).to_have_text("CompleteAbort")
    took = time.monotonic() - began
    assert len(asked) <= took / 0.1 + 2, f"{len(asked)} requests in {took:.1f} s"


def test_a_slow_page_is_asked_less_often_but_one_slow_answer_makes_none(
    server: Server, opened: Opener
) -> None:
    page = opened("/login/")
    page.clock.install()
    page.goto("/transactions?q=orders-gateway-0")
    page.locator('#live[data-socket="up"]').wait_for()
    state = page.locator("tbody tr td").first
    held: list[Route] = []
    page.route(lambda url: "/transactions" in url, lambda route: held.append(route))

    def asks() -> Route:
        wait_for(lambda: state.count() and held, "the page asks", 15)
        return held.pop()

    for slow in ("PrepareAbort", "CompleteAbort"):
        # The second is asked for at once: a server that has just started is slow once.
        server("change", "orders-gateway-0", slow)
        asked = asks()
        page.clock.run_for(30_000)
        asked.continue_()
        expect(state).to_have_text(slow)
    server("change", "orders-gateway-0", "Ongoing")
    page.clock.run_for(8_000)
    assert not held  # 1.4 times as long as it took, from when it was asked.
    page.clock.run_for(6_000)
    asks().continue_()
    expect(state).to_have_text("Ongoing")


def test_pause_holds_changes_and_counts_them(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway-0")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Resume")).to_have_attribute("aria-pressed", "true")
    for state in ("Ongoing", "PrepareAbort"):
        server("change", "orders-gateway-0", state)
    expect(page.locator("#live-words")).to_have_text("paused · 2 changes waiting")
    expect(page.locator("tbody tr td").first).to_have_text("CompleteCommit")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("tbody tr td").first).to_have_text("PrepareAbort")


def test_a_hidden_tab_fetches_nothing_until_it_is_seen(server: Server, live: Opener) -> None:
    path = "/transactions?q=orders-gateway-0"
    hidden, seen = live(path), live(path)
    hidden.evaluate(
        """() => {
            window.away = true;
            Object.defineProperty(document, "hidden", { configurable: true, get: () => window.away });
        }"""
    )
    # What it asked before it was hidden may be answered late, with the first of the changes.
    hidden.wait_for_function("() => !document.querySelector('.htmx-request')")
    asked: list[str] = []
    hidden.on("request", lambda request: asked.append(request.url))
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        server("change", "orders-gateway-0", state)
        expect(seen.locator("tbody tr td").first).to_have_text(state)
    assert not asked
    expect(hidden.locator("tbody tr td").first).to_have_text("CompleteCommit")
    hidden.evaluate("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }")
    expect(hidden.locator("tbody tr td").first).to_have_text("PrepareAbort")


def test_a_dead_server_is_told_at_once_and_its_return_followed(server: Server, live: Opener) -> None:
    page = live("/transactions?q=orders-gateway-0", faults=True)
    server.kill_web()
    try:
        # The first poll may fail at once: then the words go on to that.
        down = re.compile("(live socket down|no answer from the server) · polling every 5 s")
        expect(page.locator("#live-words")).to_have_text(down)
        expect(page.locator("#announcer")).to_contain_text("The live socket is down")
        expect(page.locator("#live-words")).to_contain_text("no answer from the server")
        server("change", "orders-gateway-0", "PrepareAbort")
    finally:
        server.start_web()
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(page.locator("tbody tr td").first).to_have_text("PrepareAbort")
    server("change", "orders-gateway-0", "CompleteAbort")
    expect(page.locator("tbody tr td").first).to_have_text("CompleteAbort")


def test_without_a_socket_the_page_polls_and_says_so(server: Server, opened: Opener) -> None:
    page = opened("/login/", faults=True)
    # As behind a proxy that passes no WebSockets.
    page.context.route_web_socket("**/ws/live", lambda socket: socket.close())
    page.goto("/transactions?q=orders-gateway-0")
    expect(page.locator("#live-words")).to_have_text("live socket down · polling every 5 s")
    server("change", "orders-gateway-0", "PrepareAbort", silent=True)
    expect(page.locator("tbody tr td").first).to_have_text("PrepareAbort")


def test_a_sign_out_elsewhere_leads_to_the_sign_in(server: Server, live: Opener) -> None:
    page = live("/transactions", faults=True)
    page.context.clear_cookies()
    server("change", "orders-gateway-0", "PrepareAbort")
    page.wait_for_url("**/login/?next=/transactions")


def test_a_refetch_does_not_overtake_a_sign_out(server: Server, live: Opener) -> None:
    """Between the end of the session and the next page a refetch may find that it may see nothing."""
    page = live("/transactions", faults=True)
    navigations: list[str] = []
    page.on("request", lambda request: request.is_navigation_request() and navigations.append(request.url))
    page.evaluate("dispatchEvent(new Event('beforeunload'))")
    page.evaluate("document.addEventListener('htmx:afterRequest', () => (window.asked = true))")
    page.context.clear_cookies()
    with page.expect_response(lambda response: response.status == 401):
        server("change", "orders-gateway-0", "PrepareAbort")
    page.wait_for_function("() => window.asked")
    page.evaluate("fetch('/healthz')")
    assert not navigations


def test_an_open_page_ends_with_the_role_of_its_user(server: Server, browser: Browser) -> None:
    server("user", "leaver", PASSWORD, "viewer")
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto("/transactions")
        sign_in(page, "leaver")
        page.locator('#live[data-socket="up"]').wait_for()
        server("without_role", "leaver")
        page.locator("[data-no-role]").wait_for()
        assert not page.locator("table").count()
        page.get_by_role("button", name="Sign out").press("Enter")
        page.wait_for_url("**/login/")
    finally:
        context.close()


@pytest.mark.parametrize("path", ["/", "/transactions", "/system"])
def test_nothing_is_lost_without_scripts(opened: Opener, path: str) -> None:
    page = opened(path, java_script_enabled=False, faults=True)
    assert "as of" in page.locator("#live-words").inner_text()
    assert page.locator("time").count() > 0
