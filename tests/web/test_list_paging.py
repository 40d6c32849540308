"""Proves what all lists of pages have in common: pages of many rows, by number or on from a row, in a bounded
number of queries; and that a name that nothing has is said, escaped."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.models import AuditEntry, Cluster
from tests.web import factories
from tests.web.roles import page_html, row_ids

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("transactions/prod/", "No such transactional id is known on cluster prod"),
        ("partitions/prod/<b>never/", "is not watched on cluster prod"),
        ("groups/prod/", "Unknown group on cluster prod"),
        ("queries/prod/", "Unknown query on cluster prod"),
        ("flink-jobs/prod/", "Unknown Flink job on cluster prod"),
    ],
)
def test_a_name_that_nothing_has_is_said_escaped(page: Client, prod: Cluster, path: str, said: str) -> None:
    name = "99999999999" if path.startswith("partitions") else "<b>never</b>%1bseen"
    text = page_html(page, f"/{path}{name}", 404)
    assert said in text
    assert "<b>never" not in text
    page_html(page, f"/{path.replace('prod', 'nowhere')}{name}", 404)


def _alerts(of: Cluster, number: int) -> None:
    for n in range(number):
        row = factories.alert(of, f"transaction:id-{n:03}", fired_ms=1_795_000_000_000 + n)
        factories.alert_change(row, [1, "quiet", "why"])


def _queries(of: Cluster, number: int) -> None:
    for n in range(number):
        ledger = f"{n:08x}-0000-4000-8000-000000000000"
        factories.batches(factories.query(of, f"q{n:03}", f"id-{n}", ledger_id=ledger), (1_202, 1_203))


def _each(make: Callable[[Cluster, int], object]) -> Callable[[Cluster, int], None]:
    def fill(of: Cluster, number: int) -> None:
        for n in range(number):
            make(of, n)

    return fill


#: Makes so many rows of a list.
NUMBERED = {
    "alerts": _alerts,
    "flink-jobs": _each(lambda of, n: factories.flink_job(of, ident=f"job@{n}", prefix=f"copy{n:03}")),
    "groups": _each(lambda of, n: factories.group(of, f"group-{n:03}-x")),
    "partitions": _each(lambda of, n: factories.partition(of, "orders", n)),
    "queries": _queries,
    "silences": _each(lambda of, n: factories.silence(starts_s=-7_200 - n, ends_s=-3_600 - n)),
    "transactions": _each(lambda of, n: factories.transaction(of, f"id-{n:03}")),
}


@pytest.mark.parametrize("noun", NUMBERED)
def test_many_rows_have_numbered_pages_in_a_bounded_number_of_queries(
    page: Client, prod: Cluster, noun: str
) -> None:
    NUMBERED[noun](prod, 120)
    pages = [page_html(page, f"/{noun}?page={number}") for number in (1, 2, 3, 99)]
    assert [len(row_ids(text)) for text in pages] == [50, 50, 20, 20]
    assert len({row for text in pages for row in row_ids(text)}) == 120
    assert "1–50 of 120" in pages[0]
    with CaptureQueriesContext(connection) as captured:
        assert len(row_ids(page_html(page, f"/{noun}?size=100"))) == (50 if noun == "silences" else 100)
    assert len(captured) <= 45


#: Makes so many rows of a list that goes on behind the last row of a page; some at the same instant.
WALKED: dict[str, Callable[[Cluster, int], Any]] = {
    "actions": lambda of, n: factories.planned_action(),
    "audit": lambda of, n: factories.audit_entry(actor=f"user {n}"),
    "deliveries": lambda of, n: factories.delivery(factories.channel(f"ops {n}")),
    "incidents": lambda of, n: factories.incident(of),
    "recoveries": lambda of, n: factories.recovery(of, f"id-{n}", opened_ms=1_795_000_000_000 + n // 3),
}


@pytest.mark.sql
@pytest.mark.parametrize("noun", WALKED)
def test_many_rows_are_walked_through_from_the_newest(admin: Client, prod: Cluster, noun: str) -> None:
    numbers = [WALKED[noun](prod, n).pk for n in range(120)]
    if noun == "audit":
        numbers = [int(row.pk) for row in AuditEntry.objects.order_by("pk")]
    found, query = [], "?"
    while query:
        text = page_html(admin, f"/{noun}{html.unescape(query)}")
        found += [int(row.rpartition("-")[2]) for row in row_ids(text)]
        older = re.search(r'rel="next" href="([^"]+)"', text) or re.search(r'href="([^"]+)" rel="next"', text)
        query = older[1] if older else ""
    assert found == numbers[::-1]
    assert "older" in page_html(admin, f"/{noun}?before={'1-1' if noun == 'recoveries' else '1'}")
