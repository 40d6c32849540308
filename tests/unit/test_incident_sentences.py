"""Proves what an incident is called and means: a fact, its deadline and who is blocked; which action is its
first; what becomes of what it blocks, acted upon or not; and the order of its evidence."""

from typing import Any

import pytest

from fenceline.facts import Finding, Severity
from fenceline.incidents.facts import (
    MOST_LINES,
    EvidenceLine,
    batch_evidence,
    driver_evidence,
    evidence_in_order,
    finding_evidence,
    source_of,
)
from fenceline.incidents.outcomes import acted_words, action_candidates, nothing_words, outcome_rows
from fenceline.incidents.sentences import (
    DeadlineKind,
    IncidentFacts,
    StuckBatches,
    closed_headline,
    incident_consequence,
    incident_explanation,
    incident_title,
    worst_fact,
)
from fenceline.plans.plan import Bound, Effect, SubjectPlan
from fenceline.rules import RULES
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.text import Age, Instant, plain_text
from tests.cases import cases

#: 02:16:07 UTC.
NOW_MS = 1_795_486_567_000
MIN = 60_000
ENDED = Driver(DriverStatus.ENDED, ended_ms=NOW_MS - 9 * MIN)
FAILED = ENDED._replace(failed=True)
SILENT = Driver(DriverStatus.NO_HEARTBEAT, heartbeat_ms=NOW_MS - 9 * MIN)
RUNNING = Driver(DriverStatus.RUNNING)


def facts(rule: str, **fields: Any) -> IncidentFacts:
    defaults = {
        "name": "inventory-sync-3",
        "summary": "a summary",
        "evidence": "some evidence",
        "since_ms": NOW_MS - 12 * MIN,
    }
    return IncidentFacts(rule, **(defaults | fields))


def stuck(driver: Driver, *numbers: int, rows: int = 18_004) -> StuckBatches:
    return StuckBatches(numbers or (1_204,), rows, driver, driver is not RUNNING)


def crash(driver: Driver = SILENT, **fields: Any) -> IncidentFacts:
    given = {"name": "orders_enrich", "batches": stuck(driver), "deadline_ms": NOW_MS + 703_000}
    return facts("batch_prepared", **(given | fields))


BLOCKED = {"partitions": ("stock-1", "stock-4")}


@cases(
    (crash(), "The driver of orders_enrich died in the middle of batch 1,204"),
    (crash(ENDED), "orders_enrich was stopped in the middle of batch 1,204"),
    (crash(FAILED), "orders_enrich failed in the middle of batch 1,204"),
    (crash(RUNNING), "Batch 1,204 of orders_enrich has been prepared but not committed for 12 min"),
    (
        facts("open_too_long", **BLOCKED, usual_ms=2_100),
        "inventory-sync-3 has blocked stock-1 and stock-4 for 12 min; its commits usually take up to 2.1 s",
    ),
    (facts("open_too_long"), "inventory-sync-3 has been open for 12 min"),
    (
        facts("coordinator_overdue"),
        "inventory-sync-3 has been open for 12 min: its coordinator has not aborted it",
    ),
    (
        facts("hanging", name="payments-0"),
        "payments-0 has been blocked for 12 min by a transaction that no coordinator owns",
    ),
    (facts("lso_pinned", name="p-0"), "The last stable offset of p-0 has not moved for 12 min"),
    (
        facts("group_stalled", name="billing", partitions=("p-0",)),
        "billing has been blocked at p-0 for 12 min",
    ),
    (facts("abort_ratio", summary="x aborts a third of them."), "x aborts a third of them"),
    (facts("open_too_long", left_summary="billing is blocked", cause_over_ms=NOW_MS), "billing is blocked"),
)
def test_a_title_is_the_cause_in_words_and_keeps_ages_as_parts(of: IncidentFacts, title: str) -> None:
    assert plain_text(incident_title(of), now_ms=NOW_MS) == title
    assert (Age(NOW_MS - 12 * MIN) in incident_title(of)) == ("12 min" in title)


@cases(
    (
        crash(),
        "Batch 1,204 is prepared but not committed. A restart of the query completes it without loss. "
        "After 02:27:50 UTC the brokers abort it.",
    ),
    (
        crash(deadline_ms=NOW_MS - MIN),
        "Batch 1,204 is prepared but not committed. The transactions timed out at 02:15:07 UTC and may be "
        "lost.",
    ),
    (
        facts("open_too_long", silent_since_ms=NOW_MS - 12 * MIN, deadline_ms=NOW_MS + 84_000),
        "Its producer has sent nothing since 02:04:07 UTC. The coordinator aborts it at 02:17:31 UTC. "
        "No consumer is blocked yet.",
    ),
    (
        facts("open_too_long", groups=("billing",), backlog=1_465, deadline_ms=NOW_MS - 1_000),
        "Its timeout passed at 02:16:06 UTC. billing is blocked before 1,465 records.",
    ),
    (
        facts("hanging", groups=("a", "b"), queries=("c",), backlog=1),
        "It does not end by itself. 2 groups and 1 query are blocked before 1 record.",
    ),
    (facts("abort_ratio"), "some evidence."),
    (
        facts("open_too_long", cause_over_ms=NOW_MS - MIN, summary="payments-7 has been open since 02:02:50"),
        "The cause ended at 02:15:07 UTC: payments-7 has been open since 02:02:50.",
    ),
)
def test_an_explanation_has_the_end_and_who_is_blocked(of: IncidentFacts, words: str) -> None:
    assert plain_text(incident_explanation(of, now_ms=NOW_MS), now_ms=NOW_MS) == words
    assert Instant(NOW_MS + 703_000) in incident_explanation(crash(), now_ms=NOW_MS)


@cases(
    (crash(), "orders_enrich loses 18,004 rows at 02:27:50 UTC unless batch 1,204 is finished."),
    (
        crash(batches=stuck(SILENT, 7, 8, rows=1)),
        "orders_enrich loses 1 row at 02:27:50 UTC unless batch 7 and batch 8 are finished.",
    ),
    (crash(deadline_ms=NOW_MS - 1), "The driver of orders_enrich died in the middle of batch 1,204."),
    (
        facts("open_too_long", **BLOCKED, groups=("billing",), deadline_ms=NOW_MS + 84_000),
        "inventory-sync-3 blocks billing until 02:17:31 UTC.",
    ),
    (
        facts("open_too_long", **BLOCKED, deadline_ms=NOW_MS + 84_000),
        "inventory-sync-3 blocks stock-1 and stock-4 until 02:17:31 UTC.",
    ),
    (facts("open_too_long", **BLOCKED), "inventory-sync-3 has blocked stock-1 and stock-4 for 12 min."),
)
def test_the_worst_fact_names_what_is_lost_or_blocked_and_until_when(of: IncidentFacts, words: str) -> None:
    assert plain_text(worst_fact(of, now_ms=NOW_MS), now_ms=NOW_MS) == words


@cases(
    (crash(), "A restart completes it; after 02:27:50 UTC its 18,004 rows are lost.", DeadlineKind.LOSS),
    (crash(deadline_ms=NOW_MS - MIN), "Its 18,004 rows may be lost since 02:15:07 UTC.", DeadlineKind.LOSS),
    (crash(deadline_ms=None), "A restart completes it.", None),
    (facts("hanging"), "It does not end by itself.", None),
    (
        facts("open_too_long", deadline_ms=NOW_MS + 84_000),
        "Its coordinator aborts it at 02:17:31 UTC.",
        DeadlineKind.ENDS,
    ),
    (facts("open_too_long"), "", None),
)
def test_a_consequence_is_what_becomes_of_it(
    of: IncidentFacts, words: str, deadline: DeadlineKind | None
) -> None:
    assert plain_text(incident_consequence(of, now_ms=NOW_MS), now_ms=NOW_MS) == words
    assert of.deadline_kind is deadline


def finding(rule: str, subject: str) -> Finding:
    return Finding(rule, "prod", subject, Severity.WARNING, None, "s", "e", "n")


def test_actions_come_from_the_cause_then_from_its_subject_then_from_other_effects() -> None:
    cause, own = finding("query_failed", "query:q"), finding("batch_prepared", "query:q")
    other = finding("open_too_long", "transaction:t")
    assert action_candidates([cause, other, own]) == [cause, own, other]
    for rule in ("stuck_in_prepare", "coordinator_loading", "collector_gap"):
        of_broker = finding(rule, "coordinators:prod")
        assert action_candidates([of_broker, other]) == [of_broker], "what a broker has to end"


@cases(
    (crash(), "The driver of orders_enrich died in the middle of batch 1,204, for 47 s."),
    (crash(RUNNING), "Batch 1,204 of orders_enrich was prepared but not committed for 47 s."),
    (facts("open_too_long", **BLOCKED), "inventory-sync-3 blocked stock-1 and stock-4 for 47 s."),
    (facts("coordinator_overdue"), "inventory-sync-3 was open for 47 s."),
    (
        facts("hanging", name="payments-0"),
        "payments-0 was blocked for 47 s by a transaction that no coordinator owned.",
    ),
    (facts("lso_pinned", name="p-0"), "The last stable offset of p-0 did not move for 47 s."),
    (facts("group_stalled", name="billing", partitions=("p-0",)), "billing was blocked at p-0 for 47 s."),
    (facts("abort_ratio", summary="x aborts a third of them"), "x aborts a third of them. It lasted 47 s."),
)
def test_a_closed_incident_is_told_in_the_past_with_its_outcome(of: IncidentFacts, words: str) -> None:
    assert closed_headline(of, "", lasted_ms=47_312) == words
    assert closed_headline(of, "Ended by ada.", lasted_ms=47_312) == f"{words} Ended by ada."


LATER_MS = NOW_MS + 703_000


def plan(*effects: Effect) -> SubjectPlan:
    return SubjectPlan("x", "x", {}, effects=effects)


def table(of: IncidentFacts, planned: SubjectPlan | None) -> list[tuple[str, str, str]]:
    """Each row in words: what, if somebody acts, if nobody does."""
    rows = outcome_rows(of, planned, now_ms=NOW_MS)
    return [(row.what, row.acted.words if row.acted else "", row.nothing.words) for row in rows]


FINISH = plan(
    Effect("records_committed", 18_004, "w"),
    Effect("offsets_released", 18_010, "w", Bound.AT_LEAST),
    Effect("batch_recorded", None, "w"),
)
FENCE = plan(
    Effect("records_released", 1_465, "w", Bound.AT_LEAST),
    Effect("records_lost", 3, "w", Bound.AT_LEAST),
    Effect("producer_fenced", None, "w"),
)
EFFECTS: dict[str, Any] = {"partitions": ("p-0",), "groups": ("billing", "shipping")}


def test_a_prepared_batch_is_committed_by_an_action_or_a_restart_or_aborted_at_its_deadline() -> None:
    for planned, resumed in (
        (FINISH, "resume at once: at least 18,010 offsets"),
        (None, "resume once it is committed"),
    ):
        assert table(crash(**EFFECTS), planned) == [
            ("rows of batch 1,204", "18,004 committed", "18,004 rows aborted, to be replayed"),
            ("next batch of orders_enrich", "batch 1,205", "refuses to start: reports the loss"),
            ("billing and shipping", resumed, "resume at 02:27:50 UTC"),
        ]
    first = outcome_rows(crash(), FINISH, now_ms=NOW_MS)[0]
    assert first.acted is not None
    assert (first.acted.tone, first.nothing.tone) == ("ok", "critical")
    late = crash(deadline_ms=NOW_MS - 1)
    assert [row.acted for row in outcome_rows(late, None, now_ms=NOW_MS)] == [None, None]
    for of, button, words in (
        (crash(), "", "restart"),
        (crash(), "Finish batch 1,204…", "restart, or finish batch 1,204"),
        (late, "", ""),
        (facts("open_too_long"), "Fence producer…", "Fence producer"),
    ):
        assert acted_words(of, button, now_ms=NOW_MS) == words


def test_an_open_transaction_is_aborted_either_way_and_readers_go_on_sooner_or_later() -> None:
    opened = facts("open_too_long", **EFFECTS, deadline_ms=LATER_MS)
    assert table(opened, FENCE) == [
        ("transaction of inventory-sync-3", "aborted: at least 3 records", "aborted at 02:27:50 UTC"),
        ("its producer", "is fenced; start it again", "may still commit until then"),
        ("billing and shipping", "resume at once: at least 1,465 records", "resume at 02:27:50 UTC"),
    ]
    stays = plan(Effect("lso_stays", 1, "w"), Effect("producer_fenced", None, "w"))
    assert table(opened, stays)[-1][1] == "stays blocked by another transaction"


def test_what_hangs_never_ends_by_itself() -> None:
    marker = plan(Effect("offsets_released", 11, "w", Bound.AT_LEAST))
    assert table(facts("hanging", name="p-0", partitions=("p-0",)), marker) == [
        ("its transaction", "aborted", "never ends"),
        ("readers of its partitions", "resume at once: at least 11 offsets", "stay blocked"),
    ]


def test_without_a_plan_there_is_only_what_happens_if_nothing_is_done() -> None:
    rows = outcome_rows(facts("coordinator_overdue", **EFFECTS), None, now_ms=NOW_MS)
    assert [row.acted for row in rows] == [None, None]
    assert [row.nothing.words for row in rows] == ["ends when its coordinator goes on", "stay blocked"]
    assert outcome_rows(facts("abort_ratio"), None, now_ms=NOW_MS) == []


@cases(
    (LATER_MS, "nothing until 02:27:50 UTC"),
    (NOW_MS - 1, "if nothing is done"),
    (None, "if nothing is done"),
)
def test_the_heading_names_the_deadline_while_it_is_to_come(deadline_ms: int | None, words: str) -> None:
    assert nothing_words(facts("open_too_long", deadline_ms=deadline_ms), now_ms=NOW_MS) == words


def test_evidence_is_the_cause_then_facts_by_time_each_once_and_bounded() -> None:
    lines = [EvidenceLine(number, f"fact {number}", "x") for number in (3, 1, 2, 1)]
    assert [line.at_ms for line in evidence_in_order(lines)] == [1, 2, 3]
    many = [EvidenceLine(number, "fact", "x") for number in range(10_000)]
    assert [line.at_ms for line in evidence_in_order(many)] == list(range(MOST_LINES))
    cause = EvidenceLine(20_000, "the cause", "x", is_cause=True)
    assert evidence_in_order([*many, cause])[0] == cause


def test_findings_of_one_rule_are_one_line_with_a_count() -> None:
    effects = [finding_evidence("open_too_long", f"t{n} is open", n, is_cause=False) for n in range(7)]
    cause = finding_evidence("open_too_long", "t9 is open", 9, is_cause=True)
    other = finding_evidence("lso_pinned", "p is blocked", 3, is_cause=False)
    shown = [(line.words, line.times) for line in evidence_in_order([*effects, cause, other])]
    assert shown == [("t9 is open", 1), ("t0 is open", 7), ("p is blocked", 1)]


def test_steps_of_a_batch_name_the_file_that_shows_them() -> None:
    links = [
        ChainLink(BatchStep.PLANNED, LinkState.DONE, 1, "offsets/1204 is there"),
        ChainLink(BatchStep.WRITTEN, LinkState.DONE, 2, "4 transactions, 18,004 records"),
        ChainLink(BatchStep.PREPARED, LinkState.DONE, 3, "round 0 is decided"),
        ChainLink(BatchStep.COMMITTED, LinkState.BROKEN, None, "0 of 4 committed"),
    ]
    assert [line.where for line in batch_evidence(1_204, 0, links)] == [
        "offsets/1204", "ledger, round 0", "1204.0.decision",
    ]  # fmt: skip


def test_a_driver_that_is_gone_is_evidence_and_one_that_runs_is_none() -> None:
    assert [line.words for line in driver_evidence("q", SILENT)] == ["last heartbeat of the driver of q"]
    assert [line.words for line in driver_evidence("q", ENDED)] == ["the driver of q stopped"]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_source(rule: str) -> None:
    assert source_of(rule)
