"""Proves what becomes of what an incident blocks, acted upon or not, and the order of its evidence."""

from typing import Any

import pytest

from fenceline.incidents.evidence import (
    MOST_LINES,
    EvidenceLine,
    batch_evidence,
    driver_evidence,
    evidence_in_order,
    finding_evidence,
    source_of,
)
from fenceline.incidents.outcomes import acted_words, nothing_words, outcome_rows
from fenceline.incidents.sentences import IncidentFacts
from fenceline.plans.plan import Bound, Effect, SubjectPlan
from fenceline.rules import RULES
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from tests.unit.test_incident_sentences import ENDED, NOW_MS, SILENT, crash, facts

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
BLOCKED: dict[str, Any] = {"partitions": ("p-0",), "groups": ("billing", "shipping")}


def test_a_prepared_batch_is_committed_or_aborted_at_its_deadline() -> None:
    assert table(crash(**BLOCKED), FINISH) == [
        ("rows of batch 1,204", "18,004 committed", "18,004 rows aborted, to be replayed"),
        ("next batch of orders_enrich", "batch 1,205", "refuses to start: reports the loss"),
        ("billing and shipping", "resume at once: at least 18,010 offsets", "resume at 02:27:50 UTC"),
    ]
    tones = [
        (row.acted and row.acted.tone, row.nothing.tone)
        for row in outcome_rows(crash(), FINISH, now_ms=NOW_MS)
    ]
    assert tones[0] == ("ok", "critical")


def test_a_restart_alone_completes_a_prepared_batch_until_its_deadline() -> None:
    assert table(crash(**BLOCKED), None) == [
        ("rows of batch 1,204", "18,004 committed", "18,004 rows aborted, to be replayed"),
        ("next batch of orders_enrich", "batch 1,205", "refuses to start: reports the loss"),
        ("billing and shipping", "resume once it is committed", "resume at 02:27:50 UTC"),
    ]
    assert acted_words(crash(), "", now_ms=NOW_MS) == "restart"
    assert acted_words(crash(), "Finish batch 1,204…", now_ms=NOW_MS) == "restart, or finish batch 1,204"
    late = crash(deadline_ms=NOW_MS - 1)
    assert [row.acted for row in outcome_rows(late, None, now_ms=NOW_MS)] == [None, None]
    assert acted_words(late, "", now_ms=NOW_MS) == ""
    assert acted_words(facts("open_too_long"), "Fence producer…", now_ms=NOW_MS) == "Fence producer"


def test_an_open_transaction_is_aborted_either_way_and_readers_go_on_sooner_or_later() -> None:
    assert table(facts("open_too_long", **BLOCKED, deadline_ms=LATER_MS), FENCE) == [
        ("transaction of inventory-sync-3", "aborted: at least 3 records", "aborted at 02:27:50 UTC"),
        ("its producer", "is fenced; start it again", "may still commit until then"),
        ("billing and shipping", "resume at once: at least 1,465 records", "resume at 02:27:50 UTC"),
    ]


def test_what_hangs_never_ends_by_itself() -> None:
    marker = plan(Effect("offsets_released", 11, "w", Bound.AT_LEAST))
    assert table(facts("hanging", name="p-0", partitions=("p-0",)), marker) == [
        ("its transaction", "aborted", "never ends"),
        ("readers of its partitions", "resume at once: at least 11 offsets", "stay blocked"),
    ]


def test_a_reader_that_another_transaction_blocks_does_not_resume() -> None:
    stays = plan(Effect("lso_stays", 1, "w"), Effect("producer_fenced", None, "w"))
    rows = table(facts("open_too_long", **BLOCKED, deadline_ms=LATER_MS), stays)
    assert rows[-1][1] == "stays blocked by another transaction"


def test_without_a_plan_there_is_only_what_happens_if_nothing_is_done() -> None:
    rows = outcome_rows(facts("coordinator_overdue", **BLOCKED), None, now_ms=NOW_MS)
    assert [row.acted for row in rows] == [None, None]
    assert [row.nothing.words for row in rows] == ["ends when its coordinator goes on", "stay blocked"]
    assert outcome_rows(facts("abort_ratio"), None, now_ms=NOW_MS) == []


@pytest.mark.parametrize(
    ("deadline_ms", "words"),
    [
        (LATER_MS, "nothing until 02:27:50 UTC"),
        (NOW_MS - 1, "if nothing is done"),
        (None, "if nothing is done"),
    ],
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
