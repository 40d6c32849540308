"""Proves that the list's address says all there is to the view of it, and that no address breaks it."""

import re

import pytest
from django.test import Client

from dashboard.models import Cluster
from fenceline.facts import TransactionState
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(page: Client, prod: Cluster) -> Client:
    factories.transaction(prod, "a-1", age_ms=90_000, producer_epoch=3)
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT, age_ms=10_000, producer_epoch=1)
    factories.transaction(prod, "c-1", TransactionState.PREPARE_ABORT, age_ms=300_000, producer_epoch=2)
    return page


def ids(page: Client, query: str) -> list[str]:
    return re.findall(r"data-row><bdi>([^<]+)</bdi>", page_html(page, f"/transactions{query}"))


@pytest.mark.sql
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["a-1", "b-2", "c-1"]),  # By id: rows stay where they are while they change.
        ("?state=open", ["c-1", "a-1"]),  # Open ones: the oldest first.
        ("?q=-1&state=Ongoing", ["a-1"]),
        ("?min_age_s=120", ["c-1"]),
        ("?q=%25", []),  # A LIKE wildcard is an ordinary character.
    ],
)
def test_the_address_decides_what_is_shown_and_in_which_order(
    three: Client, query: str, shown: list[str]
) -> None:
    assert ids(three, query) == shown


def test_a_bad_value_is_shown_escaped(three: Client) -> None:
    text = page_html(three, "/transactions?state=<script>alert(1)</script>")
    assert "state “&lt;script&gt;" in text
    assert "a-1" in text
    assert "<script>alert" not in text


@pytest.mark.sql
@pytest.mark.parametrize(
    "query", ["?q=%00", "?q=%ff%fe", "?q=" + "x" * 200, "?q=%F0%9F%98%80", "?&&=&q", "?q=a&q=b"]
)
def test_no_search_breaks_the_page(three: Client, query: str) -> None:
    assert three.get(f"/transactions{query}").status_code == 200


def test_a_click_on_the_sorted_column_turns_it_round(three: Client) -> None:
    text = three.get("/transactions?sort=epoch&dir=desc&q=1").content.decode()
    assert re.search(r'aria-sort="descending"><a class="sort" href="\?sort=epoch&amp;dir=asc&amp;q=1"', text)


def test_a_search_keeps_state_and_sort(three: Client) -> None:
    text = three.get("/transactions?state=open&sort=id&q=1").content.decode()
    assert '<input type="hidden" name="state" value="open">' in text
    assert '<input type="hidden" name="sort" value="id">' in text
    assert 'name="q" value="1"' in text
