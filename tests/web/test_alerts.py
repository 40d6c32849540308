"""Proves that alerts come worst first, by every filter, and are told with why they are loud or quiet."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Alert, Cluster
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def subjects(page: Client, query: str = "") -> list[str]:
    found = re.findall(r'class="mono" href="[^"]+"><bdi>([^<]+)</bdi>', page_html(page, f"/alerts{query}"))
    return [html.unescape(each) for each in found]


def reasons(page: Client, row: Alert) -> list[str]:
    """Return the reasons on the page of one alert, without their links."""
    text = page_html(page, f"/alerts/{row.pk}").partition("why-long")[2].partition("</ul>")[0]
    return [re.sub(r"<[^>]+>", "", each).strip() for each in re.findall(r"<li>(.*?)</li>", text)]


@pytest.fixture
def several(prod: Cluster) -> Cluster:
    now = factories.now_ms()
    factories.alert(prod, "transaction:old-1", "resolved", resolved_ms=now - 2 * 86_400_000)
    factories.alert(prod, "transaction:over-1", "resolved")
    factories.alert(prod, "transaction:info-1", severity="info")
    factories.alert(prod, "transaction:worst-1", labels={"team": "Payments"})
    factories.alert(
        prod, "group:billing", rule="group_stalled", severity="warning", quiet=[["no_channel", "", ""]]
    )
    factories.alert(prod, "transaction:soon-1", "pending", quiet=[["pending", "", "1 of 2"]])
    return prod


@cases(
    ("", ["worst-1", "billing", "info-1", "soon-1", "over-1"]),
    ("?state=firing", ["worst-1", "billing", "info-1"]),
    ("?state=pending", ["soon-1"]),
    ("?state=resolved", ["over-1", "old-1"]),
    ("?severity=warning", ["billing"]),
    ("?rule=group_stalled", ["billing"]),
    ("?team=Payments", ["worst-1"]),
    ("?team=Nobody", []),
    ("?q=BILL", ["billing"]),
    ("?q=group+stalled", ["billing"]),
    ("?q=%25", []),
    ("?voice=quiet", ["billing", "soon-1"]),
    ("?voice=loud", ["worst-1", "info-1", "over-1"]),
    ("?state=firing&severity=critical&q=worst", ["worst-1"]),
)
def test_the_address_decides_what_is_shown(
    page: Client, several: Cluster, query: str, shown: list[str]
) -> None:
    assert subjects(page, query) == shown


def test_an_alert_that_ended_before_it_fired_is_told_apart(page: Client, prod: Cluster) -> None:
    for name, fired_ms in ("short-1", None), ("fired-1", factories.now_ms() - 60_000):
        alert = factories.alert(prod, f"transaction:{name}", "resolved", fired_ms=fired_ms)
        assert ("data-unfired" in page_html(page, f"/alerts/{alert.pk}")) is (fired_ms is None)
    lines = page_html(page, "/alerts").split('<li class="alert"')[1:]
    assert {("short-1" in line, "data-unfired" in line) for line in lines} == {(True, True), (False, False)}


def test_an_alert_of_another_cluster_is_shown_only_there(page: Client, several: Cluster) -> None:
    staging = factories.cluster("staging")
    factories.alert(staging, "transaction:theirs-1")
    assert subjects(page, "?cluster=staging") == ["theirs-1"]
    assert "theirs-1" in subjects(page)
    assert "theirs-1" not in subjects(page, "?cluster=prod")


@cases(
    ([], "No firing alerts."),
    ([[]], "1 firing alert."),
    ([[], []], "2 firing alerts."),
    ([["silenced"]], "1 firing alert; not notified."),
    ([["silenced"], ["inhibited"]], "2 firing alerts; none notified."),
    ([["silenced"], [], []], "3 firing alerts; 1 not notified."),
    ([["grouped"], [], []], "3 firing alerts; 1 notification pending."),
    ([["silenced"], ["grouped", "below_severity"], []],
     "3 firing alerts; 1 not notified; 1 notification pending."),
)  # fmt: skip
def test_the_headline_says_whether_anybody_is_told(
    page: Client, prod: Cluster, rows: list[list[str]], said: str
) -> None:
    for number, kinds in enumerate(rows):
        factories.alert(prod, f"transaction:id-{number}", quiet=[[kind, "", "why"] for kind in kinds])
    assert f"data-headline>{said}</h1>" in page_html(page, "/alerts")


@cases(
    (["delivered"], "1 firing alert."),
    (["pending"], "1 firing alert; not delivered."),
    (["failed", "pending"], "2 firing alerts; 2 not delivered."),
    (["failed", "delivered"], "2 firing alerts; 1 not delivered."),
    ([["failed", "delivered"]], "1 firing alert."),
)  # fmt: skip
def test_what_was_sent_and_not_taken_is_told_to_nobody(
    page: Client, prod: Cluster, states: list[str | list[str]], said: str
) -> None:
    ops = factories.channel("ops")
    for number, each in enumerate(states):
        sent = [factories.delivery(ops, state) for state in ([each] if isinstance(each, str) else each)]
        told = [[ops.pk, row.pk, factories.now_ms()] for row in sent]
        factories.alert(prod, f"transaction:id-{number}", told=told)
    assert f"data-headline>{said}</h1>" in page_html(page, "/alerts")


def test_before_the_first_look_nothing_is_claimed(page: Client) -> None:
    of = factories.cluster()
    factories.tail_collectors(of)
    assert "The first read is still in progress." in page_html(page, "/alerts")
    assert "Not collected yet" in page_html(page, "/alerts")


@cases(
    ({"quiet": [["silenced", "#{silence}", "by ada until 12:04:07 UTC: maintenance"]]},
     ["silenced #{silence} by ada until 12:04:07 UTC: maintenance"]),
    ({"quiet": [["inhibited", "#1", "by the alert of transaction payments-7: covered by incident 7"]]},
     ["inhibited #1 by the alert of transaction payments-7: covered by incident 7"]),
    ({"quiet": [["grouped", "ops", "is notified at 12:04:07 UTC, with what else comes to its group"]]},
     ["grouped ops is notified at 12:04:07 UTC, with what else comes to its group"]),
    ({"quiet": [["below_severity", "ops", "wants critical and worse, and this is warning"]]},
     ["below severity ops wants critical and worse, and this is warning"]),
    ({"quiet": [["no_channel", "", "no notification channel is configured"]]},
     ["no channel no notification channel is configured"]),
    ({"state": "pending", "quiet": [["pending", "", "found in 1 of 2 complete ticks"]]},
     ["pending found in 1 of 2 complete ticks"]),
    ({"quiet": [["something_new", "", "as a later version says"]]},
     ["something new as a later version says"]),
)  # fmt: skip
def test_why_it_is_quiet_is_said(
    page: Client, prod: Cluster, fields: dict[str, Any], said: list[str]
) -> None:
    number = str(factories.silence().pk)
    quiet = [[kind, who.format(silence=number), words] for kind, who, words in fields["quiet"]]
    row = factories.alert(prod, **fields | {"quiet": quiet})
    assert reasons(page, row) == [each.format(silence=number) for each in said]
    assert f'href="/silences/{number}"' in page_html(page, "/alerts") or quiet[0][0] != "silenced"


def test_who_was_told_is_said_with_what_came_of_it(page: Client, prod: Cluster) -> None:
    ops, pager, late = factories.channel("ops"), factories.channel("pager"), factories.channel("late")
    told, failed = factories.delivery(ops), factories.delivery(pager, "failed")
    coming = factories.delivery(late, "pending")
    row = factories.alert(
        prod, told=[[c.pk, d.pk, 1] for c, d in ((ops, told), (pager, failed), (late, coming))]
    )
    other = factories.channel("other")
    factories.alert_change(
        row, [ops.pk, "delivery", told.pk], [other.pk, "quiet", "it wants critical and worse"]
    )
    first, second, third, fourth = reasons(page, row)
    assert first.startswith("notified ops")
    assert second.startswith("not delivered pager hooks.example.org answered 500. Check the receiver.")
    assert third.startswith("sending late")
    assert fourth == "not notified other it wants critical and worse"
    text = page_html(page, "/alerts")
    for each in (told, failed, coming):
        assert f'href="/deliveries/{each.pk}"' in text


def test_a_delivery_or_channel_that_is_gone_is_said(page: Client, prod: Cluster) -> None:
    row = factories.alert(prod, "transaction:x", "resolved")
    factories.alert_change(
        row, [77, "delivery", 4711], [78, "quiet", "it was notified already"], new="resolved"
    )
    expected = ["not notified delivery 4711 is not kept any more", "not notified it was notified already"]
    assert reasons(page, row) == expected


def test_flapping_is_said_beside_who_was_told(page: Client, prod: Cluster) -> None:
    row = factories.alert(prod, flapping_ms=1_795_000_000_000, openings=[1, 2, 3, 4, 5])
    (said,) = reasons(page, row)
    assert said.startswith("flapping since")
    assert "it opened 5 times within 10 min: it keeps firing until 10 min pass without a finding" in said


def test_one_alert_has_its_labels_words_changes_and_acts(page: Client, prod: Cluster) -> None:
    ops = factories.channel()
    row = factories.alert(prod, labels={"team": "Payments"})
    sent = factories.delivery(ops)
    factories.alert_change(row, [ops.pk, "delivery", sent.pk])
    factories.alert_change(row, settled=False, new="resolved")
    both = factories.plan(factories.fence_subject("a"), factories.fence_subject())
    factories.executed_action(both, executed_by="bob", reason="it was abandoned")
    factories.executed_action(factories.fence_subject("payments-77"), executed_by="bob")
    text = page_html(page, f"/alerts/{row.pk}")
    for words in (
        "it pins payments-0",
        "Fence its producer.",
        "<bdi>Payments</bdi>",
        "pending to <b>firing</b>",
        "firing to <b>resolved</b>",
        "not decided yet",
        f'href="/deliveries/{sent.pk}"',
        'href="/transactions/prod/payments-7"',
        'href="/rules/open_too_long"',
        "it was abandoned",
        "by bob",
    ):
        assert words in text, words
    assert text.count("Fence #") == 1


def test_only_who_may_silence_is_offered_to(
    page: Client, operator: Client, prod: Cluster, settings: Any
) -> None:
    row = factories.alert(prod)
    assert "Silence…" not in page_html(page, "/alerts")
    assert "it needs the role operator" in page_html(page, f"/alerts/{row.pk}")
    for url in ("/alerts", f"/alerts/{row.pk}"):
        assert f'href="/silences/new?alert={row.pk}"' in page_html(operator, url)
    settings.READ_ONLY = True
    assert "Silence…" not in page_html(operator, "/alerts")
    assert "READ_ONLY is set" in page_html(operator, f"/alerts/{row.pk}")


def test_it_says_that_nobody_is_told_without_a_channel(page: Client, prod: Cluster) -> None:
    assert "No notification channel is configured." in page_html(page, "/alerts")
    channel = factories.channel(enabled=False)
    assert "All notification channels are disabled" in page_html(page, "/alerts")
    channel.enabled = True
    channel.save()
    text = page_html(page, "/alerts")
    assert "No notification channel is configured." not in text
    assert "All notification channels are disabled" not in text


def test_the_sidebar_counts_what_fires_and_the_overview_what_is_quiet(page: Client, prod: Cluster) -> None:
    assert "nav-alerts" in page_html(page, "/")
    assert "firing alert" not in page_html(page, "/")
    factories.alert(prod, "transaction:a", severity="warning")
    factories.alert(prod, "transaction:b", quiet=[["silenced", "1", "by ada"]])
    factories.alert(prod, "transaction:c", severity="info")
    factories.alert(prod, "transaction:d", "resolved")
    factories.finding(prod, "transaction:b")
    text = page_html(page, "/")
    assert 'tone-critical">2<span class="visually-hidden"> firing alerts' in text
    assert 'href="/alerts?state=firing&amp;voice=quiet">1 firing alert not notified</a>' in text
    headers = {"HX-Request": "true"}
    assert 'id="nav-alerts" hx-swap-oob="true"' in page.get("/groups", headers=headers).content.decode()


def test_a_query_is_shown_and_found_by_its_name_on_every_page(page: Client, prod: Cluster) -> None:
    row = factories.alert(
        prod, f"query:{factories.QUERY_ID}", rule="batch_slow", annotations={}, quiet=[],
        labels={"query": factories.QUERY_ID, "query_name": "orders_enrich"},
    )  # fmt: skip
    assert subjects(page) == ["orders_enrich"]
    assert subjects(page, "?q=ORDERS_en") == ["orders_enrich"]
    assert subjects(page, f"?q={factories.QUERY_ID[:8]}") == ["orders_enrich"]
    text = page_html(page, f"/alerts/{row.pk}")
    assert "<h1><bdi>orders_enrich</bdi></h1>" in text
    assert "batch slow: orders_enrich" in text
    # The id stays where programs and silences take it from: among the labels.
    assert f"query:{factories.QUERY_ID}" in text.partition('id="labels"')[2]
    preview = page_html(page, "/silences/preview?matchers=query_name%3D%22orders_enrich%22")
    assert "<bdi>orders_enrich</bdi>" in preview
    assert factories.QUERY_ID not in preview


def test_a_silence_of_a_query_names_it(operator: Client, prod: Cluster) -> None:
    row = factories.alert(prod, f"query:{factories.QUERY_ID}", labels={"query_name": "orders_enrich"})
    form = html.unescape(page_html(operator, f"/silences/new?alert={row.pk}"))
    assert f'subject="query:{factories.QUERY_ID}", query_name="orders_enrich"' in form
