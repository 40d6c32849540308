"""A cluster with incidents, and what a page shows of them."""

from __future__ import annotations

import re

import pytest

from dashboard.models import Cluster
from tests.web import factories


@pytest.fixture
def prod() -> Cluster:
    of = factories.cluster()
    factories.tail_collectors(of)
    return of


def headline(text: str) -> str:
    found = re.search(r"<h1[^>]*data-headline[^>]*>(.*?)</h1>", text)
    assert found
    return " ".join(re.sub("<[^>]+>", "", found[1]).split())
