"""A cluster with streaming queries before their pages."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from dashboard.models import Cluster
from tests.web import streams
from tests.web.roles import read

#: The page of the query that `streams` makes.
ONE = f"/queries/prod/{streams.QUERY_ID}"


def headline(page: Client, url: str) -> str:
    """Return what a page says first."""
    found = re.search(r"<h1 [^>]*>(.*?)</h1>", read(page, url))
    assert found
    return html.unescape(re.sub(r"<[^>]+>", "", found[1]))


@pytest.fixture
def prod(prod: Cluster) -> Cluster:
    """The cluster that all pages are shown with, its checkpoints looked at too."""
    streams.watched(prod)
    return prod
