"""Proves the page of reports in Chromium: by axe, at every width, empty and full."""

import pytest

from tests.browser.conftest import Examiner, Opener, Server
from tests.browser.page_checks import states
from tests.waiting import wait_for
from tests.web import history_reports

FULL = "/reports?last=1y&by=aborts"
FURTHER = {"no match": "/reports?last=2y&application=nobody"}


@pytest.fixture(scope="module")
def full(server: Server) -> None:
    """What the history job writes."""
    history_reports.history_report(server.reports)


@pytest.mark.parametrize("kind", states("watched"))
def test_the_page_before_the_job_has_run_passes_axe_and_fits(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    assert not server.reports.exists()
    assert problems_of_pages(opened("/"), {"empty": "/reports"}) == {}


@pytest.mark.parametrize("kind", states("watched"))
def test_reports_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, full: None, kind: str
) -> None:
    server("reset", kind)
    page = opened("/")
    # An answer that there are no reports is good for some seconds.
    wait_for(lambda: page.goto(FULL) and page.locator("tbody tr").count() > 2, "the reports are read")
    assert problems_of_pages(page, {"full": FULL}, FURTHER) == {}
