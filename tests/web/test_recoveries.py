"""Proves that episodes are told truly: cause, who waited, when work went on, what was lost, also as CSV."""

import csv
import io
import re

import pytest
from django.test import Client

from dashboard.labels.status import OUTCOME_LABELS
from dashboard.models import Cluster
from fenceline.losses.recoveries import RecoveryOutcome
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def ids(page: Client, query: str = "") -> list[str]:
    rows = page_html(page, f"/recoveries{query}")
    return re.findall(r'class="id"><a href="[^"]+"><bdi>([^<]+)</bdi>', rows)


@pytest.mark.sql
@cases(
    ("", ["a-1", "b-1", "c-1"]),
    ("?outcome=open", ["b-1"]),
    ("?cause=takeover", ["c-1"]),
    ("?q=A-", ["a-1"]),
    ("?application=b", ["b-1"]),
    ("?outcome=unseen", []),
)
def test_the_address_decides_what_is_shown(page: Client, prod: Cluster, query: str, shown: list[str]) -> None:
    factories.recovery(prod, "a-1")
    factories.recovery(prod, "b-1", outcome="open", closed_ms=None, released_ms=None, resumed_ms=None)
    factories.recovery(prod, "c-1", cause="takeover")
    assert ids(page, query) == shown


@cases(
    ({"closed_ms": None, "outcome": "open"}, "1 open recovery."),
    ({"outcome": "not_resumed", "resumed_ms": None}, "1 producer did not come back in the last 24 h."),
    ({}, "Every producer aborted in the last 24 h has committed again."),
    ({"opened_ms": 1_795_000_000_000}, "No recoveries in the last 24 h."),
)
def test_the_headline_says_what_is_left_to_do(
    page: Client, prod: Cluster, fields: dict[str, object], said: str
) -> None:
    factories.recovery(prod, **fields)
    assert said in page_html(page, "/recoveries")


@pytest.mark.parametrize("outcome", RecoveryOutcome)
def test_each_outcome_has_its_page(page: Client, prod: Cluster, outcome: RecoveryOutcome) -> None:
    times = {} if outcome is RecoveryOutcome.RESUMED else {"resumed_ms": None, "resumed_by": ""}
    if outcome in (RecoveryOutcome.OPEN, RecoveryOutcome.UNSEEN):
        times |= {"released_ms": None, "records_released": None}
    row = factories.recovery(prod, outcome=outcome.value, **times)
    text = page_html(page, f"/recoveries/prod/{row.pk}")
    assert OUTCOME_LABELS[outcome].words in text
    waits = "Waiting for the LSO to pass everywhere" in text
    assert waits is (outcome is RecoveryOutcome.OPEN)


def test_what_was_lost_is_a_range_for_each_partition_sure_or_at_most(page: Client, prod: Cluster) -> None:
    row = factories.recovery(prod)
    text = page_html(page, f"/recoveries/prod/{row.pk}")
    assert "48,211" in text
    assert "48,273" in text
    assert '<span class="muted">at most </span>111' in text
    assert "the log was cut before it was read" in text
    assert "no records" in text
    assert (
        '<pre class="raw card" id="lost-text" tabindex="0">payments 0 48211 48273 payments 1 7000 7110</pre>'
        in text
    )
    assert "at most </small> 174" in text or "at most</small> 174" in text


def test_records_of_a_deleted_topic_are_not_said_to_be_sure_nor_offered_for_reprocessing(
    page: Client, prod: Cluster
) -> None:
    gone = ["payments", 1, 7_000, None, None, False, "the topic was deleted and re-created", None, None, True]
    row = factories.recovery(prod, lost=[["orders", 0, 10, 12, 3, True, ""], gone])
    text = page_html(page, f"/recoveries/prod/{row.pk}")
    assert "at least</small> 3" in text
    assert "the topic was deleted and re-created" in text
    assert '<pre class="raw card" id="lost-text" tabindex="0">orders 0 10 12</pre>' in text
    assert "at least </span>3" in page_html(page, "/recoveries")
    only = factories.recovery(
        prod, "b-1", lost=[gone], outcome="topic_deleted", released_ms=None, resumed_ms=None
    )
    text = page_html(page, f"/recoveries/prod/{only.pk}")
    assert "Topic deleted" in text
    assert "not known" in text
    assert "None" not in text


@pytest.mark.parametrize("noticed", [True, False])
def test_when_consumers_were_unblocked_is_said_to_be_noticed_where_no_log_shows_it(
    page: Client, prod: Cluster, noticed: bool
) -> None:
    row = factories.recovery(prod, release_noticed=noticed)
    assert ("Consumers unblocked by" in page_html(page, f"/recoveries/prod/{row.pk}")) is noticed
    assert ('title="upper bound, from the poll' in page_html(page, "/recoveries")) is noticed


def test_what_was_lost_is_a_file_for_reprocessing(page: Client, prod: Cluster) -> None:
    row = factories.recovery(prod, b"=cmd()")
    answer = page.get(f"/recoveries/prod/{row.pk}?format=csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == f'attachment; filename="lost-{row.pk}.csv"'
    first, second, third = csv.DictReader(io.StringIO(answer.content.decode()))
    assert first == {
        "topic": "payments", "partition": "0", "first_offset": "48211", "last_offset": "48273",
        "records": "63", "sure": "true", "note": "",
    }  # fmt: skip
    assert (second["records"], second["sure"]) == ("", "false")
    assert (third["first_offset"], third["last_offset"]) == ("", "")


@cases(
    ({"lost": [], "lost_complete": True}, "No aborted records"),
    ({"lost": [], "lost_complete": False}, "<b>In progress</b>"),
    ({"waited": []}, "No blocked consumers observed"),
    ({"resumed_by": "payments-9"}, "after the abort, by payments-9"),
)
def test_what_is_not_there_is_said_and_why(
    page: Client, prod: Cluster, fields: dict[str, object], said: str
) -> None:
    row = factories.recovery(prod, **fields)
    assert said in page_html(page, f"/recoveries/prod/{row.pk}")


def test_an_episode_is_found_from_its_id(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7")
    row = factories.recovery(prod, "payments-7")
    factories.recovery(prod, "payments-8")
    text = page_html(page, "/transactions/prod/payments-7")
    assert f'href="/recoveries/prod/{row.pk}"' in text
    assert len(re.findall(r'<tr id="r-', text)) == 1
