"""Proves that a transaction's page shows the offsets that it added to groups, and what is not known."""

import re
from typing import NamedTuple

import pytest
from django.test import Client

from dashboard.models import Transaction
from fenceline.facts import TransactionState
from fenceline.kafka.added_offsets import AddedOffset, pack_offsets, unpack_offsets
from tests.web import factories
from tests.web.roles import text_of

pytestmark = pytest.mark.django_db

#: After every instant that a test can reach: what was seen through it is up to date.
NOW = {"seen_through_ms": 4_000_000_000_000}
ADDED = {"orders": [0], "__consumer_offsets": [12]}


class Shown(NamedTuple):
    """What a page shows of added offsets: how completely they were read, of which groups, what is missing."""

    observation: list[str]
    groups: list[str]
    offsets: list[str]
    missing: list[str]


def shown(page: Client, row: Transaction) -> Shown:
    html = page.get(f"/transactions/prod/{row.transactional_id}").content.decode()
    return Shown(
        re.findall(r'data-offsets="(\w+)"', html),
        [text_of(each) for each in re.findall(r"data-added-group>(.*?)</a>", html)],
        [text_of(each) for each in re.findall(r"<li data-added-offset>(.*?)</li>", html)],
        [text_of(each) for each in re.findall(r"<span [^>]*data-missing>(.*?)</span>", html)],
    )


def committed(row: Transaction, **fields: object) -> Transaction:
    """The same transaction after its end: its record names no partition any more."""
    changed = {
        "state": TransactionState.COMPLETE_COMMIT.value,
        "partitions": "",
        "updated_ms": factories.now_ms(),
    }
    Transaction.objects.filter(pk=row.pk).update(**(changed | fields))
    row.refresh_from_db()
    return row


def test_an_open_transaction_shows_group_partition_offset_and_instant(page: Client) -> None:
    row = factories.transaction(factories.cluster(), age_ms=5_000, partitions=ADDED)
    record = factories.added_offsets(row)
    found = shown(page, row)
    assert (found.observation, found.groups, found.missing) == (["complete"], ["enrich"], [])
    assert [each.rsplit(" ", 1)[0] for each in found.offsets] == [
        f"payments-{n} → offset {100 + n}" for n in range(2)
    ]
    (at_ms,) = {each.at_ms for each in unpack_offsets(record.offsets)}
    assert all(f"{at_ms % 60_000 / 1_000:06.3f}" in each for each in found.offsets)


def test_a_finished_transaction_keeps_what_was_read_up_to_its_marker(page: Client) -> None:
    row = factories.transaction(factories.cluster(), age_ms=5_000, partitions=ADDED)
    factories.added_offsets(row, marker="commit")
    found = shown(page, committed(row, producer_epoch=row.producer_epoch + 1))
    assert (found.observation, len(found.offsets), found.missing) == (["complete"], 2, [])


def test_what_was_read_only_before_the_end_is_incomplete(page: Client) -> None:
    row = factories.transaction(factories.cluster(), age_ms=5_000, partitions=ADDED)
    factories.added_offsets(row)
    found = shown(page, committed(row))
    assert (found.observation, len(found.offsets)) == (["partial"], 2)
    (why,) = found.missing
    assert "Incomplete" in why
    assert "not up to its marker" in why


def test_the_offsets_of_the_transaction_before_are_not_shown(page: Client) -> None:
    row = factories.transaction(factories.cluster(), age_ms=5_000, partitions=ADDED)
    factories.added_offsets(row, age_ms=9_000)
    found = shown(page, row)
    assert (found.observation, found.offsets) == (["none"], [])


def test_a_transaction_without_offsets_has_no_such_step(page: Client) -> None:
    prod = factories.cluster()
    assert shown(page, factories.transaction(prod, partitions={"orders": [0]})) == Shown([], [], [], [])
    assert shown(page, factories.transaction(prod, "idle", TransactionState.EMPTY)) == Shown([], [], [], [])


@pytest.mark.parametrize(
    ("collectors", "words"),
    [
        ({}, "are not polled"),
        ({"groups": {"error": "no broker answers"}}, "cannot be polled: no broker answers"),
        ({"groups": {"seen_through_ms": 1}}, "not polled since the transaction began"),
        ({"groups": NOW, "consumer_offsets": {"error": "no READ"}}, "cannot be read: no READ"),
        ({"groups": NOW, "consumer_offsets": {}}, "two polls of groups in a row"),
    ],
)
def test_the_reason_is_named_where_nothing_was_read(
    page: Client, collectors: dict[str, dict[str, object]], words: str
) -> None:
    prod = factories.cluster()
    for name, fields in collectors.items():
        factories.collector(prod, name, **fields)
    found = shown(page, factories.transaction(prod, partitions=ADDED))
    assert (found.observation, found.offsets) == (["none"], [])
    (why,) = found.missing
    assert "Not observed" in why
    assert words in why


def test_hostile_group_names_are_escaped_and_many_offsets_are_folded(page: Client) -> None:
    row = factories.transaction(factories.cluster(), age_ms=5_000, partitions=ADDED)
    at_ms = factories.now_ms()
    many = [AddedOffset("<script>alert(1)</script>", "t", n, n, at_ms, 12, n) for n in range(9)]
    factories.added_offsets(row, offsets=pack_offsets(many), total=9)
    html = page.get(f"/transactions/prod/{row.transactional_id}").content.decode()
    assert "<script>alert" not in html
    assert html.count("data-added-offset") == 9
    folded = html.split('id="added-offsets-1"')[1].split("</details>")[0]
    assert folded.count("data-added-offset") == 3
