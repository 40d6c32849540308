"""Proves the page of reports in Chromium: by axe, at every width, empty and full."""

import shutil

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Examiner, Opener, Server
from tests.browser.page_checks import states
from tests.waiting import wait_for
from tests.web import history_reports

FULL = "/reports?last=1y&by=aborts"
FURTHER = {"no match": "/reports?last=2y&application=nobody"}


def rows_of(page: Page) -> int:
    page.goto(FULL)
    return page.locator("tbody tr").count()


@pytest.mark.parametrize("kind", states("watched"))
def test_reports_pass_axe_and_fit_every_width(
    server: Server, opened: Opener, problems_of_pages: Examiner, kind: str
) -> None:
    server("reset", kind)
    page = opened("/")
    assert problems_of_pages(page, {"before the job has run": "/reports"}) == {}
    history_reports.history_report(server.reports)
    try:
        # An answer that there are no reports is good for some seconds.
        wait_for(lambda: rows_of(page) > 2, "the reports are read", rest_s=1)
        assert problems_of_pages(page, {"full": FULL}, FURTHER) == {}
    finally:
        shutil.rmtree(server.reports)
