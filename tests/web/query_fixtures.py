"""Fixtures for the pages of streaming queries."""

import html
import re

from django.test import Client

from tests.web import factories
from tests.web.roles import page_html

#: The page of `factories.query`.
QUERY_PAGE = f"/queries/prod/{factories.QUERY_ID}"


def query_tab(page: Client, name: str) -> str:
    """Return a tab of that page as HTML."""
    return page_html(page, f"{QUERY_PAGE}?tab={name}")


def headline(page: Client, url: str) -> str:
    """Return a page's headline."""
    found = re.search(r"<h1 [^>]*>(.*?)</h1>", page_html(page, url))
    assert found
    return html.unescape(re.sub(r"<[^>]+>", "", found[1]))
