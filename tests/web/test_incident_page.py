"""Proves that an incident's page has its cause, effects, outcomes and history, that it can be taken along as
Markdown, HTML or CSV, and that operators acknowledge it and add notes, with a clear text for what cannot be
done."""

import csv
import html
import io
import re

import pytest
from django.test import Client

from dashboard.models import Cluster, FindingRecord, Incident, IncidentEvent, IncidentRevision
from fenceline.history.time_range import format_instant
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def test_a_page_has_evidence_effects_notes_and_history(page: Client, prod: Cluster) -> None:
    opened = factories.transaction(prod, "payments-7", age_ms=900_000)
    later_ms = factories.now_ms() - 60_000
    cause, effect = (
        factories.finding(prod, "transaction:payments-7", since_ms=later_ms - 60_000),
        factories.finding(prod, "partition:payments-0", rule="lso_pinned", since_ms=later_ms),
    )
    row = factories.incident_of(prod, cause, effect)
    note = {"kind": "note", "actor": "ada", "text": "<b>4411</b>"}
    IncidentEvent.objects.create(incident=row, at_ms=factories.now_ms(), **note)
    text = page_html(page, f"/incidents/{row.pk}")
    assert cause.evidence in text
    assert f'data-finding="{effect.pk}"' in text
    for tab in ("notes", "history"):
        assert "&lt;b&gt;4411&lt;/b&gt;" in page_html(page, f"/incidents/{row.pk}?tab={tab}")
    evidence = text.partition('aria-labelledby="cause"')[2].partition("</table>")[0]
    assert re.findall(r'<td class="mono">([^<]+)</td>', evidence) == [
        "__transaction_state", f"__transaction_state-{opened.log_partition}", "partition offsets",
    ]  # fmt: skip
    assert len(re.findall("<tr data-cause", evidence)) == 1


def test_a_page_compares_what_acting_does_with_what_waiting_does(operator: Client, prod: Cluster) -> None:
    factories.transaction(
        prod, "payments-7", age_ms=842_000, partitions={"payments": [0]}, timeout_ms=900_000
    )
    blocker = factories.lso_blocker(prod, "payments", 0, transactional_id="payments-7", producer_id=2051)
    factories.blocked_offset(factories.group(prod, "billing", "BLOCKED"), blocker)
    cause = factories.finding(
        prod, "transaction:payments-7", affected=["partition:payments-0", "group:billing"]
    )
    row = factories.incident_of(prod, cause, deadline_ms=factories.now_ms() + 60_000)
    text = page_html(operator, f"/incidents/{row.pk}")
    table = text.partition('aria-labelledby="outcomes"')[2].partition("</table>")[0]
    plain = " ".join(re.sub("<[^>]+>", " ", table).split())
    assert "Fence producer nothing until" in plain
    assert re.search(r"billing resume at once: at least [\d,]+ offsets? resume at \d", plain), plain


def test_notifications_of_its_findings_are_listed_and_no_others(page: Client, prod: Cluster) -> None:
    cause, other = (
        factories.finding(prod, "transaction:payments-7"), factories.finding(prod, "transaction:orders-1")
    )  # fmt: skip
    row = factories.incident_of(prod, cause)
    ops = factories.channel("ops")
    made = {"cluster": prod, "made_ms": factories.now_ms()}
    about, elsewhere = (
        factories.delivery(ops, held={"firing": [bytes(each.fingerprint).hex()]}, **made)
        for each in (cause, other)
    )
    text = page_html(page, f"/incidents/{row.pk}?tab=notifications")
    assert re.findall(r'data-delivery="(\d+)"', text) == [str(about.pk)]
    assert "1 channel notified" in text
    assert f"/deliveries/{elsewhere.pk}" not in text


def test_a_silence_is_filled_in_for_this_incident(operator: Client, prod: Cluster) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    link = re.search(r'href="([^"]+)" data-silence', page_html(operator, f"/incidents/{row.pk}"))
    assert link
    form = page_html(operator, html.unescape(link[1]))
    assert f"incident=&quot;{row.pk}&quot;" in form


def test_its_offsets_are_a_csv_of_what_is_aborted_open_and_blocked(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", age_ms=842_000)
    factories.lso_blocker(prod, "payments", 0, transactional_id="payments-7")
    row = factories.incident_of(
        prod,
        factories.finding(prod, "transaction:payments-7"),
        factories.finding(prod, "partition:payments-0"),
    )
    lost = [["orders", 2, 40, 49, 8, True, ""]]
    factories.recovery(prod, "payments-7", opened_ms=row.opened_ms + 1, lost=lost)
    factories.recovery(prod, "orders-1", opened_ms=row.opened_ms + 1, lost=lost)
    answer = page.get(f"/incidents/{row.pk}.csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(each["topic"], each["effect"], each["transactional_id"]) for each in lines] == [
        ("orders", "aborted", "payments-7"), ("payments", "blocked", ""), ("payments", "open", "payments-7"),
    ]  # fmt: skip
    assert (lines[0]["first_offset"], lines[0]["last_offset"], lines[0]["records"], lines[0]["sure"]) == (
        "40", "49", "8", "true",
    )  # fmt: skip
    Incident.objects.update(closed_ms=factories.now_ms())
    closed = page.get(f"/incidents/{row.pk}.csv").content.decode()
    assert [each["effect"] for each in csv.DictReader(io.StringIO(closed))] == ["aborted"]
    assert page.get("/incidents/999.csv").status_code == 404


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


def test_a_closed_incident_outlives_its_findings(page: Client, operator: Client, prod: Cluster) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    row.findings.update(until_ms=factories.now_ms())
    Incident.objects.update(closed_ms=factories.now_ms())
    FindingRecord.objects.all().delete()
    text = page_html(page, f"/incidents/{row.pk}")
    assert "payments-7 has been open since" in text
    assert "Acknowledge" not in page_html(operator, f"/incidents/{row.pk}")


def test_an_operator_acknowledges_and_adds_a_note(operator: Client, prod: Cluster) -> None:
    row = factories.incident(prod)
    assert operator.post(f"/incidents/{row.pk}/acknowledge").status_code == 303
    assert operator.post(f"/incidents/{row.pk}/notes", {"text": " ticket 4411 "}).status_code == 303
    row.refresh_from_db()
    assert row.acknowledged_by
    assert list(row.events.values_list("kind", "text")) == [("acknowledged", ""), ("note", "ticket 4411")]
    assert "ticket 4411" in page_html(operator, f"/incidents/{row.pk}?tab=notes")


@cases(
    ("notes", " \n", "a note is some text without NUL"),
    ("notes", "x\0y", "a note is some text without NUL"),
    ("notes", "x" * 5_001, "5,000 characters at most"),
    ("acknowledge", "", "is closed"),
)
def test_what_cannot_be_written_is_said_and_changes_nothing(
    operator: Client, prod: Cluster, act: str, text: str, why: str
) -> None:
    row = factories.incident(prod, closed_ms=factories.now_ms())
    operator.post(f"/incidents/{row.pk}/{act}", {"text": text})
    assert why in page_html(operator, f"/incidents/{row.pk}").partition('role="alert"')[2]
    assert not row.events.exists()


def test_a_closed_incident_says_how_it_ended_and_offers_no_next_step(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    cause = factories.finding(
        prod, "transaction:payments-7", since_ms=now - 90_000, affected=["partition:p-0"]
    )
    row = factories.incident_of(
        prod, cause, since_ms=now - 90_000, opened_ms=now - 80_000, closed_ms=now - 11_000,
        acknowledged_ms=now - 60_000, acknowledged_by="ada", outcome="Fenced by ada, action 2.",
        peak={
            "transactions": 1, "partitions": 3, "groups": 2, "queries": 0, "backlog": 9, "records_lost": None,
        },
    )  # fmt: skip
    text = page_html(page, f"/incidents/{row.pk}")
    headline = re.sub("<[^>]+>", "", text.partition("data-headline>")[2].partition("</h1>")[0])
    assert headline == "payments-7 blocked p-0 for 1 min 19 s. Fenced by ada, action 2."
    for words in ("noticed after 10 s", "acknowledged after 20 s", "ended after 1 min 19 s"):
        assert words in text
    assert cause.next_step not in text
    figures = dict(re.findall(r"<dt>([\w ]+)</dt><dd>(\d+)</dd>", text))
    assert figures == {
        "transactions": "1", "partitions blocked": "3", "groups blocked": "2", "uncommitted backlog": "9",
    }  # fmt: skip
    plain = page.get(f"/incidents/{row.pk}.md").content.decode()
    assert "Outcome: Fenced by ada, action 2." in plain
    assert "Next step" not in plain


def test_a_range_of_the_past_shows_what_was_known_at_its_end(page: Client, prod: Cluster) -> None:
    now = factories.now_ms() // 60_000 * 60_000
    cause = factories.finding(prod, "transaction:payments-7", since_ms=now - 600_000)
    early = factories.facts_of([cause]) | {"partitions": ["p-0"]}
    row = factories.incident_of(
        prod, cause, severity="critical", since_ms=now - 600_000, opened_ms=now - 590_000,
        closed_ms=now - 60_000, outcome="Fenced by ada, action 2.",
    )  # fmt: skip
    IncidentRevision.objects.create(
        incident=row, at_ms=row.opened_ms, rule=row.rule, subject=row.subject, severity="warning",
        impact={**row.impact, "groups": 4}, facts=early,
    )  # fmt: skip
    query = f"from={format_instant(now - 900_000)}&to={format_instant(now - 300_000)}"
    for url in (f"/?{query}", f"/incidents?{query}"):
        table = page_html(page, url).partition("What happened")[2].partition("</table>")[0]
        plain = " ".join(re.sub("<[^>]+>", " ", table).split())
        assert "payments-7 has blocked p-0 for 5 min" in plain, plain
        assert "groups blocked 4" in plain
        assert "warning" in plain
        assert "Fenced" not in plain
        assert "critical" not in plain
    (item,) = page.get(f"/api/v1/incidents?state=all&{query}").json()["items"]
    assert (item["severity"], item["closed_at"], item["outcome"], item["impact"]["groups"]) == (
        "warning", None, "", 4,
    )  # fmt: skip
