"""Proves that Chromium gets whole lists as files: CSV with a line, and JSON with an item, for each row."""

import csv
import json

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Opener


def downloaded(page: Page, form: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("link", name=form, exact=True).click()
    return download.value.path().read_text()


@pytest.mark.data("busy", 700)
def test_a_list_of_several_pages_is_one_whole_file(opened: Opener) -> None:
    page = opened("/transactions")
    items = json.loads(downloaded(page, "JSON"))["items"]
    rows = list(csv.DictReader(downloaded(page, "CSV").splitlines()))
    assert len(items) > 700
    assert [row["transactional_id"] for row in rows] == [item["transactional_id"] for item in items]
