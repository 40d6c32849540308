"""Proves that the list's address says all there is to the view of it, that no address breaks it, and that a
parameter that is too long is refused with a clear text that does not repeat it."""

import html
import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from dashboard.models import Cluster
from fenceline.facts import TransactionState
from tests.web import factories
from tests.web.roles import page_html

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]


@pytest.fixture
def three(page: Client, prod: Cluster) -> Client:
    factories.transaction(prod, "a-1", age_ms=90_000, producer_epoch=3)
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT, age_ms=10_000, producer_epoch=1)
    factories.transaction(prod, "c-1", TransactionState.PREPARE_ABORT, age_ms=300_000, producer_epoch=2)
    return page


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
    found = re.findall(r"data-row><bdi>([^<]+)</bdi>", page_html(three, f"/transactions{query}"))
    assert found == shown


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


PAGES = (
    "/", "/find", "/transactions", "/partitions", "/groups", "/queries", "/flink-jobs", "/events", "/actions",
    "/alerts", "/recoveries", "/audit", "/pipelines", "/incidents", "/admin/auth/user/", "/login/",
)  # fmt: skip


@pytest.mark.sql
@pytest.mark.parametrize("length", [201, 50_001])
def test_a_search_text_that_is_too_long_is_refused_and_not_repeated(admin: Client, length: int) -> None:
    for path in PAGES:
        answer = admin.get(path, {"q": "x" * length})
        assert answer.status_code == 422, path
        text = answer.content.decode()
        assert f"Its parameter q has {length} characters; at most 200 are used." in text
        assert "x" * 20 not in text
        assert answer["Content-Security-Policy"]


def test_a_search_text_of_200_letters_is_searched_for(admin: Client) -> None:
    for path in PAGES:
        assert admin.get(path, {"q": "x" * 200}).status_code in (200, 302), path


@pytest.mark.parametrize("name", ["cluster", "application", "focus", "from", "nobody-knows"])
def test_any_parameter_that_is_too_long_is_refused(admin: Client, name: str) -> None:
    answer = admin.get("/transactions", {name: "x" * 1_001})
    assert answer.status_code == 422
    assert f"Its parameter {name} has 1001 characters" in answer.content.decode()


def test_links_to_a_search_keep_names_that_are_longer(admin: Client) -> None:
    topic = "t" * 249
    answer = admin.get(f"/partitions/prod/{topic}")
    assert admin.get(answer["Location"]).status_code == 200
    name = "i" * 900
    factories.takeover_history(Cluster.objects.get(), name.encode())
    text = admin.get(f"/transactions/prod/{name}").content.decode()
    links = [html.unescape(each) for each in re.findall(r'href="(/[^"]*\?[^"]*q=[^"]*)"', text)]
    assert links
    for url in links:
        assert admin.get(url).status_code == 200, url


def test_matchers_and_the_way_back_of_a_sign_in_may_be_longer(admin: Client) -> None:
    matchers = ", ".join(f'team!="team-{number}"' for number in range(60))
    assert admin.get("/silences/new", {"matchers": matchers}).status_code == 200
    assert Client().get(f"/login/?{urlencode({'next': '/transactions/' + 'x' * 2_000})}").status_code == 200
