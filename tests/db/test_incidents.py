"""Proves that the evaluation tick writes incidents with its findings: same transaction, same lease, no
needless write; and what operators write to them."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.incidents import operators, store
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.queries import incidents_as_of, stored_facts
from dashboard.incidents.store import GroupingFacts
from dashboard.models import AuditEntry, Cluster, FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime import retention
from dashboard.runtime.leases import Lease
from fenceline.facts import Finding, Severity
from fenceline.incidents.causality import ThingLinks
from fenceline.incidents.impact import ImpactFigures
from fenceline.incidents.lifecycle import REOPEN_MS
from fenceline.incidents.sentences import closed_headline
from fenceline.limits import Retention
from fenceline.owners import Owner
from fenceline.snapshot import Snapshot
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.queries import QueryStatus, SinkBatch
from tests.db import factories
from tests.db.conftest import NOW_MS, Take

pytestmark = pytest.mark.sql

T, P, G = "transaction:payments-7", "partition:payments-0", "group:billing"
DAY_MS = 86_400_000


def finding(rule: str, subject: str, *affected: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(rule, "prod", subject, severity, NOW_MS, f"{rule} of {subject}", "e", "n", affected)


OPEN, PINNED = finding("open_too_long", T, P), finding("lso_pinned", P, G)
STALLED = finding("group_stalled", G, P)


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


def test_related_findings_are_one_incident_and_a_tick_without_change_writes_nothing_of_it(
    evaluation: Evaluation,
) -> None:
    evaluation.tick(OPEN, PINNED, STALLED)
    row = Incident.objects.get()
    expected = ("open_too_long", T, "warning", evaluation.now_ms)
    assert (row.rule, row.subject, row.severity, row.opened_ms) == expected
    assert members(row) == {"open_too_long": "cause", "lso_pinned": "effect", "group_stalled": "effect"}
    assert {each.finding for each in row.findings.all()} == {each.pk for each in FindingRecord.objects.all()}
    assert row.impact == {
        "transactions": 1, "partitions": 1, "groups": 1, "queries": 0, "backlog": None, "records_lost": None,
    }  # fmt: skip
    rev = Cluster.objects.get().rev
    with CaptureQueriesContext(connection) as queries:
        evaluation.tick(OPEN, PINNED, STALLED)
    about_incidents = [
        each["sql"] for each in queries.captured_queries if "dashboard_incident" in each["sql"]
    ]
    assert all(statement.startswith("SELECT") for statement in about_incidents)
    assert Cluster.objects.get().rev == rev
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


def test_an_incident_reopens_with_the_same_number_for_a_minute(evaluation: Evaluation) -> None:
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


def test_findings_and_incidents_are_saved_together_or_not_at_all(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **options: object) -> bool:
        raise RuntimeError("after the findings")

    monkeypatch.setattr(store, "save_incidents", fails)
    with pytest.raises(RuntimeError):
        evaluation.tick(OPEN)
    assert FindingRecord.objects.count() == 0


def test_the_first_deadline_of_its_findings_is_kept_and_moves_only_with_news(evaluation: Evaluation) -> None:
    ends_ms = NOW_MS + 600_000
    for finding_ends_ms, kept_ms in ((ends_ms, ends_ms), (ends_ms + 900, ends_ms), (NOW_MS + 1, NOW_MS + 1)):
        evaluation.tick(replace(OPEN, deadline_ms=finding_ends_ms), PINNED)
        assert Incident.objects.get().deadline_ms == kept_ms
    evaluation.tick()
    assert Incident.objects.get().deadline_ms == NOW_MS + 1
    assert FindingRecord.objects.get(rule="open_too_long").deadline_ms == NOW_MS + 1


def test_an_incident_gets_worse_which_no_acknowledgement_covers_and_never_better(
    evaluation: Evaluation,
) -> None:
    evaluation.tick(OPEN)
    operators.acknowledge_incident(Incident.objects.get().pk, by="ada", now_ms=evaluation.now_ms)
    evaluation.tick(OPEN, PINNED)
    assert Incident.objects.get().acknowledged_by == "ada"
    for severity in (Severity.CRITICAL, Severity.WARNING):
        evaluation.tick(replace(OPEN, severity=severity), PINNED)
    row = Incident.objects.get()
    assert (row.severity, row.acknowledged_ms, row.acknowledged_by) == ("critical", None, "")
    assert IncidentEvent.objects.get(kind="escalated").text == "warning to critical"
    assert IncidentEvent.objects.get(kind="unacknowledged").text == "ada had acknowledged a warning"
    assert events().count("escalated") == 1


def test_each_crash_of_a_query_is_an_incident_of_its_own(evaluation: Evaluation) -> None:
    prepared = finding("batch_prepared", "query:enrich", "transaction:enrich-b0")
    again = finding("open_too_long", "transaction:enrich-b1", P)
    facts = GroupingFacts(
        ThingLinks({"query:enrich": ["transaction:enrich-b1"]}, instances={"query:enrich": "batch 44"})
    )
    evaluation.tick(replace(prepared, instance="batch 43"))
    evaluation.tick()
    evaluation.tick(again, facts=facts)
    evaluation.tick(again, replace(prepared, instance="batch 44"), facts=facts)
    first, second = Incident.objects.order_by("pk")
    assert (first.closed_ms is None, second.closed_ms) == (False, None)
    assert (second.rule, second.instance) == ("batch_prepared", "batch 44")
    assert members(second) == {"open_too_long": "effect", "batch_prepared": "cause"}


def test_the_next_transaction_of_an_id_has_a_finding_and_an_incident_of_its_own(
    evaluation: Evaluation,
) -> None:
    """Also where no tick fell between the two: neither its age nor its evidence is that of the other."""
    evaluation.tick(replace(OPEN, instance="7@100"), PINNED)
    later = replace(OPEN, instance="7@200", since_ms=NOW_MS + 90_000, summary="open since 10:01")
    evaluation.tick(later, PINNED, after_ms=100_000)
    before, now = FindingRecord.objects.filter(rule="open_too_long").order_by("pk")
    assert (before.to_miss, now.since_ms, now.closed_at) == (FindingRecord.AGAIN, later.since_ms, None)
    first, second = Incident.objects.order_by("pk")
    assert first.closed_ms == evaluation.now_ms
    assert (second.instance, second.since_ms) == ("7@200", later.since_ms)
    assert {each.finding for each in second.findings.filter(rule="open_too_long")} == {now.pk}


def backlog_of(records: int) -> GroupingFacts:
    return GroupingFacts(figures=ImpactFigures({P: records}))


def test_impact_follows_its_figures_in_steps_and_its_largest_is_kept(evaluation: Evaluation) -> None:
    for backlog, saved in ((1_000, 1_000), (1_050, 1_000), (1_200, 1_200), (9_000, 9_000), (10, 10)):
        evaluation.tick(OPEN, PINNED, STALLED, facts=backlog_of(backlog))
        assert Incident.objects.get().impact["backlog"] == saved
    assert events() == ["opened"]
    evaluation.tick(STALLED)
    evaluation.tick()
    row = Incident.objects.get()
    assert (row.peak["backlog"], row.peak["partitions"], row.peak["groups"]) == (9_000, 1, 1)


def test_a_crash_keeps_its_batch_while_effects_outlive_it(evaluation: Evaluation) -> None:
    """One of its transactions is found open for longer: what happened is told by the batch all the same."""
    batch = SinkBatch(43, NOW_MS - 60_000, None, 322, open=("enrich-b0",))
    query = QueryStatus("enrich", "enrich", driver=Driver(DriverStatus.ENDED), sink_batches=(batch,))
    prepared = finding("batch_prepared", "query:enrich", "transaction:enrich-b0")
    left = finding("open_too_long", "transaction:enrich-b0", P)
    facts = GroupingFacts(snapshot=Snapshot("prod", queries=(query,)))
    evaluation.tick(prepared, left, facts=facts)
    evaluation.tick(left)
    known = stored_facts(Incident.objects.get())
    assert known is not None
    assert known.cause_over_ms == evaluation.now_ms
    evaluation.tick()
    known = stored_facts(Incident.objects.get())
    assert known is not None
    assert closed_headline(known, "", lasted_ms=31_000) == (
        "enrich was stopped in the middle of batch 43, for 31 s."
    )


def test_an_incident_of_the_past_is_as_it_was_known_then(evaluation: Evaluation) -> None:
    evaluation.tick(OPEN)
    early_ms = evaluation.now_ms + 1
    evaluation.tick(replace(OPEN, severity=Severity.CRITICAL, summary="later words"), PINNED, after_ms=60_000)
    evaluation.tick(after_ms=60_000)
    row = Incident.objects.get()
    [then] = incidents_as_of([row], early_ms)
    assert (then.severity, then.closed_ms, then.outcome) == ("warning", None, "")
    assert (then.facts["summary"], then.impact["partitions"]) == (OPEN.summary, 1)
    [last] = incidents_as_of([row], evaluation.now_ms + 1)
    assert (last.severity, last.closed_ms, last.facts["summary"]) == (
        "critical", evaluation.now_ms, "later words",
    )  # fmt: skip


def test_incidents_of_one_subject_are_counted_for_an_hour(evaluation: Evaluation) -> None:
    for number in range(4):
        evaluation.tick(replace(OPEN, instance=f"7@{number}"), after_ms=379_000)
        evaluation.tick()
    rows = list(Incident.objects.order_by("pk"))
    found = incident_queries.recurrences(rows)
    assert [str(found[row.pk]) if row.pk in found else "" for row in rows] == [
        "", "2nd in 6 min", "3rd in 13 min", "4th in 19 min",
    ]  # fmt: skip
    assert found[rows[3].pk].last == rows[2].pk


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
    factories.evaluate_polls(evaluation.lease)
    row = Incident.objects.get(closed_ms=None)
    assert (row.rule, row.subject) == ("hanging", "partition:orders-0")
    assert members(row) == {"hanging": "cause", "lso_pinned": "effect", "group_stalled": "effect"}
    assert row.impact["backlog"] > 0


def test_the_owner_is_that_of_its_cause_or_of_its_first_effect_with_one(
    evaluation: Evaluation, settings: Any
) -> None:
    owner = Owner(match="payments*", team="Payments")
    settings.FENCELINE = replace(settings.FENCELINE, owners=(owner,))
    cause = finding("open_too_long", "transaction:stray-1", P, "partition:orders-0")
    evaluation.tick(cause)
    assert Incident.objects.get().owner == ""
    early_ms = evaluation.now_ms + 1
    evaluation.tick(cause, finding("lso_pinned", "partition:orders-0"), PINNED)
    row = Incident.objects.get()
    assert row.owner == "Payments"
    [then] = incidents_as_of([row], early_ms)
    assert then.owner == ""
    evaluation.tick()
    evaluation.tick(OPEN)
    assert Incident.objects.get(rule=OPEN.rule, subject=T).owner == "Payments"


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
    factories.prune_all(lease, keep, evaluation.now_ms + 9 * DAY_MS)
    assert FindingRecord.objects.count() == 1
    assert closed.findings.count() == 2
    factories.prune_all(lease, keep, evaluation.now_ms + 11 * DAY_MS)
    assert [row.rule for row in Incident.objects.all()] == ["abort_ratio"]
    assert IncidentFinding.objects.count() == IncidentEvent.objects.count() == 1
