"""Proves that every page tells the truth with none, one and many rows, with gaps, errors and stale sight."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from dashboard.config import CheckpointRoot
from dashboard.models import Cluster, Collector
from fenceline.facts import TransactionState
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
PAGES = ("/", "/transactions", "/events", "/system")
#: What collectors of their own tell of.
NOUNS = ("partitions", "groups", "recoveries")


@pytest.mark.parametrize("url", [*PAGES, *(f"/{noun}" for noun in NOUNS)])
@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}])
def test_nothing_at_all_is_shown_as_nothing(page: Client, url: str, headers: dict[str, str]) -> None:
    text = page.get(url, headers=headers).content.decode()
    assert "No cluster is configured" in text
    assert "No transaction is stuck" not in text


def test_a_new_cluster_is_said_not_to_be_seen_yet(page: Client) -> None:
    factories.cluster()
    assert "prod has not been read yet." in page_html(page, "/")
    assert "No collector has reported" in page_html(page, "/")
    assert "Not collected yet" in page_html(page, "/transactions")


def test_a_first_look_under_way_tells_how_far_it_is(page: Client) -> None:
    factories.collector(factories.cluster(), seen_through_ms=None, behind=1_200_000, records=34_000)
    assert "34,000 records read, 1,200,000 to go" in page_html(page, "/")
    assert "first read" in page_html(page, "/system")


def test_a_calm_cluster_is_fine_and_says_what_was_looked_at(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, state=TransactionState.COMPLETE_COMMIT, partitions={})
    text = page_html(page, "/")
    assert "No transaction is stuck." in text
    assert "1 transactional id" in text
    assert "Data is incomplete" not in text


def test_only_a_collector_of_data_is_late(page: Client, prod: Cluster) -> None:
    """Retention rests for 30 s between two looks."""
    half_a_minute_ago = factories.now_ms() - 29_000
    factories.collector(prod, "retention", seen_through_ms=half_a_minute_ago)
    number = Collector.objects.count()
    assert f"all {number} collectors current" in page_html(page, "/")
    Collector.objects.filter(name="groups").update(seen_through_ms=half_a_minute_ago)
    assert f"{number - 1} of {number} collectors current" in page_html(page, "/")


def test_the_worst_finding_is_the_verdict_and_the_rest_is_counted(page: Client) -> None:
    prod = factories.cluster()
    scenarios.busy_transactions(prod, 40)
    text = page_html(page, "/")
    headline = re.sub("<[^>]+>", "", text.partition("data-headline")[2].partition("</h1>")[0])
    assert "2 open incidents. payments-ledger-7 has been open for 1 h 5 min." in headline
    assert text.index("payments-ledger-7 has been open") < text.index("inventory-sync-stuck-3 has been open")
    assert "(2) Incidents · Fenceline" in text


@cases(
    # Its worker died: the lease ran out.
    ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "no worker holds its lease"),
    # It lives, and cannot keep up.
    ({"behind": 70_000}, "it is catching up, 70,000 records to go"),
    # It lives, and says nothing.
    ({}, "it has reported nothing newer than"),
    # It says why.
    ({"error": "broker 127.0.0.1:9092: connection refused"}, "connection refused"),
)
def test_a_cluster_that_is_not_seen_now_is_never_called_fine(
    page: Client, fields: dict[str, Any], reason: str
) -> None:
    factories.collector(factories.cluster(), seen_through_ms=factories.now_ms() - 61_000, **fields)
    for url in PAGES:
        text = page_html(page, url)
        assert "Data is incomplete since" in text, url
        assert reason in text, url
    assert "No transaction is stuck." not in page_html(page, "/")
    assert "whether anything is stuck is unknown" in page_html(page, "/")


def test_a_collector_that_is_late_for_less_than_a_minute_is_one_line(page: Client) -> None:
    """And nothing is called fine meanwhile."""
    prod = factories.cluster()
    factories.collector(prod, seen_through_ms=factories.now_ms() - 30_000)
    factories.collector(prod, "judge", behind=None)
    for url in PAGES:
        text = page_html(page, url)
        assert "transaction_state of prod is late: this page shows data up to" in text, url
        assert "<b>Data is incomplete since" not in text, url
    assert "No transaction is stuck." not in page_html(page, "/")


def test_a_stale_collector_is_a_gap_on_system(page: Client, prod: Cluster) -> None:
    prod.collector_set.filter(name="groups").update(seen_through_ms=factories.now_ms() - 240_000)
    text = page_html(page, "/system")
    assert 'id="gap-prod-groups"' in text
    assert "it has reported nothing newer than" in text


def test_a_gap_is_named_with_its_reason_on_every_page(page: Client, prod: Cluster) -> None:
    factories.gap(prod)
    row = factories.transaction(prod)
    for url in (*PAGES, f"/transactions/prod/{row.transactional_id}"):
        assert "connection refused. Is it running" in page_html(page, url), url
    assert "No transaction is stuck." not in page_html(page, "/")


def test_a_finding_on_a_blind_cluster_is_shown_with_the_doubt(page: Client, prod: Cluster) -> None:
    factories.gap(prod)
    factories.finding(prod, "transaction:a", complete=False)
    text = page_html(page, "/")
    assert "1 open incident. a has been open for " in text
    assert "data is incomplete since" in text
    assert "Some of the data that this rule needs is missing." in text


def test_a_dead_judge_takes_the_fine_away(page: Client) -> None:
    prod = factories.cluster()
    factories.collector(prod)
    late = datetime.now(UTC) - timedelta(minutes=1)
    factories.collector(prod, "judge", expires_at=late, seen_through_ms=factories.now_ms() - 60_000)
    assert "No transaction is stuck." not in page_html(page, "/")


@pytest.mark.parametrize("noun", ["transactions", *NOUNS])
def test_each_reason_for_an_empty_list_reads_differently(page: Client, prod: Cluster, noun: str) -> None:
    collector = "transaction_state" if noun == "transactions" else noun
    prod.collector_set.filter(name=collector).delete()
    assert "Not collected yet" in page_html(page, f"/{noun}")
    blind = factories.collector(prod, collector, seen_through_ms=None, error="not authorized to describe")
    text = page_html(page, f"/{noun}")
    assert 'data-empty="unreachable"' in text
    assert "not authorized to describe" in text
    blind.delete()
    factories.collector(prod, collector)
    assert 'data-empty="none"' in page_html(page, f"/{noun}")
    text = page_html(page, f"/{noun}?q=nothing-like-it")
    assert 'data-empty="unmatched"' in text
    assert "Clear the filter" in text


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_that_is_not_seen_now_says_so_on_its_own_pages(page: Client, prod: Cluster, noun: str) -> None:
    """What the tail sees says nothing of a partition's end."""
    factories.partition(prod)
    factories.group_offset(factories.group(prod))
    prod.collector_set.filter(name=noun).update(seen_through_ms=factories.now_ms() - 60_000)
    assert "Data is incomplete since" in page_html(page, f"/{noun}")
    assert "Data is incomplete since" not in page_html(page, "/transactions")
    told = "whether anything is stuck is unknown" in page_html(page, "/")
    assert told is (noun != "recoveries")


def test_system_shows_the_configuration_without_its_secrets(page: Client, prod: Cluster) -> None:
    text = page_html(page, "/system")
    assert "(hidden)" in text
    assert "hunter2" not in text
    assert "token 7 held by" in text
    assert "50 partitions" in text


def test_system_counts_what_could_not_be_decoded(page: Client) -> None:
    factories.collector(factories.cluster(), undecoded={"value_version": 3, "truncated": 12})
    text = page_html(page, "/system")
    assert "3 value version" in text
    assert "12 truncated" in text


def test_a_choice_of_cluster_holds_for_the_whole_page(page: Client) -> None:
    scenarios.busy_transactions(factories.cluster(), 20)
    staging = factories.cluster("staging")
    factories.tail_collectors(staging)
    factories.transaction(staging, "only-here")
    text = page_html(page, "/?cluster=staging")
    assert "No transaction is stuck." in text
    assert "/transactions?cluster=staging" in text
    text = page_html(page, "/transactions?cluster=staging")
    assert text.count('<tr id="t-') == 1
    assert "only-here" in text


def test_system_names_what_is_not_searched_below_a_root(page: Client, settings: Any) -> None:
    roots = [CheckpointRoot("s3://lake/", "prod"), CheckpointRoot("s3://all", "prod")]
    settings.FENCELINE = replace(settings.FENCELINE, checkpoints=roots)
    skipped = {"s3://lake": [["_delta_log", 2, "s3://lake/a/_delta_log"], ["day=…", 1, "s3://lake/day=1"]]}
    factories.collector(factories.cluster(), "checkpoints", detail={"skipped": skipped})
    text = re.sub(r"<[^>]*>| (?=<)", " ", page_html(page, "/system"))
    words = " ".join(text.split())
    left_out = "2 folders _delta_log, as s3://lake/a/_delta_log; 1 folder day=…, as s3://lake/day=1"
    assert f"s3://lake/ prod {left_out} s3://all prod nothing" in words
