"""Proves that a transaction's own page says what is true now, for every state and for any id."""

import re

import pytest
from django.test import Client

from dashboard.models import Cluster, Transaction
from dashboard.web import addresses
from fenceline.facts import NOT_FROM_LOG, NOT_REPORTED, TransactionState
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def read(page: Client, row: Transaction) -> str:
    return page_html(page, addresses.transaction_url(row.cluster.name, row.transactional_id))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TransactionState.EMPTY, "It is idle."),
        (TransactionState.ONGOING, "It has been open for"),
        (TransactionState.PREPARE_COMMIT, "Its coordinator decided to commit it"),
        (TransactionState.PREPARE_ABORT, "Its coordinator decided to abort it"),
        (TransactionState.COMPLETE_COMMIT, "It was committed"),
        (TransactionState.COMPLETE_ABORT, "It was aborted"),
    ],
)
def test_each_state_is_said_and_lit(page: Client, state: TransactionState, words: str) -> None:
    text = read(page, factories.transaction(factories.cluster(), state=state))
    assert words in text
    lit = re.findall(r'box-lit[^"]*"><rect [^>]*/><text [^>]*>(\w+)<', text)
    assert lit == [state.value, state.value]  # Drawn twice: for wide pages and for phones.


def test_its_way_names_hash_partition_and_offset(page: Client, prod: Cluster) -> None:
    # "abc".hashCode() is 96354 in Java; 96354 mod 50 is 4.
    row = factories.transaction(prod, "abc", log_partition=4, log_offset=24_049)
    assert "hash 96,354 mod 50 → __transaction_state-4, offset 24,049" in read(page, row)


def test_offsets_are_told_apart_from_data(page: Client) -> None:
    row = factories.transaction(
        factories.cluster(), partitions={"orders": [0, 7], "__consumer_offsets": [16, 17, 18]}
    )
    text = read(page, row)
    assert "offsets added" in text
    assert "a read-process-write transaction" in text
    assert "16-18" in text
    assert "orders-7" in text


def test_its_findings_are_on_its_page_and_no_others(page: Client, prod: Cluster) -> None:
    row = factories.transaction(prod, "mine")
    factories.finding(prod, "transaction:mine")
    factories.finding(prod, "transaction:other", summary="quite another one")
    text = read(page, row)
    assert re.findall(r'data-finding="(\w+)"', text) == ["open_too_long"]
    assert "mine has been open since 10:21:14" not in text, "its headline states it"
    assert "quite another one" not in text


def test_an_id_that_looks_like_a_key_is_found_by_its_own_name(page: Client, prod: Cluster) -> None:
    named = factories.transaction(prod, b"~" + b"0" * 64)
    assert named.transactional_id in read(page, named)


def test_what_a_coordinators_list_does_not_tell_is_never_a_number(page: Client) -> None:
    """Where the topic may not be read, an id's epoch, timeout and place are not known at first."""
    unknown = {"producer_epoch": NOT_REPORTED, "timeout_ms": NOT_REPORTED, "log_partition": NOT_REPORTED}
    row = factories.transaction(
        factories.cluster(),
        state=TransactionState.COMPLETE_COMMIT,
        started_ms=None,
        log_offset=NOT_FROM_LOG,
        **unknown,
    )
    text = read(page, row)
    assert "state reported by the coordinator" in text
    assert "timeout not known yet" in text
    listed = " ".join(page.get("/transactions").content.decode().split())
    for shown in (text, listed):
        assert not re.search(r">-1<|epoch -1|offset -1|· -1", shown)


def test_a_decided_transaction_names_late_markers_with_their_leaders(page: Client, prod: Cluster) -> None:
    """One is waited for, one has its marker; two are not known: unread, or behind since the last poll."""
    row = factories.transaction(
        prod, "payments-7", TransactionState.PREPARE_COMMIT, partitions={"late": [0, 1, 2, 3]}, age_ms=20_000
    )
    factories.lso_blocker(prod, "late", 0, producer_id=row.producer_id)
    factories.partition(prod, "late", 1)
    factories.partition(prod, "late", 2, error="broker 3 does not answer", leader=None)
    factories.partition(prod, "late", 3, lso=48_000)
    shown = re.findall(r'data-marker="(\w+)".*?(broker \d|no leader)', read(page, row))
    assert shown == [
        ("waiting", "broker 1"), ("written", "broker 2"), ("unknown", "no leader"), ("unknown", "broker 1")
    ]  # fmt: skip
    done = factories.transaction(prod, "done", TransactionState.COMPLETE_COMMIT, partitions={"late": [1]})
    assert "data-marker" not in read(page, done)
