"""Proves that one page shows all clusters: what is wrong with each, and what cannot be seen."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.web import factories

pytestmark = pytest.mark.django_db


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of the page by cluster, in their order."""
    found = text.split('data-cluster-row="')[1:]
    return {row.partition('"')[0]: row.partition("</tr>")[0] for row in found}


def test_clusters_that_need_attention_come_first(page: Client) -> None:
    quiet, stuck = factories.cluster("a-quiet"), factories.cluster("b-stuck")
    for each in (quiet, stuck):
        factories.collector(each, "transaction_state")
    factories.finding(stuck, "transaction:pay-1", "critical")
    factories.finding(stuck, "transaction:other")
    text = page.get("/clusters").content.decode()
    rows = rows_of(text)
    assert list(rows) == ["b-stuck", "a-quiet"]
    assert "2 open, worst critical" in rows["b-stuck"]
    assert 'class="muted"' in rows["a-quiet"]
    assert "1 cluster of 2" in text


def test_what_cannot_be_seen_is_named_per_cluster(page: Client) -> None:
    dark, limited = factories.cluster("dark"), factories.cluster("limited")
    for each in (dark, limited):
        factories.collector(each, "transaction_state")
    factories.gap(dark, source="transaction_state", reason="no route to <host>")
    lacking = {"name": "x", "words": "markers", "state": "missing", "why": "old", "remedies": []}
    detail = {"asked_ms": factories.now_ms(), "trouble": "", "checks": [lacking]}
    factories.collector(limited, "capabilities", detail=detail)
    rows = rows_of(page.get("/clusters").content.decode())
    assert "no route to &lt;host&gt;" in rows["dark"]
    assert "data-lacking" in rows["limited"]
    assert "markers" in rows["limited"]
    assert "data-blind" not in rows["limited"]


def test_more_clusters_take_no_more_queries(page: Client) -> None:
    def asked(name: str) -> int:
        factories.collector(factories.cluster(name), "transaction_state")
        with CaptureQueriesContext(connection) as queries:
            page.get("/clusters")
        return len(queries)

    page.get("/clusters")
    first = asked("one")
    assert max(asked(f"more-{number}") for number in range(5)) <= first + 1
