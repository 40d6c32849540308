"""Proves that a list of ids holds what a plain reading of the table holds, whichever index answers it."""

import random
from collections.abc import Sequence
from itertools import product

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from dashboard.models import Transaction
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.queries import SORTS, SortedTransactions
from fenceline.facts import OPEN_STATES, TransactionState
from tests.cases import cases
from tests.web import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sql]
STATES = ("", "open", *(state.value for state in TransactionState))


@pytest.fixture
def now_ms() -> int:
    """The present; two clusters have ids in every state, most of them committed."""
    dice = random.Random(11)
    for name, number in (("prod", 60), ("staging", 25)):
        of = factories.cluster(name)
        factories.tail_collectors(of)
        for n in range(number):
            state = dice.choice([TransactionState.COMPLETE_COMMIT] * 9 + list(TransactionState))
            raw = f"{dice.choice(('orders', 'Payments'))}-{dice.randrange(4)}-{n}"
            factories.transaction(
                of, raw, state, age_ms=dice.randrange(100_000), producer_epoch=dice.randrange(4)
            )
    return factories.now_ms()


def plainly(wanted: SortedTransactions, now_ms: int) -> list[Transaction]:
    """Return what matches, in order, by reading every row."""
    rows = [row for row in Transaction.objects.select_related("cluster") if fits(row, wanted, now_ms)]
    rows.sort(key=lambda row: row.pk)
    by_id = wanted.sort in ("id", "attention")
    column = "transactional_id" if by_id else SORTS[wanted.sort]
    if by_id and wanted.descending:
        rows.reverse()  # By id, rows of one name turn round with the names.
    blank = [row for row in rows if getattr(row, column) is None]
    rows = [row for row in rows if getattr(row, column) is not None]
    rows.sort(key=lambda row: getattr(row, column), reverse=wanted.descending)
    return rows + blank if wanted.descending else blank + rows


def fits(row: Transaction, wanted: SortedTransactions, now_ms: int) -> bool:
    is_open = row.state in OPEN_STATES
    old = is_open and row.started_ms is not None
    if wanted.min_age_s is not None:
        old = old and (row.started_ms or 0) <= now_ms - int(wanted.min_age_s * 1000)
    return (
        (not wanted.cluster or row.cluster.name == wanted.cluster)
        and (not wanted.state or (is_open if wanted.state == "open" else row.state == wanted.state))
        and wanted.q.lower() in row.transactional_id.lower()
        and (not wanted.application or row.application == wanted.application)
        and (wanted.min_age_s is None or old)
    )


def check(wanted: SortedTransactions, now_ms: int) -> None:
    expected = plainly(wanted, now_ms)
    page = transaction_queries.transaction_page(wanted, now_ms=now_ms, size=50)
    assert [row.pk for row in page.items] == [row.pk for row in expected[:50]], wanted
    assert (page.total, page.whole, page.sorted) == (len(expected), True, True), wanted
    second = transaction_queries.transaction_page(wanted, now_ms=now_ms, size=50, page=2)
    assert [row.pk for row in second.items] == [row.pk for row in expected[50:] or expected], wanted


def test_every_filter_holds_what_matches(now_ms: int) -> None:
    clusters, searches, applications = ("", "prod"), ("", "PAY", "-1-"), ("", "orders")
    for state, cluster, q, application in product(STATES, clusters, searches, applications):
        check(
            SortedTransactions(cluster=cluster, state=state, q=q, application=application, sort="id"), now_ms
        )
    for state, q in product(STATES, ("", "pay")):
        check(SortedTransactions(state=state, min_age_s=50, q=q, sort="id"), now_ms)
    check(SortedTransactions(cluster="nowhere", sort="id"), now_ms)


def test_every_order_is_kept(now_ms: int) -> None:
    for sort, state, q, direction in product(SORTS, ("", "open", "Empty"), ("", "orders"), ("asc", "desc")):
        check(SortedTransactions(state=state, q=q, sort=sort, dir=direction), now_ms)


def test_those_that_need_attention_come_first_on_every_page(now_ms: int) -> None:
    """Whichever of them match; each id is on one page, whatever its place by id would be."""
    dice = random.Random(5)
    rows = list(Transaction.objects.all())
    first = [(row.cluster_id, row.transactional_id) for row in dice.sample(rows, 20)]
    names = [*first, (rows[0].cluster_id, "gone"), first[0]]
    for state, q, cluster in product(("", "CompleteCommit", "Ongoing"), ("", "pay"), ("", "prod")):
        wanted = SortedTransactions(state=state, q=q, cluster=cluster, sort="attention")
        matching = plainly(wanted, now_ms)
        leading = [
            row for name in first for row in matching if (row.cluster_id, row.transactional_id) == name
        ]
        expected = [*leading, *(row for row in matching if row not in leading)]
        found: list[Transaction] = []
        for number in range(1, 9):
            page = transaction_queries.transaction_page(
                wanted, now_ms=now_ms, size=11, page=number, first=names
            )
            found += page.items if page.number == number else []
            assert page.total == len(expected)
        assert found == expected[:88], wanted


def test_what_is_found_does_not_depend_on_the_index(now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # No state counts as dense: each is read from its own index.
    monkeypatch.setattr(transaction_queries, "DENSE", 0)
    for state, q in product(STATES, ("", "orders")):
        check(SortedTransactions(state=state, q=q, sort="id"), now_ms)


def test_counting_and_paging_end_and_say_so(now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_queries, "MOST_COUNTED", 10)
    for wanted in (
        SortedTransactions(q="-"),
        SortedTransactions(q="-", sort="epoch"),
        SortedTransactions(q="-", state="CompleteCommit"),
    ):
        page = transaction_queries.transaction_page(wanted, now_ms=now_ms, size=5, page=99)
        assert (page.total, page.whole, page.number, page.pages) == (10, False, 2, 2)
        assert [row.pk for row in page.items] == [row.pk for row in plainly(wanted, now_ms)[5:10]]


def test_an_order_without_an_index_is_refused_where_too_many_would_be_read(
    now_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_queries, "MOST_SCANNED", 20)
    page = transaction_queries.transaction_page(SortedTransactions(sort="epoch"), now_ms=now_ms)
    assert not page.sorted
    assert [row.pk for row in page.items] == [row.pk for row in plainly(SortedTransactions(), now_ms)[:50]]
    check(
        SortedTransactions(sort="epoch", state="open"), now_ms
    )  # Open ones are few, whatever the number of ids.


@cases(
    (SortedTransactions(), "transaction_name"),
    (SortedTransactions(q="x"), "transaction_name"),
    (SortedTransactions(application="orders"), "transaction_application"),
    (SortedTransactions(state="open", sort="started"), "transaction_open"),
    (SortedTransactions(min_age_s=1, sort="epoch"), "transaction_open"),
)
def test_a_list_goes_along_its_index(now_ms: int, wanted: SortedTransactions, index: str) -> None:
    with CaptureQueriesContext(connection) as asked:
        transaction_queries.transaction_page(wanted, now_ms=now_ms)
    assert any(index in plan for plan in plans(asked, index))


def test_the_judge_reads_open_transactions_along_their_index(now_ms: int) -> None:
    with CaptureQueriesContext(connection) as asked:
        list(transaction_queries.open_transactions("prod"))
    assert "transaction_open" in plans(asked, "transaction_open")[-1]


def plans(asked: CaptureQueriesContext, index: str) -> Sequence[str]:
    """Return the database's plan of each query about transactions; PostgreSQL has that index alone for it."""
    found = []
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            leave_only(cursor, index)
        explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
        for sql in [each["sql"] for each in asked if 'FROM "dashboard_transaction"' in each["sql"]]:
            cursor.execute(f"{explain} {sql}".replace("%", "%%"))
            found.append(" ".join(str(line[-1]) for line in cursor.fetchall()))
    return found


def leave_only(cursor: CursorWrapper, index: str) -> None:
    """Take away, until the test is rolled back, what else a plan for so few rows might go along.

    What it would choose depends on what other tests have left in the table's pages; what is to be seen is
    that this index serves.
    """
    for way in ("seqscan", "bitmapscan", "sort", "incremental_sort"):
        cursor.execute(f"SET LOCAL enable_{way} = off")
    cursor.execute(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'dashboard_transaction' AND indexname <> %s "
        "AND indexname NOT IN (SELECT conname FROM pg_constraint)",
        [index],
    )
    for (name,) in cursor.fetchall():
        cursor.execute(f'DROP INDEX "{name}"')


def test_letters_of_any_script_are_searched_for(now_ms: int) -> None:
    row = factories.transaction(factories.cluster("prod"), "größe-Ω-1")
    for asked in ("größe", "GRößE", "Ω-1"):
        assert [
            each.pk
            for each in transaction_queries.transaction_page(SortedTransactions(q=asked), now_ms=now_ms).items
        ] == [row.pk]
