"""Proves what a transaction's page tells of groups: who waits for it and where, with its coordinator and
whose it is; the offsets that it added to groups, and what of them is not known."""

import json
import re
from typing import NamedTuple

import pytest
from django.test import Client

from dashboard.models import Cluster, Transaction
from fenceline.facts import NOT_REPORTED, TransactionState
from fenceline.kafka.added_offsets import AddedOffset, pack_offsets, unpack_offsets
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html, text_of

pytestmark = pytest.mark.django_db
ONE = "/transactions/prod/payments-7"
#: After every instant that a test can reach: what was seen through it is up to date.
NOW = {"seen_through_ms": 4_000_000_000_000}
ADDED = {"orders": [0], "__consumer_offsets": [12]}


def pending(of: Cluster, *, certain: bool = True, name: str = "payments-7") -> None:
    """Let a commit of group app wait for a transaction."""
    told = {"transactional_id": name, "producer_id": 4017, "pending": True, "certain": certain}
    group = factories.group(of, "app", log_partition=17)
    factories.group_offset(group, "input", 3, unstable=True, offset=None, blockers=[told])


def test_the_groups_that_stand_where_it_is_open_wait_for_it(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, partitions={"payments": [0, 1]})
    pin = factories.lso_blocker(prod, "payments", 0, "late")
    factories.partition(prod, "payments", 1)
    factories.blocked_offset(factories.group(prod, "billing"), pin)
    factories.group_offset(factories.group(prod, "mirror"), waiting="reads_past", offset=49_981)
    text = page_html(page, ONE)
    assert "2 partitions in this transaction · 1 group blocked" in text
    assert 'href="/groups/prod/billing"' in text
    assert 'href="/groups/prod/mirror"' not in text
    assert 'href="/partitions/prod/payments/0"' in text
    assert "blocked by another" not in text
    listed = page_html(page, "/transactions?state=open")
    assert '<td class="col-waiting number">1 group<' in listed
    assert "col-waiting" not in page_html(page, "/transactions")


def test_a_query_that_stands_where_it_holds_the_lso_is_named_too(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, partitions={"payments": [0, 1]})
    pin = factories.lso_blocker(prod, "payments", 0, "late")
    factories.partition(prod, "payments", 1)
    stands = factories.query(prod, finished=7)
    factories.batch(stands, 7, offsets=[["0", json.dumps({"payments": {"0": pin.start_offset, "1": 5}})]])
    text = page_html(page, ONE)
    assert "2 partitions in this transaction · 1 query blocked at its LSO" in text
    assert f'query <a href="/queries/prod/{stands.ident}"><bdi>orders_enrich</bdi></a>' in text
    assert text.count('<span class="muted">none</span>') == 1


def test_who_waits_for_another_one_in_the_same_partition_is_not_its_waiter(
    page: Client, prod: Cluster
) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, partitions={"payments": [0]})
    first = factories.lso_blocker(prod, "payments", 0, transactional_id="first-1", producer_id=9)
    second = factories.lso_blocker(prod, "elsewhere", 0, producer_id=4017)
    factories.blocked_offset(factories.group(prod, "billing"), first)
    assert second.transactional_id == "payments-7"
    text = page_html(page, ONE)
    assert "/groups/prod/billing" not in text
    assert "blocked by another" in text


def test_a_producer_without_a_known_id_is_matched_by_its_number(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, partitions={"payments": [0]})
    pin = factories.lso_blocker(prod, "payments", 0, transactional_id="")
    factories.blocked_offset(factories.group(prod, "billing"), pin)
    assert 'href="/groups/prod/billing"' in page_html(page, ONE)


def test_a_pin_of_another_cluster_is_none_of_its(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, partitions={"payments": [0]})
    staging = factories.cluster("staging")
    factories.blocked_offset(
        factories.group(staging, "elsewhere"), factories.lso_blocker(staging, "payments", 0)
    )
    assert "elsewhere" not in page_html(page, ONE)


def test_a_transaction_that_an_earlier_epoch_left_hangs_beside_a_complete_one(
    page: Client, prod: Cluster
) -> None:
    factories.transaction(
        prod, "payments-7", TransactionState.COMPLETE_COMMIT, producer_id=4017, partitions={}
    )
    factories.lso_blocker(prod, "payments", 0, "hanging", ground="not_its_partition")
    text = page_html(page, ONE)
    assert "</i>hanging</span>" in text
    assert 'href="/partitions/prod/payments/0"' in text


def test_an_end_that_overtook_a_pin_is_no_verdict(page: Client, prod: Cluster) -> None:
    factories.transaction(
        prod, "payments-7", TransactionState.COMPLETE_COMMIT, producer_id=4017, partitions={}
    )
    factories.lso_blocker(prod, "payments", 0, "late")
    assert "</i>late</span> <button" not in page_html(page, ONE)


class TestReadProcessWrite:
    """A transaction that names partitions of `__consumer_offsets` commits positions of groups."""

    @pytest.fixture(autouse=True)
    def one(self, prod: Cluster) -> None:
        named = {"output": [0], "__consumer_offsets": [17]}
        factories.transaction(prod, "payments-7", producer_id=4017, partitions=named)

    def test_the_group_whose_commit_is_pending_is_named(self, page: Client, prod: Cluster) -> None:
        pending(prod)
        factories.group(prod, "other", log_partition=17)
        text = page_html(page, ONE)
        assert 'href="/groups/prod/app"' in text
        assert 'href="/groups/prod/other"' not in text
        assert "(possibly)" not in text
        assert "a read-process-write transaction" in text

    def test_how_sure_that_is_is_said(self, page: Client, prod: Cluster) -> None:
        pending(prod, certain=False)
        assert "input-3 (possibly)" in page_html(page, ONE)

    def test_else_candidates_are_said_to_be_candidates(self, page: Client, prod: Cluster) -> None:
        factories.group(prod, "other", log_partition=17)
        factories.group(prod, "elsewhere", log_partition=18)
        text = page_html(page, ONE)
        assert '<span class="muted">one of </span><a href="/groups/prod/other">' in text
        assert "its record does not name the group" in text
        assert "/groups/prod/elsewhere" not in text

    def test_a_pending_commit_of_another_transaction_is_not_its(self, page: Client, prod: Cluster) -> None:
        pending(prod, name="payments-8")
        assert "(possibly)" not in page_html(page, ONE)
        assert "1 group blocked" not in page_html(page, ONE)


def test_the_coordinator_is_the_leader_of_its_partition(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", log_partition=7)
    text = page_html(page, ONE)
    assert "its leader is not known yet" in text
    assert "the leader of its partition of __transaction_state is not known yet" in text
    factories.partition(prod, "__transaction_state", 7, leader=2)
    text = page_html(page, ONE)
    assert "→ broker 2" in text
    assert '<dd class="tile-value">broker 2</dd>' in text


def test_an_id_known_from_lists_has_no_coordinator_to_be_missed(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", log_partition=NOT_REPORTED)
    factories.partition(prod, "__transaction_state", 7)
    assert "broker 2" not in page_html(page, ONE)


def test_many_partitions_are_cut_short(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", partitions={"payments": list(range(400))})
    text = page_html(page, ONE)
    assert text.count('<tr id="place-') == 50
    assert "0-399" in text


@cases(
    ("partition:my-topic-3", "/partitions/prod/my-topic/3", "Open partition"),
    ("group:a/b", "/groups/prod/a%2Fb", "Open group"),
    ("application:orders", "/events?application=orders&amp;cluster=prod", "See its events"),
    ("collector:partitions", "/system#collector-prod-partitions", "See collectors"),
    ("cluster:prod", "/system?cluster=prod", "See System"),
)
def test_a_finding_leads_to_its_subject(
    page: Client, prod: Cluster, subject: str, where: str, words: str
) -> None:
    factories.finding(prod, subject)
    text = page_html(page, "/")
    assert f'href="{where}"' in text
    assert words in text
    assert ('<span id="nav-groups"><span class="badge' in text) is subject.startswith("group:")


def test_the_first_page_counts_what_is_held_and_who_waits(page: Client, prod: Cluster) -> None:
    factories.blocked_offset(
        factories.group(prod, "billing", "BLOCKED", blocked=1), factories.lso_blocker(prod, "payments")
    )
    factories.lso_blocker(prod, "__consumer_offsets", 17)
    text = page_html(page, "/")
    assert "<li>2 partitions blocked</li>" in text
    assert "<li>1 group blocked</li>" in text


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
    expected = [f"payments-{n} → offset {100 + n}" for n in range(2)]
    assert [each.rsplit(" ", 1)[0] for each in found.offsets] == expected
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


@cases(
    ({}, "are not polled"),
    ({"groups": {"error": "no broker answers"}}, "cannot be polled: no broker answers"),
    ({"groups": {"seen_through_ms": 1}}, "not polled since the transaction began"),
    ({"groups": NOW, "consumer_offsets": {"error": "no READ"}}, "cannot be read: no READ"),
    ({"groups": NOW, "consumer_offsets": {}}, "two polls of groups in a row"),
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
