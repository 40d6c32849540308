"""Proves the page of pipelines in Chromium: its proofs by axe and at every width; nodes and rows open by the
keyboard; it fits a screen; a wide drawing shrinks, or scrolls in its own frame, never the page."""

import shutil

import pytest
from playwright.sync_api import Page, expect

from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditObstacle, AuditVerdict, ObstacleKind
from tests.audit_manifests import audit_manifest, leave_audit, proved_batch
from tests.browser.conftest import Examiner, Opener, Server, press_to
from tests.browser.page_checks import states
from tests.waiting import wait_for
from tests.web.factories import QUERY_ID

pytestmark = pytest.mark.data("flow")

OPEN = "/pipelines?pipeline=group:warehouse"


@pytest.mark.parametrize("kind", states("flow"))
def test_a_page_with_proofs_passes_axe_and_fits_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    leave_audits(server)
    try:
        page = opened("/")
        wait_for(lambda: proved_rows(page) == 4, "the server reads the folder again", 30)
        obstacle = "/pipelines?pipeline=group:reports"
        assert problems_of_pages(page, {"obstacle": obstacle, "proofs": OPEN}) == {}
        expect(page.get_by_role("link", name="order_events-3: 5–7")).to_be_visible()
    finally:
        shutil.rmtree(server.audits)


def proved_rows(page: Page) -> int:
    """Unfold the pipeline, and return how many rows the table of its batches has, with its head."""
    page.goto(OPEN)
    table = page.get_by_role("region", name="Batches of order_events → orders_enrich → orders_enriched")
    return table.get_by_role("row").count()


def leave_audits(server: Server) -> None:
    """Leave an audit with a loss, one with an obstacle, and one that is torn."""
    violated = AuditedBatch(
        1_203, AuditVerdict.VIOLATED, None, 17_880, 0, 17_880, 17_877, 17_877, 0, 3,
        (AuditedRange("order_events", 3, 5, 8),),
    )  # fmt: skip
    prepared = AuditedBatch(1_204, AuditVerdict.PREPARED, None, 18_004, None, 18_004, 0, 0)
    batches = prepared, violated, proved_batch(1_202)
    enriched = {"query_id": QUERY_ID, "sources": ("order_events",), "proved_through": 1_202}
    leave_audit(server.audits, audit_manifest(**enriched, batches=batches, missing=3))
    gone = AuditObstacle(
        ObstacleKind.COMPACTED, "payments_ledger", "it is compacted", "deleted records count as missing"
    )
    ledger = {"sources": ("payments",), "targets": ("payments_ledger",), "obstacles": (gone,)}
    leave_audit(server.audits, audit_manifest("ledger", **ledger))
    leave_audit(server.audits, audit_manifest("torn")).write_text("{")


def test_a_node_is_reached_and_opened_with_the_keyboard(opened: Opener) -> None:
    page = opened("/pipelines")
    node = page.get_by_role("link", name="group billing, blocked")
    node.focus()
    expect(node).to_be_focused()
    press_to(page, "Enter", "**/pipelines?*focus=group%3Abilling*")
    node.focus()
    press_to(page, "Enter", "**/groups/prod/billing*")


def test_a_row_is_unfolded_and_folded_with_the_keyboard(opened: Opener) -> None:
    page = opened("/pipelines")
    row = page.locator('[data-pipeline="group:warehouse"] [data-row]')
    links = page.get_by_role("list", name="Links", exact=True).get_by_role("listitem")
    for number, expanded in ((4, "true"), (0, "false")):
        row.focus()
        page.keyboard.press("Enter")
        expect(row).to_have_attribute("aria-expanded", expanded)
        expect(links).to_have_count(number)


@pytest.mark.data("large flow")
def test_an_unfolded_row_is_below_the_head_of_its_table(opened: Opener) -> None:
    page = opened("/pipelines?pipeline=group:crm-03-sink#pipeline")
    row = page.locator("#pipeline [data-row]")
    expect(row).to_be_in_viewport()
    row.click(trial=True)


def test_the_folded_page_fits_a_screen(opened: Opener) -> None:
    page = opened("/pipelines", viewport={"width": 1440, "height": 900})
    assert page.evaluate("document.documentElement.scrollHeight") <= 1_200


def test_zoom_shrinks_a_drawing_to_its_frame_or_shows_it_in_full(opened: Opener) -> None:
    page = opened("/pipelines?zoom=fit", viewport={"width": 600, "height": 900})
    assert overflow(page) == 0
    page.get_by_role("link", name="actual size").click()
    page.wait_for_url("**zoom=actual*")
    assert overflow(page) > 400


def overflow(page: Page) -> int:
    """Return how much wider the drawing is than its frame, in pixels."""
    frame = page.get_by_role("region", name="Data flow of prod")
    return int(frame.evaluate("(frame) => frame.scrollWidth - frame.clientWidth"))


@pytest.mark.data("large flow")
def test_a_wide_drawing_scrolls_in_its_own_frame(opened: Opener) -> None:
    page = opened("/pipelines?fold=no", viewport={"width": 390, "height": 844})
    assert overflow(page) > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
