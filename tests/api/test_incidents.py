"""Proves the API of incidents: filters, ranges, cursors, one incident with its history, who may write."""

from typing import Any

import pytest

from dashboard.api.schemas import format_iso
from dashboard.models import Cluster, FindingRecord, Incident, IncidentEvent, IncidentFinding
from tests.api.client import Ask, Call
from tests.web import factories

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


def member(row: Incident, of: FindingRecord, role: str, **columns: Any) -> IncidentFinding:
    return IncidentFinding.objects.create(
        incident=row,
        finding=of.pk,
        rule=of.rule,
        subject=of.subject,
        role=role,
        severity="info",
        summary="as it came in",
        since_ms=row.opened_ms,
        **columns,
    )


@pytest.fixture
def story(prod: Cluster) -> Incident:
    """An open incident with an effect that a second one shares, and one that has left."""
    cause = factories.finding(prod, "transaction:payments-7", summary="payments-7 is open")
    row = factories.incident(prod, facts=factories.facts_of([cause]))
    other = factories.incident(prod, subject="transaction:orders-1")
    shared = factories.finding(prod, "partition:payments-0", rule="lso_pinned")
    gone = factories.finding(prod, "group:billing", rule="group_stalled")
    member(row, cause, "cause")
    for each in (row, other):
        member(each, shared, "effect")
    member(row, gone, "effect", until_ms=factories.now_ms())
    gone.delete()
    IncidentEvent.objects.create(incident=row, at_ms=row.opened_ms, kind="opened")
    return row


def numbers(answer: Any) -> list[int]:
    return [each["number"] for each in answer["items"]]


def test_a_list_carries_items_next_as_of_and_gaps(ask: Ask, story: Incident) -> None:
    body = ask("incidents")
    assert set(body) == {"items", "next", "as_of", "gaps"}
    assert body["as_of"]
    told = body["items"][-1]
    assert (told["number"], told["state"], told["summary"]) == (story.pk, "open", "payments-7 is open")
    assert told["impact"]["backlog"] is None
    assert told["deadline_at"] is None


def test_filters(ask: Ask, prod: Cluster) -> None:
    closed = factories.incident(prod, closed_ms=factories.now_ms(), severity="critical")
    opened = factories.incident(prod)
    other = Cluster.objects.create(name="other", configured=True)
    factories.incident(other)
    factories.incident(Cluster.objects.create(name="gone", configured=False))
    assert numbers(ask("incidents?cluster=prod")) == [opened.pk]
    assert numbers(ask("incidents?cluster=prod&state=all")) == [opened.pk, closed.pk]
    assert numbers(ask("incidents?state=closed")) == [closed.pk]
    assert numbers(ask("incidents?state=all&severity=critical")) == [closed.pk]
    assert len(numbers(ask("incidents"))) == 2


def test_a_range_has_what_was_open_in_it(ask: Ask, prod: Cluster) -> None:
    start_ms = factories.now_ms() // 1_000 * 1_000 - 24 * HOUR_MS
    over = factories.incident(prod, opened_ms=start_ms, closed_ms=start_ms + HOUR_MS)
    long = factories.incident(prod, opened_ms=start_ms + 2 * HOUR_MS)
    for first, last, expected in (
        (-2, -1, []),
        (-1, 0, []),
        (0, 1, [over.pk]),
        (1, 2, [over.pk]),
        (0.5, 2.5, [long.pk, over.pk]),
        (3, 4, [long.pk]),
    ):
        begin, end = (format_iso(int(start_ms + hours * HOUR_MS)) for hours in (first, last))
        assert numbers(ask(f"incidents?state=all&from={begin}&to={end}")) == expected, (first, last)
    assert "query.to: " in ask(f"incidents?from={end}&to={begin}", 422)["detail"]


def test_one_incident_with_its_findings_and_history(ask: Ask, story: Incident) -> None:
    told = ask(f"incidents/{story.pk}")
    assert (told["cause"]["subject"], told["cause"]["evidence"] != "") == ("transaction:payments-7", True)
    (effect,) = told["effects"]
    assert (effect["rule"], effect["also_blocked_by"]) == ("lso_pinned", [story.pk + 1])
    assert told["also_blocked_by"] == [story.pk + 1]
    (past,) = told["past"]
    assert (past["rule"], past["summary"], past["evidence"]) == ("group_stalled", "as it came in", "")
    assert past["until"]
    assert [each["kind"] for each in told["history"]] == ["opened"]


def test_an_operator_acknowledges_and_writes_notes(call: Call, story: Incident) -> None:
    told = call("post", f"incidents/{story.pk}/acknowledge", {}, role="operator")
    by, at = told["acknowledged_by"], told["acknowledged_at"]
    assert by
    assert at
    again = call("post", f"incidents/{story.pk}/acknowledge", {}, role="admin")
    assert (again["acknowledged_by"], again["acknowledged_at"]) == (by, at)
    noted = call("post", f"incidents/{story.pk}/notes", {"text": " <b>restarted</b> "}, role="operator")
    last = noted["history"][-1]
    assert (last["kind"], last["actor"], last["text"]) == ("note", by, "<b>restarted</b>")


@pytest.mark.parametrize("text", ["", "   ", "nul\0", "x" * 5_001, None, 7])
def test_a_note_that_cannot_be_used_is_refused(call: Call, story: Incident, text: object) -> None:
    call("post", f"incidents/{story.pk}/notes", {"text": text}, role="operator", status=422)
    assert IncidentEvent.objects.count() == 1


def test_a_closed_incident_is_not_acknowledged(call: Call, story: Incident) -> None:
    Incident.objects.update(closed_ms=factories.now_ms())
    call("post", f"incidents/{story.pk}/acknowledge", {}, role="operator", status=409)
    assert call("post", f"incidents/{story.pk}/notes", {"text": "over"}, role="operator")


def test_a_list_of_100_costs_a_few_queries(
    ask: Ask, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    rows = [factories.incident(prod) for _ in range(100)]
    cause = factories.finding(prod, "transaction:payments-7")
    for row in rows:
        member(row, cause, "cause")
    with django_assert_max_num_queries(12):
        assert len(ask("incidents")["items"]) == 100


def test_the_deadline_is_that_of_its_findings(ask: Ask, story: Incident) -> None:
    deadline_ms = factories.now_ms() + 50_000
    Incident.objects.filter(pk=story.pk).update(deadline_ms=deadline_ms)
    FindingRecord.objects.filter(subject="transaction:payments-7").update(deadline_ms=deadline_ms)
    at = format_iso(deadline_ms)
    assert [each["deadline_at"] for each in ask("findings?subject=transaction:payments-7")["items"]] == [at]
    assert ask(f"incidents/{story.pk}")["deadline_at"] == at
    assert [each["deadline_at"] for each in ask("incidents")["items"]] == [None, at]
