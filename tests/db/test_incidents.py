"""Proves that the evaluation tick writes incidents with its findings: same transaction, same lease, no
needless write; and what operators write to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents import operators, store
from dashboard.incidents.store import GroupingFacts
from dashboard.models import AuditEntry, Cluster, FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime import retention
from dashboard.runtime.leases import Lease, LeaseLost
from fenceline.facts import Finding, Severity
from fenceline.incidents.causality import ThingLinks
from fenceline.incidents.impact import ImpactFigures
from fenceline.incidents.lifecycle import REOPEN_MS, SETTLE_MS
from fenceline.limits import Retention
from fenceline.owners import Owner
from tests.db import factories
from tests.db.conftest import NOW_MS

pytestmark = pytest.mark.sql

Take = Callable[..., Lease]
T, P, G = "transaction:payments-7", "partition:payments-0", "group:billing"
DAY_MS = 86_400_000


def finding(rule: str, subject: str, *affected: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(rule, "prod", subject, severity, NOW_MS, f"{rule} of {subject}", "e", "n", affected)


OPEN, PINNED, STALLED = (
    finding("open_too_long", T, P),
    finding("lso_pinned", P, G),
    finding("group_stalled", G, P),
)


class Evaluation:
    """Ticks by a clock of their own."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.now_ms = lease, NOW_MS

    def tick(self, *found: Finding, after_ms: int = 1_000, **options: Any) -> None:
        self.now_ms += after_ms
        evaluate_rules.save_findings(self.lease, found, sees=lambda row: True, now_ms=self.now_ms, **options)


@pytest.fixture
def evaluation(take: Take) -> Evaluation:
    return Evaluation(take("judge"))


def events(number: int | None = None) -> list[str]:
    rows = IncidentEvent.objects.order_by("pk")
    return [row.kind for row in (rows if number is None else rows.filter(incident=number))]


def members(row: Incident) -> dict[str, str]:
    return {each.rule: each.role for each in row.findings.filter(until_ms=None)}


def test_related_findings_are_one_incident(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN, PINNED, STALLED)
    row = Incident.objects.get()
    assert (row.rule, row.subject, row.severity, row.opened_ms) == (
        "open_too_long",
        T,
        "warning",
        evaluation.now_ms,
    )
    assert members(row) == {"open_too_long": "cause", "lso_pinned": "effect", "group_stalled": "effect"}
    assert {each.finding for each in row.findings.all()} == {each.pk for each in FindingRecord.objects.all()}
    assert row.impact == {
        "transactions": 1, "partitions": 1, "groups": 1, "queries": 0, "backlog": None, "records_lost": None,
    }  # fmt: skip
    assert events() == ["opened"]


def test_a_cause_found_later_keeps_number_history_and_acknowledgement(evaluation: Evaluation) -> None:
    evaluation.tick(STALLED)
    number = Incident.objects.get().pk
    operators.acknowledge_incident(number, by="ada", now_ms=evaluation.now_ms)
    evaluation.tick(OPEN, PINNED, STALLED)
    row = Incident.objects.get()
    assert (row.pk, row.rule, row.acknowledged_by) == (number, "open_too_long", "ada")
    assert events() == ["opened", "acknowledged", "cause_changed", "effect_added"]
    roles = row.findings.filter(rule="group_stalled").order_by("pk").values_list("role", "until_ms")
    assert list(roles) == [("cause", evaluation.now_ms), ("effect", None)]


def test_an_incident_reopens_with_the_same_number_for_ten_minutes(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN)
    evaluation.tick()
    closed = Incident.objects.get()
    assert closed.closed_ms == evaluation.now_ms
    assert members(closed) == {}
    evaluation.tick(OPEN, after_ms=REOPEN_MS)
    again = Incident.objects.get()
    assert (again.pk, again.closed_ms, again.reopened_ms) == (closed.pk, None, evaluation.now_ms)
    assert events() == ["opened", "closed", "reopened"]
    evaluation.tick()
    evaluation.tick(OPEN, after_ms=REOPEN_MS + 1)
    assert Incident.objects.count() == 2


def test_effects_that_are_polled_later_close_with_their_incident(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN, PINNED, STALLED)
    evaluation.tick(PINNED, STALLED)
    assert Incident.objects.get().cause_over_ms == evaluation.now_ms
    evaluation.tick(STALLED)
    evaluation.tick()
    row = Incident.objects.get()
    assert row.closed_ms == evaluation.now_ms
    assert events() == ["opened", "effect_removed", "closed"]


def test_an_effect_that_stays_becomes_the_cause(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN, PINNED)
    evaluation.tick(PINNED)
    evaluation.tick(PINNED, after_ms=SETTLE_MS)
    row = Incident.objects.get()
    assert (row.rule, row.cause_over_ms, members(row)) == ("lso_pinned", None, {"lso_pinned": "cause"})


def test_a_tick_without_change_writes_nothing_of_incidents(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN, PINNED, STALLED)
    rev = Cluster.objects.get().rev
    with CaptureQueriesContext(
        connection,
    ) as queries:
        evaluation.tick(OPEN, PINNED, STALLED)
    written = [
        each["sql"]
        for each in queries.captured_queries
        if "dashboard_incident" in each["sql"] and not each["sql"].startswith("SELECT")
    ]
    assert written == []
    assert Cluster.objects.get().rev == rev


def test_a_fenced_evaluation_writes_no_incident(evaluation: Evaluation, take: Take) -> None:
    take("judge", previous=evaluation.lease.token)
    with pytest.raises(LeaseLost):
        evaluation.tick(OPEN)
    assert Incident.objects.count() == 0


def test_findings_and_incidents_are_saved_together_or_not_at_all(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> bool:
        raise RuntimeError("after the findings")

    monkeypatch.setattr(store, "save_incidents", fails)
    with pytest.raises(RuntimeError):
        evaluation.tick(OPEN)
    assert FindingRecord.objects.count() == 0


def test_impact_follows_its_figures_in_steps(evaluation: Evaluation) -> None:
    for backlog, saved in ((1_000, 1_000), (1_050, 1_000), (1_200, 1_200)):
        evaluation.tick(OPEN, PINNED, facts=GroupingFacts(figures=ImpactFigures({P: backlog})))
        assert Incident.objects.get().impact["backlog"] == saved
    assert events() == ["opened"]


def test_the_first_deadline_of_its_findings_is_kept_and_moves_only_with_news(evaluation: Evaluation) -> None:
    ends_ms = NOW_MS + 600_000
    for finding_ends_ms, kept_ms in ((ends_ms, ends_ms), (ends_ms + 900, ends_ms), (NOW_MS + 1, NOW_MS + 1)):
        evaluation.tick(replace(OPEN, deadline_ms=finding_ends_ms), PINNED)
        assert Incident.objects.get().deadline_ms == kept_ms
    evaluation.tick()
    assert Incident.objects.get().deadline_ms == NOW_MS + 1
    assert FindingRecord.objects.get(rule="open_too_long").deadline_ms == NOW_MS + 1


def test_the_history_notes_that_an_incident_gets_worse_and_it_never_gets_better(
    evaluation: Evaluation,
) -> None:
    for severity in (Severity.WARNING, Severity.CRITICAL, Severity.WARNING):
        evaluation.tick(replace(OPEN, severity=severity))
    assert events() == ["opened", "escalated"]
    assert IncidentEvent.objects.get(kind="escalated").text == "warning to critical"
    assert Incident.objects.get().severity == "critical"


def test_ten_blocked_readers_make_an_incident_critical(evaluation: Evaluation) -> None:
    readers = [finding("group_stalled", f"group:g{number}", P) for number in range(10)]
    evaluation.tick(OPEN, *readers[:9])
    assert Incident.objects.get().severity == "warning"
    evaluation.tick(OPEN, *readers)
    assert Incident.objects.get().severity == "critical"


def test_a_query_that_crashes_again_keeps_the_number_and_its_cause(evaluation: Evaluation) -> None:
    prepared = finding("batch_prepared", "query:enrich", "transaction:enrich-b0")
    again = finding("open_too_long", "transaction:enrich-b1", P)
    facts = GroupingFacts(ThingLinks({"query:enrich": ["transaction:enrich-b1"]}))
    evaluation.tick(prepared)
    evaluation.tick()
    evaluation.tick(again, facts=facts)
    row = Incident.objects.get()
    assert (row.rule, row.closed_ms, row.cause_over_ms) == ("batch_prepared", None, evaluation.now_ms)
    assert members(row) == {"open_too_long": "effect"}
    evaluation.tick(again, prepared, facts=facts)
    assert members(Incident.objects.get()) == {"open_too_long": "effect", "batch_prepared": "cause"}
    assert events() == ["opened", "closed", "reopened"]


def test_two_clusters_have_numbers_of_one_sequence(evaluation: Evaluation) -> None:
    other = Cluster.objects.create(name="other", configured=True)
    Incident.objects.create(cluster=other, rule="r", subject="s", severity="info", opened_ms=NOW_MS)
    evaluation.tick(OPEN)
    evaluation.tick()
    assert Incident.objects.filter(cluster=other, closed_ms=None).count() == 1
    assert Incident.objects.count() == 2


def test_a_tick_takes_partitions_of_transactions_from_its_snapshot(evaluation: Evaluation) -> None:
    """Real rules over real rows: a hanging partition and the group that is blocked there."""
    factories.collectors()
    factories.position()
    factories.partition("orders", 0, verdict="hanging")
    factories.lso_blocker("orders", 0, verdict="hanging", ground="no_such_producer")
    factories.blocked_group(blockers=[{"producer_id": 7, "transactional_id": ""}])
    reader = SnapshotReader("prod")
    for _ in range(3):
        evaluate_rules.evaluate_cluster(evaluation.lease, reader, now_ms=NOW_MS)
        factories.complete_next_polls()
    row = Incident.objects.get(closed_ms=None)
    assert (row.rule, row.subject) == ("hanging", "partition:orders-0")
    assert members(row) == {"hanging": "cause", "lso_pinned": "effect", "group_stalled": "effect"}
    assert row.impact["backlog"] > 0


def test_the_owner_is_that_of_its_cause(evaluation: Evaluation, settings: Any) -> None:
    owner = Owner(match="payments*", team="Payments")
    settings.FENCELINE = replace(settings.FENCELINE, owners=(owner,))
    evaluation.tick(OPEN)
    assert Incident.objects.get().owner == "Payments"


def test_a_cause_without_owner_has_that_of_its_first_effect_with_one(
    evaluation: Evaluation, settings: Any
) -> None:
    owner = Owner(match="payments*", team="Payments")
    settings.FENCELINE = replace(settings.FENCELINE, owners=(owner,))
    cause = finding("open_too_long", "transaction:stray-1", P, "partition:orders-0")
    evaluation.tick(cause)
    assert Incident.objects.get().owner == ""
    evaluation.tick(cause, finding("lso_pinned", "partition:orders-0"), PINNED)
    assert Incident.objects.get().owner == "Payments"


def test_a_note_and_an_acknowledgement_leave_events_and_audit_rows(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN)
    number = Incident.objects.get().pk
    assert operators.acknowledge_incident(number, by="ada", now_ms=NOW_MS)
    assert not operators.acknowledge_incident(number, by="bob", now_ms=NOW_MS)
    operators.add_incident_note(number, "driver restarted", by="bob", now_ms=NOW_MS)
    assert events(number) == ["opened", "acknowledged", "note"]
    assert Incident.objects.get().acknowledged_by == "ada"
    audited = (
        AuditEntry.objects.filter(event__startswith="incident.")
        .order_by("pk")
        .values_list("event", "subject_id")
    )
    assert list(audited) == [("incident.acknowledged", number), ("incident.noted", number)]
    evaluation.tick()
    operators.add_incident_note(number, "it was the network", by="bob", now_ms=NOW_MS)
    evaluation.tick(after_ms=REOPEN_MS)
    Incident.objects.update(acknowledged_ms=None)
    with pytest.raises(operators.IncidentClosed):
        operators.acknowledge_incident(number, by="ada", now_ms=NOW_MS)
    with pytest.raises(Incident.DoesNotExist):
        operators.add_incident_note(number + 1, "where?", by="bob", now_ms=NOW_MS)


def test_closed_incidents_are_kept_longer_than_their_findings(evaluation: Evaluation, take: Take) -> None:
    evaluation.tick(OPEN, PINNED)
    evaluation.tick()
    closed = Incident.objects.get()
    evaluation.tick(finding("abort_ratio", "application:x"), after_ms=REOPEN_MS)
    lease, keep = take(retention.NAME), Retention(closed_d=3, incidents_d=10)
    FindingRecord.objects.exclude(closed_at=None).update(closed_at="2020-01-01T00:00Z")
    while retention.prune(lease, keep, now_ms=evaluation.now_ms + 9 * DAY_MS):
        pass
    assert FindingRecord.objects.count() == 1
    assert closed.findings.count() == 2
    while retention.prune(lease, keep, now_ms=evaluation.now_ms + 11 * DAY_MS):
        pass
    assert [row.rule for row in Incident.objects.all()] == ["abort_ratio"]
    assert IncidentFinding.objects.count() == IncidentEvent.objects.count() == 1
