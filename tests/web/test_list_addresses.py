"""Proves that the address of a list says all there is to the view of it: filters, order, and pages of many
rows, in a bounded number of queries; that no address breaks it, that one which is too long is refused and not
repeated, and that a name that nothing has is said, escaped."""

import html
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.models import AuditEntry, Cluster
from fenceline.facts import TransactionState
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html, row_ids

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]


@pytest.fixture
def three(page: Client, prod: Cluster) -> Client:
    factories.transaction(prod, "a-1", age_ms=90_000, producer_epoch=3)
    factories.transaction(prod, "b-2", TransactionState.COMPLETE_COMMIT, age_ms=10_000, producer_epoch=1)
    factories.transaction(prod, "c-1", TransactionState.PREPARE_ABORT, age_ms=300_000, producer_epoch=2)
    return page


@pytest.mark.sql
@cases(
    ("", ["a-1", "b-2", "c-1"]),  # By id: rows stay where they are while they change.
    ("?state=open", ["c-1", "a-1"]),  # Open ones: the oldest first.
    ("?q=-1&state=Ongoing", ["a-1"]),
    ("?min_age_s=120", ["c-1"]),
    ("?q=%25", []),  # A LIKE wildcard is an ordinary character.
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
@pytest.mark.parametrize("query", ["?q=%00", "?&&=&q", "?q=a&q=b"])
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


@cases(
    ("transactions/prod/", "No such transactional id is known on cluster prod"),
    ("partitions/prod/<b>never/", "is not watched on cluster prod"),
    ("groups/prod/", "Unknown group on cluster prod"),
    ("queries/prod/", "Unknown query on cluster prod"),
    ("flink-jobs/prod/", "Unknown Flink job on cluster prod"),
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
