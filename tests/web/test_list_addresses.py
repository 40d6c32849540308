"""Proves that the list's address says all there is to the view of it, and that no address breaks it."""

import re

import pytest
from django.test import Client

from fenceline.facts import TransactionState
from tests.web import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(page: Client) -> Client:
    prod = factories.cluster()
    factories.tail_collectors(prod)
    factories.transaction(prod, "a-1", age_ms=90_000, producer_epoch=3)
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT, age_ms=10_000, producer_epoch=1)
    factories.transaction(prod, "c-1", TransactionState.PREPARE_ABORT, age_ms=300_000, producer_epoch=2)
    return page


def ids(page: Client, query: str) -> list[str]:
    answer = page.get(f"/transactions{query}")
    assert answer.status_code == 200
    return re.findall(r"data-row><bdi>([^<]+)</bdi>", answer.content.decode())


@pytest.mark.sql
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["a-1", "b-2", "c-1"]),  # By id: rows stay where they are while they change.
        ("?state=open", ["c-1", "a-1"]),  # Open ones: the oldest first.
        ("?state=CompleteCommit", ["b-2"]),
        ("?q=-1", ["a-1", "c-1"]),
        ("?q=A-", ["a-1"]),
        ("?q=-1&state=Ongoing", ["a-1"]),
        ("?min_age_s=120", ["c-1"]),
        ("?sort=epoch&dir=desc", ["a-1", "c-1", "b-2"]),
        ("?sort=id&dir=desc", ["c-1", "b-2", "a-1"]),
        ("?page=999", ["a-1", "b-2", "c-1"]),  # Past the end: the last page there is.
        ("?q=%25", []),  # A LIKE wildcard is an ordinary character.
    ],
)
def test_the_address_decides_what_is_shown(three: Client, query: str, shown: list[str]) -> None:
    assert ids(three, query) == shown


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?state=Broken", "state “Broken” is none of open, Empty"),
        ("?sort=secret", "sort “secret” is none of attention, id"),
        ("?dir=up", "dir “up” is none of asc, desc"),
        ("?page=x", "page “x” is not a page number"),
        ("?page=-1", "page “-1” is not a page number"),
        ("?page=%C2%B2", "is not a page number"),  # Superscript two is a digit to Python.
        ("?page=99999999999999999999", "is not a page number"),
        ("?size=7", "size “7” is none of 50, 100, 200"),
        ("?min_age_s=old", "min_age_s “old” is not a number of seconds"),
        ("?min_age_s=nan", "is not a number of seconds"),
        ("?min_age_s=inf", "is not a number of seconds"),
        ("?min_age_s=-5", "is not a number of seconds"),
        ("?cluster=nowhere", "cluster “nowhere” is not configured"),
        ("?state=%00%1b", "is none of open"),
        ("?state=<script>alert(1)</script>", "state “&lt;script&gt;"),
    ],
)
def test_a_bad_value_is_ignored_and_told(three: Client, query: str, said: str) -> None:
    text = three.get(f"/transactions{query}").content.decode()
    assert said in text
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
