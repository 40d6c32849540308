"""Proves that the first page has one card for each incident, that an incident's page has its cause, effects
and history, and that operators acknowledge it and add notes, with a clear text for what cannot be done."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from dashboard.models import Cluster, FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.web.forms import lists as list_forms
from dashboard.web.pages.incidents import IncidentListQuery
from tests.web import factories, roles
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db

Role = IncidentFinding.Role


@pytest.fixture
def prod() -> Cluster:
    of = factories.cluster()
    factories.tail_collectors(of)
    return of


def cards(text: str) -> list[str]:
    return re.findall(r'<li class="finding" id="finding-(\d+)"', text)


def test_effects_are_folded_into_the_card_of_their_cause(page: Client, prod: Cluster) -> None:
    cause, effect = (
        factories.finding(prod, "transaction:payments-7"),
        factories.finding(prod, "partition:payments-0"),
    )
    row = factories.incident_of(prod, cause, effect, severity="critical")
    alone = factories.finding(prod, "group:billing")
    text = page_html(page, "/")
    assert cards(text) == [str(cause.pk), str(alone.pk)]
    assert re.findall(r'data-incident="(\d+)"', text) == [str(row.pk)]
    folded = text.partition(f'id="effects-{row.pk}"')[2].partition("</details>")[0]
    assert "1 effect" in folded
    assert effect.summary in folded
    # Its severity is that of the incident, which is the worst of cause and effects.
    assert 'mark-critical"' in text.partition(f'id="finding-{cause.pk}"')[2].partition("</li>")[0]
    assert "(2) Incidents" in text


def test_a_card_stays_with_an_effect_that_outlives_its_cause(page: Client, prod: Cluster) -> None:
    effect = factories.finding(prod, "partition:payments-0")
    factories.incident_of(prod, None, effect, cause_over_ms=factories.now_ms())
    assert cards(page_html(page, "/")) == [str(effect.pk)]


def test_the_action_that_comes_first_is_offered_once(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", age_ms=842_000)
    cause = factories.finding(prod, "transaction:payments-7")
    row = factories.incident_of(prod, cause, factories.finding(prod, "partition:payments-0"))
    for url in "/", f"/incidents/{row.pk}":
        text = page_html(roles.client_with_role("operator"), url)
        assert text.count('name="act" value="fence"') == 1, url


def test_an_open_incident_counts_down_to_its_deadline(page: Client, prod: Cluster) -> None:
    deadline_ms = factories.now_ms() + 50_000
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"), deadline_ms=deadline_ms)
    none = factories.incident_of(prod, factories.finding(prod, "group:billing"))
    for url in "/", f"/incidents/{row.pk}":
        assert re.findall(r'data-deadline="(\d+)"', page_html(page, url)) == [str(deadline_ms)], url
    assert "data-deadline" not in page_html(page, f"/incidents/{none.pk}")
    Incident.objects.update(closed_ms=factories.now_ms())
    assert "data-deadline" not in page_html(page, f"/incidents/{row.pk}")


def test_a_page_has_cause_effects_history_and_who_else_blocks_them(page: Client, prod: Cluster) -> None:
    cause, effect = (
        factories.finding(prod, "transaction:payments-7"),
        factories.finding(prod, "partition:payments-0"),
    )
    row = factories.incident_of(prod, cause, effect)
    other = factories.incident_of(prod, factories.finding(prod, "transaction:orders-1"), effect)
    note = {"kind": "note", "actor": "ada", "text": "<b>4411</b>"}
    IncidentEvent.objects.create(incident=row, at_ms=factories.now_ms(), **note)
    text = page_html(page, f"/incidents/{row.pk}")
    assert cause.evidence in text
    assert f'data-finding="{effect.pk}"' in text
    assert f'also in <a href="/incidents/{other.pk}">' in " ".join(text.split())
    assert "&lt;b&gt;4411&lt;/b&gt;" in text
    assert re.findall(r"<dt>(\w+)</dt> *<dd>(\d+)</dd>", " ".join(text.split())) == [
        ("transactions", "1"), ("partitions", "1"), ("groups", "1"), ("queries", "1"),
    ]  # fmt: skip


def test_the_headline_is_the_cause_of_now_whatever_was_held_for_it_before(
    page: Client, prod: Cluster
) -> None:
    cause, before = (
        factories.finding(prod, "query:q", rule="batch_prepared"),
        factories.finding(prod, "transaction:t-1"),
    )
    row = factories.incident_of(prod, cause)
    IncidentFinding.objects.create(
        incident=row, finding=before.pk, rule=before.rule, subject=before.subject, role=Role.CAUSE,
        severity="warning", summary="t-1 is open", since_ms=row.opened_ms, until_ms=factories.now_ms(),
    )  # fmt: skip
    text = " ".join(page_html(page, f"/incidents/{row.pk}").split())
    assert re.findall(r"<h1[^>]*> *<bdi>([^<]*)</bdi>", text) == [cause.summary]
    assert "1 finding that ended or changed role" in text


def test_its_markdown_has_cause_facts_effects_and_history(page: Client, prod: Cluster) -> None:
    cause, effect = (
        factories.finding(prod, "transaction:payments-7"),
        factories.finding(prod, "partition:payments-0"),
    )
    row = factories.incident_of(prod, cause, effect, owner="Payments")
    row.events.create(at_ms=row.opened_ms, kind="note", actor="ada", text="ticket 4411")
    answer = page.get(f"/incidents/{row.pk}.md")
    assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert f'filename="incident-{row.pk}.md"' in answer.headers["Content-Disposition"]
    text = answer.content.decode().replace("\\", "")
    for part in (
        cause.summary,
        "Owner: Payments",
        effect.summary,
        "note by ada: ticket 4411",
        "transactions: 1",
    ):
        assert part in text, part
    assert page.get("/incidents/999.md").status_code == 404


def test_its_html_is_one_file_in_which_no_name_is_markup(page: Client, prod: Cluster) -> None:
    hostile = "payments</script><b>-7"
    cause = factories.finding(prod, f"transaction:{hostile}")
    row = factories.incident_of(
        prod, cause, factories.finding(prod, "partition:payments-0"), owner="<i>Payments"
    )
    row.events.create(
        at_ms=row.opened_ms, kind="note", actor="ada", text="</script><script>alert(1)</script>"
    )
    answer = page.get(f"/incidents/{row.pk}.html")
    assert f'filename="incident-{row.pk}.html"' in answer.headers["Content-Disposition"]
    text = answer.content.decode()
    assert "<b>-7" not in text
    assert "<i>Pay" not in text
    assert "<script>alert" not in text
    assert not re.search(r'(src|href)="', text.split("</head>")[1])
    for part in (cause.evidence, cause.next_step, "Owner", "note by ada"):
        assert html.escape(part) in text, part
    assert page.get("/incidents/999.html").status_code == 404


def test_a_closed_incident_outlives_its_findings(page: Client, prod: Cluster) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    row.findings.update(until_ms=factories.now_ms())
    Incident.objects.update(closed_ms=factories.now_ms())
    FindingRecord.objects.all().delete()
    text = page_html(page, f"/incidents/{row.pk}")
    assert "payments-7 has been open since" in text
    assert "Acknowledge" not in page_html(roles.client_with_role("operator"), f"/incidents/{row.pk}")


def test_the_list_shows_what_its_address_asks_for(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    open_one = factories.incident(prod, severity="critical")
    closed = factories.incident(prod, closed_ms=now)
    for query, shown in {
        "": [open_one],
        "?state=closed": [closed],
        "?state=all": [closed, open_one],
        "?state=all&severity=critical": [open_one],
        "?severity=info": [],
        f"?state=all&before={closed.pk}": [open_one],
        "?state=wrong&severity=wrong&before=x": [open_one],
    }.items():
        found = re.findall(r'<tr id="incident-(\d+)"', page_html(page, f"/incidents{query}"))
        assert found == [str(row.pk) for row in shown], query
    asked = list_forms.parse({"state": "wrong"}, IncidentListQuery, "", [])
    assert asked.ignored == ("state “wrong” is none of open, closed, all",)
    assert page.get("/incidents/999999999999999999999999").status_code == 404


def test_an_operator_acknowledges_and_adds_a_note(prod: Cluster) -> None:
    row = factories.incident(prod)
    operator = roles.client_with_role("operator")
    assert operator.post(f"/incidents/{row.pk}/acknowledge").status_code == 303
    assert operator.post(f"/incidents/{row.pk}/notes", {"text": " ticket 4411 "}).status_code == 303
    row.refresh_from_db()
    assert row.acknowledged_by
    assert list(row.events.values_list("kind", "text")) == [("acknowledged", ""), ("note", "ticket 4411")]
    assert "ticket 4411" in page_html(operator, f"/incidents/{row.pk}")


@pytest.mark.parametrize(
    ("act", "text", "why"),
    [
        ("notes", " \n", "a note is some text without NUL"),
        ("notes", "x\0y", "a note is some text without NUL"),
        ("notes", "x" * 5_001, "5,000 characters at most"),
        ("acknowledge", "", "is closed"),
    ],
)
def test_what_cannot_be_written_is_said_and_changes_nothing(
    prod: Cluster, act: str, text: str, why: str
) -> None:
    row = factories.incident(prod, closed_ms=factories.now_ms())
    operator = roles.client_with_role("operator")
    operator.post(f"/incidents/{row.pk}/{act}", {"text": text})
    assert why in page_html(operator, f"/incidents/{row.pk}").partition('role="alert"')[2]
    assert not row.events.exists()


def test_an_incident_leads_to_the_events_around_it_and_an_alert_to_its_incident(
    page: Client, prod: Cluster
) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    url = re.search(r'href="([^"]+)" data-events', page_html(page, f"/incidents/{row.pk}"))
    assert url
    shown = page_html(page, html.unescape(url[1]))
    assert "data-ignored" not in shown
    assert "payments-7" in shown
    alert = factories.alert(prod, "transaction:payments-7", labels={"incident": str(row.pk)})
    assert f'href="/incidents/{row.pk}"' in page_html(page, f"/alerts/{alert.pk}")
