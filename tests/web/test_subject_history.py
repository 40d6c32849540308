"""Proves the event history of a partition, a group and a query: findings about that one subject, by range."""

from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from django.test import Client

from dashboard.models import Cluster
from tests.web import factories
from tests.web.factories import MINUTE_MS
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
HOUR_MS = 60 * MINUTE_MS
GROUP_PAGE = "/groups/prod/billing"


def found(of: Cluster, subject: str, summary: str, *, begun_ms: int, ended_ms: int | None = None) -> None:
    """Make a finding that began so long ago; and was closed so long ago, unless it is open."""
    closed = None
    if ended_ms is not None:
        closed = datetime.fromtimestamp((factories.now_ms() - ended_ms) / 1_000, UTC)
    factories.finding(of, subject, summary=summary, since_ms=factories.now_ms() - begun_ms, closed_at=closed)


def history(text: str) -> str:
    return text.partition('aria-labelledby="happened"')[2].partition("</section>")[0]


def test_each_page_shows_what_was_found_about_it_alone(page: Client, prod: Cluster) -> None:
    factories.partition(prod, "payments", 1)
    factories.group(prod, "billing")
    query = factories.query(prod)
    pages = {
        "partition:payments-1": ("/partitions/prod/payments/1", "payments-1"),
        "group:billing": (GROUP_PAGE, "billing"),
        f"query:{query.ident}": (f"/queries/prod/{query.ident}?tab=events", query.ident),
    }
    for subject in pages:
        found(prod, subject, f"over: {subject}", begun_ms=3 * HOUR_MS, ended_ms=2 * HOUR_MS)
        found(prod, subject, f"open: {subject}", begun_ms=HOUR_MS)
        found(prod, f"{subject}0", "of a longer name", begun_ms=HOUR_MS)
    for subject, (url, name) in pages.items():
        text = history(page_html(page, url))
        assert 0 < text.index(f"open: {subject}") < text.index(f"over: {subject}")
        assert "of a longer name" not in text
        assert f'href="/events?cluster=prod&amp;q={quote(name)}"' in text


def test_a_range_shows_what_was_open_in_it(page: Client, prod: Cluster) -> None:
    factories.group(prod, "billing")
    found(prod, "group:billing", "long over", begun_ms=9 * HOUR_MS, ended_ms=8 * HOUR_MS)
    found(prod, "group:billing", "over in it", begun_ms=9 * HOUR_MS, ended_ms=HOUR_MS)
    found(prod, "group:billing", "still open", begun_ms=9 * HOUR_MS)
    shown = history(page_html(page, f"{GROUP_PAGE}?last=6h"))
    assert [each in shown for each in ("long over", "over in it", "still open")] == [False, True, True]


def test_no_more_than_ten_are_shown(page: Client, prod: Cluster) -> None:
    factories.group(prod, "billing")
    for number in range(11):
        found(prod, "group:billing", f"finding {number}.", begun_ms=HOUR_MS, ended_ms=number * MINUTE_MS)
    text = history(page_html(page, GROUP_PAGE))
    assert text.count("<tr id=") == 10
    assert "finding 0." not in text, "the oldest is left out"


def test_one_without_findings_has_an_empty_history(page: Client, prod: Cluster) -> None:
    factories.group(prod, "billing")
    assert "<b>No findings</b>" in history(page_html(page, GROUP_PAGE))
