"""Proves the mechanism that suppresses rules: what a gap hides, and what stays available."""

from dataclasses import replace

import pytest

from fenceline import rules
from fenceline.facts import VisibilityGap
from fenceline.findings.visibility import Sense, Visibility, expected_ms, stale_gap
from fenceline.limits import Limits
from fenceline.rules import MOST_FINDINGS, RULES, evaluate_rules
from fenceline.snapshot import CollectorStatus
from tests.unit.rules.factories import (
    ALL_COLLECTORS,
    AUDITS,
    CHECKPOINTS,
    FLINK,
    LIMITS,
    NOW_MS,
    TAIL,
    ago,
    collector,
    gap,
    snapshot,
    transaction,
)

PLACES = {
    "partition:a-0": frozenset({"broker:1", "topic:a"}),
    "group:g": frozenset({"broker:1", "__consumer_offsets-7"}),
    "transaction:t": frozenset({"shard:1"}),
}


@pytest.mark.parametrize(
    ("number", "sense", "hidden", "things", "sees", "why"),
    [
        (1, Sense.PARTITIONS, (), ("partition:a-0",), True, "nothing is hidden"),
        (2, Sense.PARTITIONS, ("cluster",), ("partition:a-0",), False, "everything is"),
        (3, Sense.PARTITIONS, ("partition:a-0",), ("partition:a-0",), False, "it is, by name"),
        (4, Sense.PARTITIONS, ("partition:a-1",), ("partition:a-0",), True, "its neighbour is"),
        (5, Sense.PARTITIONS, ("broker:1",), ("partition:a-0",), False, "its leader does not answer"),
        (6, Sense.PARTITIONS, ("broker:2",), ("partition:a-0",), True, "another broker does not"),
        (7, Sense.PARTITIONS, ("broker:2",), ("partition:b-0",), False, "nobody knows where it lies"),
        (8, Sense.PARTITIONS, ("partition:a-1",), ("partition:b-0",), True, "names need no place"),
        (9, Sense.PARTITIONS, ("partition:a-1",), ("group:g",), False, "about no partition: must see all"),
        (10, Sense.PARTITIONS, ("partition:a-1",), ("group:g", "partition:a-0"), True, "about this one"),
        (11, Sense.PARTITIONS, ("partition:a-1",), ("partition:a-0", "partition:a-1"), False, "about both"),
        (17, Sense.PARTITIONS, ("topic:a",), ("partition:a-0",), False, "its topic may not be described"),
        (18, Sense.PARTITIONS, ("topic:b",), ("partition:a-0",), True, "another topic may not"),
        (19, Sense.PARTITIONS, ("the cellar",), ("partition:a-0",), False, "nobody knows what that hides"),
        (12, Sense.TRANSACTIONS, ("shard:0",), ("transaction:t",), True, "another tail's"),
        (13, Sense.TRANSACTIONS, ("shard:1",), ("transaction:t",), False, "its own tail's"),
        (14, Sense.TRANSACTIONS, ("shard:0",), ("partition:a-0",), False, "any id may own a producer id"),
        (15, Sense.HISTORY, ("shard:0",), ("application:x",), False, "its ids lie everywhere"),
        (16, Sense.GROUPS, ("__consumer_offsets-7",), ("group:g",), False, "its part of the log"),
        (20, Sense.AUDITS, ("pipeline:a",), ("pipeline:a", "query:q"), False, "its manifests are torn"),
        (21, Sense.AUDITS, ("pipeline:a",), ("pipeline:b", "query:q"), True, "another one's are"),
    ],
)
def test_a_sense_covers_what_no_gap_hides(
    number: int, sense: Sense, hidden: tuple[str, ...], things: tuple[str, ...], sees: bool, why: str
) -> None:
    sight = Visibility({sense: frozenset(hidden)}, PLACES)
    assert sight.covers([sense], *things) is sees, f"case {number}: {why}"


def test_every_needed_sense_must_be_available() -> None:
    sight = Visibility({Sense.PARTITIONS: frozenset({"cluster"})}, PLACES)
    assert sight.covers([Sense.TRANSACTIONS], "partition:a-0")
    assert not sight.covers([Sense.TRANSACTIONS, Sense.PARTITIONS], "partition:a-0")


def hidden(**facts: object) -> dict[Sense, frozenset[str]]:
    found = snapshot(**facts).visibility(now_ms=NOW_MS, limits=LIMITS).hidden
    return {sense: scopes for sense, scopes in found.items() if scopes}


def test_nothing_is_hidden_while_all_collectors_are_on_time() -> None:
    assert hidden() == {}


def test_a_sense_without_a_collector_is_unavailable() -> None:
    assert hidden(collectors=(TAIL,)) == {
        sense: frozenset({"cluster"})
        for sense in (Sense.PARTITIONS, Sense.GROUPS, Sense.LISTS, Sense.QUERIES, Sense.AUDITS, Sense.FLINK)
    }


def test_a_collector_that_never_polled_hides_everything() -> None:
    """Not even in its first seconds: what it found so far is not all there is."""
    new = collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=None, since_s_ago=1)
    assert hidden(collectors=(new, *ALL_COLLECTORS[1:]))[Sense.TRANSACTIONS] == {"cluster"}


def test_a_tail_among_several_hides_its_own_part() -> None:
    tails = [
        collector(f"transaction_state-{n}", Sense.TRANSACTIONS, Sense.HISTORY, scope=f"shard:{n}")
        for n in range(3)
    ]
    found = hidden(collectors=(*tails, *ALL_COLLECTORS[1:]), gaps=(gap("transaction_state-2"),))
    assert found == {sense: frozenset({"shard:2"}) for sense in (Sense.TRANSACTIONS, Sense.HISTORY)}


def test_a_gap_of_a_removed_collector_hides_nothing() -> None:
    assert hidden(gaps=(gap("transaction_state-7"),)) == {}


def test_a_collector_with_a_part_hidden_hides_that_part_alone() -> None:
    facts = {"gaps": (gap("groups", "group:secret"),)}
    assert hidden(**facts) == {Sense.GROUPS: frozenset({"group:secret"})}
    told = {each.rule for each in evaluate_rules(snapshot(**facts), now_ms=NOW_MS, limits=LIMITS)}
    assert told == set(), "neither late nor, so soon, a gap worth a word"


@pytest.mark.parametrize("seen_s_ago", [1, 600])
def test_partial_lists_are_current_and_what_depends_on_them_is_unavailable(seen_s_ago: float) -> None:
    alone = collector(
        "reconcile",
        Sense.LISTS,
        Sense.TRANSACTIONS,
        seen_s_ago=seen_s_ago,
        unseen=("broker 2: loading",),
    )
    found = hidden(collectors=(alone, *ALL_COLLECTORS[1:3], CHECKPOINTS, AUDITS, FLINK))
    assert found == {Sense.TRANSACTIONS: frozenset({"cluster"}), Sense.HISTORY: frozenset({"cluster"})}


def test_findings_of_a_removed_rule_can_close() -> None:
    everything = Visibility({sense: frozenset({"cluster"}) for sense in Sense})
    assert rules.covers_finding(everything, "a_rule_of_another_version", "transaction:t", ())
    assert rules.covers_finding(everything, "collector_gap", "collector:partitions", ())
    assert not rules.covers_finding(everything, "coordinator_overdue", "transaction:t", ())


def test_a_rule_with_too_many_findings_reports_the_oldest() -> None:
    many = tuple(transaction(100 + n, timeout_s=3_600, name=f"t-{n}") for n in range(MOST_FINDINGS + 50))
    all_findings = evaluate_rules(snapshot(transactions=many), now_ms=NOW_MS, limits=Limits())
    found = [each for each in all_findings if each.rule == "open_too_long"]
    assert len(found) == MOST_FINDINGS
    assert "transaction:t-50" in {each.subject for each in found}
    assert "transaction:t-49" not in {each.subject for each in found}


def test_every_rule_carries_its_own_name() -> None:
    assert all(name == rule.name == rule.check.__name__ for name, rule in RULES.items())


@pytest.mark.parametrize(
    ("number", "seen_s_ago", "since_s_ago", "expected_s", "gap_s_ago", "why"),
    [
        (1, 5, 900, 5, None, "as old as it may be"),
        (2, 5.1, 900, 5, 5.1, "a tail that reads nothing newer"),
        (3, 240, 900, 30, 240, "gaps were once empty while as_of stood still for four minutes"),
        (4, 29, 900, 30, None, "a poller between two polls"),
        (5, None, 900, 30, 900, "its first poll is not complete: since it came to be"),
        (6, None, 20, 30, None, "it has just begun"),
        (7, -3, 900, 5, None, "another host's clock is ahead"),
    ],
)
def test_a_stale_source_is_a_gap(
    number: int,
    seen_s_ago: float | None,
    since_s_ago: float,
    expected_s: float,
    gap_s_ago: float | None,
    why: str,
) -> None:
    found = stale_gap(
        "prod",
        "groups",
        seen_through_ms=None if seen_s_ago is None else ago(seen_s_ago),
        since_ms=ago(since_s_ago),
        expected_ms=int(expected_s * 1_000),
        now_ms=NOW_MS,
        reason="its worker is away",
    )
    wanted = None
    if gap_s_ago is not None:
        wanted = VisibilityGap("prod", "groups", "cluster", ago(gap_s_ago), None, "its worker is away")
    assert found == wanted, f"case {number}: {why}"


@pytest.mark.parametrize("collector", ALL_COLLECTORS, ids=lambda each: each.name)
def test_a_stale_source_suppresses_rules_like_a_gap(collector: CollectorStatus) -> None:
    """The instant at which a gap begins is the one from which on rules are suppressed: one limit for both."""
    reads_on = not collector.senses.isdisjoint({Sense.TRANSACTIONS, Sense.HISTORY})
    limit_ms = expected_ms(LIMITS, reads_on=reads_on)
    for late_ms, is_hidden in ((limit_ms, False), (limit_ms + 1, True)):
        late = replace(collector, seen_through_ms=NOW_MS - late_ms)
        others = tuple(each for each in ALL_COLLECTORS if each.name != collector.name)
        sight = snapshot(collectors=(*others, late)).visibility(now_ms=NOW_MS, limits=LIMITS)
        for sense in collector.senses:
            assert (sight.hidden[sense] == {"cluster"}) is is_hidden, (collector.name, late_ms)
