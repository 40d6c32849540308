"""Proves that groups are listed, folded and told truly: lag to LSO and end apart, and what they wait for."""

import html
import json
import re

import pytest
from django.test import Client

from dashboard.labels.status import trend_word
from dashboard.models import Cluster, Group, GroupRecord
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
FAMILY = "spark-kafka-source-*"


def names(page: Client, query: str = "") -> list[str]:
    return [
        html.unescape(name)
        for name in re.findall(r"data-row><bdi>([^<]+)</bdi>", page_html(page, f"/groups{query}"))
    ]


@pytest.fixture
def five(prod: Cluster) -> Cluster:
    factories.group(prod, "fine", lag_lso=1, lag_hw=1, lag_ms=10)
    factories.group(prod, "stopped", "STOP", lag_lso=50, lag_hw=50, lag_ms=9_000)
    factories.group(prod, "blocked", "BLOCKED", blocked=1, lag_lso=0, lag_hw=900, lag_ms=5_000)
    factories.group(prod, "pending", "UNKNOWN", unstable=1, lag_lso=None, lag_hw=None, lag_ms=None)
    for n in range(3):
        status = "WARN" if n else "OK"
        factories.group(prod, factories.spark_group_id(n), status, lag_lso=2, lag_hw=100, lag_ms=None)
    return prod


@pytest.mark.sql
@cases(
    ("", ["blocked", "stopped", FAMILY, "pending", "fine"]),
    ("?sort=name", ["blocked", "fine", "pending", FAMILY, "stopped"]),
    ("?sort=lag", ["blocked", FAMILY, "stopped", "fine", "pending"]),
    ("?sort=unread", ["stopped", FAMILY, "fine", "blocked", "pending"]),
    ("?sort=behind", ["stopped", "blocked", "fine", "pending", FAMILY]),
    ("?sort=behind&dir=asc", ["fine", "blocked", "stopped", "pending", FAMILY]),
    ("?status=BLOCKED", ["blocked"]),
    ("?status=pending", ["pending"]),
    ("?status=WARN", [FAMILY]),
    ("?q=LOCK", ["blocked"]),
    ("?q=%25", []),
    (f"?family={FAMILY}&sort=name", [factories.spark_group_id(n) for n in range(3)]),
    (f"?family={FAMILY}&status=OK", [factories.spark_group_id(0)]),
    ("?family=none", []),
)
def test_the_address_decides_what_is_shown(page: Client, five: Cluster, query: str, shown: list[str]) -> None:
    assert names(page, query) == shown


def test_families_are_folded_and_explained(page: Client, five: Cluster) -> None:
    text = page_html(page, "/groups")
    assert "7 consumer groups in 5 rows: groups with random ids are folded" in text
    assert "3 groups" in text
    assert "300" in text  # Their lags together.
    text = page_html(page, f"/groups?family={FAMILY}")
    assert "Spark makes a group id of its own for every start of a query" in text
    assert "Family:" not in text
    text = page_html(page, f"/groups/prod/{factories.spark_group_id(1)}")
    assert "Family:" in text
    assert "Spark makes a group id of its own" in text


def test_a_sum_that_leaves_some_out_says_so(page: Client, prod: Cluster) -> None:
    factories.group(prod, factories.spark_group_id(1), lag_hw=40, lag_lso=40)
    factories.group(prod, factories.spark_group_id(2), lag_hw=None, lag_lso=None)
    assert "≥ 40" in page_html(page, "/groups")


def test_a_family_of_one_is_still_a_family(page: Client, prod: Cluster) -> None:
    factories.group(prod, factories.spark_group_id(1))
    assert names(page) == [FAMILY]


def test_what_blocks_a_group_is_named_and_linked(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "billing", "BLOCKED", blocked=2)
    factories.blocked_offset(group, factories.lso_blocker(prod, "payments", 0, transactional_id="payments-7"))
    factories.blocked_offset(group, factories.lso_blocker(prod, "payments", 1, transactional_id="payments-7"))
    factories.blocked_offset(
        group, factories.lso_blocker(prod, "payments", 2, transactional_id="", producer_id=9001)
    )
    for url in ("/groups", "/groups/prod/billing"):
        text = page_html(page, url)
        assert 'href="/transactions/prod/payments-7"' in text, url
    assert "+1" in page_html(page, "/groups")
    text = page_html(page, "/groups/prod/billing")
    assert "producer 9001" in text
    assert "It has likely been blocked at 2 partitions for" in text
    assert "It is healthy" not in text


def test_a_blocked_group_is_ok_nowhere(page: Client, prod: Cluster) -> None:
    """Its page, the list and the first page agree."""
    group = factories.group(prod, "billing", "BLOCKED", blocked=1, members=0)
    factories.blocked_offset(group, factories.lso_blocker(prod, "payments"))
    one = page_html(page, "/groups/prod/billing")
    badge = '<i class="mark mark-critical" aria-hidden="true"></i>BLOCKED</span>'
    assert one.count(badge) == 2, "the group's and its partition's"
    assert "It has no members." in one
    assert badge in page_html(page, "/groups")
    assert "<li>1 group blocked</li>" in page_html(page, "/")


def test_a_group_that_has_just_come_to_the_lso_is_not_called_blocked(page: Client, prod: Cluster) -> None:
    row = factories.blocked_offset(
        factories.group(prod, "billing"), factories.lso_blocker(prod, "payments"), age_ms=2_000
    )
    row.status = "OK"
    row.save()
    text = page_html(page, "/groups/prod/billing")
    assert "ikely blocked at" not in text
    assert ">at the LSO</span>" in text


def test_a_pending_commit_is_said_with_its_transaction_and_how_sure(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "billing", "UNKNOWN", unstable=1)
    blockers = [{"transactional_id": name, "pending": True, "certain": False} for name in ("app-1", "app-2")]
    factories.group_offset(group, unstable=True, offset=None, blockers=blockers)
    text = page_html(page, "/groups/prod/billing")
    assert "Its transactional commit for payments-0 is pending, possibly in 2 transactions" in text
    assert "(possibly)" in text
    assert "only a pending commit exists" in text


def test_lag_to_the_lso_and_to_the_end_are_told_apart(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "billing")
    factories.group_offset(group, offset=48_000, lso=48_211, high_watermark=49_981)
    factories.group_offset(
        group, "markers", offset=48_209, lso=48_211, high_watermark=48_211, only_markers=True
    )
    text = page_html(page, "/groups/prod/billing")
    assert '<td class="col-unread number">211</td>' in text
    assert '<td class="col-lag number">1,981' in text
    assert "2 markers and aborted records: nothing to read" in text


def test_a_position_past_the_end_has_no_lag(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "billing", "UNKNOWN")
    factories.group_offset(group, offset=48_212, lso=48_211, high_watermark=48_211, status="UNKNOWN")
    text = page_html(page, "/groups/prod/billing")
    assert "past the end</span>" in text
    assert '<td class="col-unread number">—</td>' in text
    assert page.get("/api/v1/groups/prod/billing").json()["offsets"][0]["lag_hw"] is None


def test_the_worst_partition_comes_first_and_many_are_paged(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "billing", "STOP")
    for n in range(120):
        factories.group_offset(group, "payments", n, status="STOP" if n == 77 else "OK")
    text = page_html(page, "/groups/prod/billing")
    assert text.index("<bdi>payments-77</bdi>") < text.index("<bdi>payments-0</bdi>")
    assert "1–100 of 120" in text
    assert "101–120 of 120" in page_html(page, "/groups/prod/billing?page=2")


def test_a_group_without_commits_says_so(page: Client, prod: Cluster) -> None:
    factories.group(prod, "reads")
    assert "No committed offsets" in page_html(page, "/groups/prod/reads")


@cases(
    ([], ""),
    ([5], ""),
    ([5, 5], "steady"),
    ([100, 104], "steady"),  # A twentieth is noise.
    ([0, 1], "steady"),
    ([0, 2], "rising"),
    ([100, 200, 90], "steady"),
    ([100, 120, 80], "falling"),
)
def test_a_trend_is_a_word_and_a_line(values: list[int], way: str) -> None:
    assert trend_word(values) == way


def test_a_trend_with_unknown_looks_is_drawn(page: Client, prod: Cluster) -> None:
    factories.group(prod, "billing", trend=json.dumps([[1, None, None], [2, 0, 5], [3, 0, 50]]))
    text = page_html(page, "/groups")
    assert "arrow-rising" in text
    assert 'class="trend"' in text


def test_a_group_with_an_empty_id_has_a_heading_and_addresses(page: Client, prod: Cluster) -> None:
    group = factories.group(prod, "")
    factories.group_offset(group)
    address = f"/groups/prod/~{bytes(group.key).hex()}"
    listed = page_html(page, "/groups")
    assert f'<a href="{address}" data-row><bdi>(empty id)</bdi></a>' in listed
    text = page_html(page, address)
    assert "<bdi>(empty id)</bdi></h1>" in text
    assert "<title>(empty id)" in text
    assert "Copy id" not in text
    for path in ("", address.rpartition("/")[2]):
        answer = page.get(f"/api/v1/groups/prod/{path}")
        assert (answer.status_code, answer.json()["group"]) == (200, ""), path
    assert page.get("/api/v1/groups/nope/").status_code == 404


def test_a_streams_application_shows_its_stores(page: Client, prod: Cluster) -> None:
    row = factories.group(prod, b"shop")
    for number in (0, 1):
        factories.partition(prod, "shop-counts-changelog", number, log_start=10, high_watermark=510)
    assert "data-stores" not in page.get("/groups/prod/shop").content.decode(), "it may be any group"
    members = json.dumps({"m-1": ["shop-0f8fad5b-StreamThread-1-consumer", "/10.0.0.7"]})
    GroupRecord.objects.create(
        cluster=prod, key=row.key, group_id="shop", members=members, log_partition=1, log_offset=1
    )
    factories.group(prod, b"shop-2")
    factories.partition(prod, "shop-2-cart-changelog")
    factories.raise_revision(prod)
    text = page.get("/groups/prod/shop").content.decode()
    assert "cart" not in text
    assert "<bdi>counts</bdi>" in text
    assert "Names of topics show the stores." in text
    assert "1,000" in text
    described = [["shop-totals-changelog", ["orders"], 3, 1, 0]]
    Group.objects.filter(pk=row.pk).update(stores=json.dumps(described))
    factories.raise_revision(prod)
    text = page.get("/groups/prod/shop").content.decode()
    assert "<bdi>totals</bdi>" in text
    assert "Without a standby" in text
    (store,) = page.get("/api/v1/groups/prod/shop").json()["stores"]
    assert (store["name"], store["active"], store["standby"]) == ("totals", 3, 1)
    assert "data-stores" not in page.get("/groups/prod/billing").content.decode()
