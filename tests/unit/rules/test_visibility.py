"""Proves the mechanism that suppresses rules: what a gap hides, and what stays available; by cases
the rules about visibility: brokers that do not answer, parts that are hidden; and the severity of a
finding, a function of the damage so far and of the time that is left."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import rules
from fenceline.facts import Severity, VisibilityGap
from fenceline.findings import (
    Impact,
    Sense,
    Visibility,
    before_loss,
    expected_ms,
    lasting_severity,
    of_block,
    stale_gap,
    worst_severity,
)
from fenceline.limits import Limits
from fenceline.rules import MOST_FINDINGS, RULES, evaluate_rules
from fenceline.snapshot import CollectorStatus
from tests.cases import cases
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
    findings_of,
    gap,
    snapshot,
    transaction,
)

PLACES = {
    "partition:a-0": frozenset({"broker:1", "topic:a"}),
    "group:g": frozenset({"broker:1", "__consumer_offsets-7"}),
    "transaction:t": frozenset({"shard:1"}),
}


@cases(
    (Sense.PARTITIONS, (), ("partition:a-0",), True, "nothing is hidden"),
    (Sense.PARTITIONS, ("cluster",), ("partition:a-0",), False, "everything is"),
    (Sense.PARTITIONS, ("partition:a-0",), ("partition:a-0",), False, "it is, by name"),
    (Sense.PARTITIONS, ("partition:a-1",), ("partition:a-0",), True, "its neighbour is"),
    (Sense.PARTITIONS, ("broker:1",), ("partition:a-0",), False, "its leader does not answer"),
    (Sense.PARTITIONS, ("broker:2",), ("partition:a-0",), True, "another broker does not"),
    (Sense.PARTITIONS, ("broker:2",), ("partition:b-0",), False, "nobody knows where it lies"),
    (Sense.PARTITIONS, ("partition:a-1",), ("partition:b-0",), True, "names need no place"),
    (Sense.PARTITIONS, ("partition:a-1",), ("group:g",), False, "about no partition: must see all"),
    (Sense.PARTITIONS, ("partition:a-1",), ("group:g", "partition:a-0"), True, "about this one"),
    (Sense.PARTITIONS, ("partition:a-1",), ("partition:a-0", "partition:a-1"), False, "about both"),
    (Sense.PARTITIONS, ("topic:a",), ("partition:a-0",), False, "its topic may not be described"),
    (Sense.PARTITIONS, ("topic:b",), ("partition:a-0",), True, "another topic may not"),
    (Sense.PARTITIONS, ("the cellar",), ("partition:a-0",), False, "nobody knows what that hides"),
    (Sense.TRANSACTIONS, ("shard:0",), ("transaction:t",), True, "another tail's"),
    (Sense.TRANSACTIONS, ("shard:1",), ("transaction:t",), False, "its own tail's"),
    (Sense.TRANSACTIONS, ("shard:0",), ("partition:a-0",), False, "any id may own a producer id"),
    (Sense.HISTORY, ("shard:0",), ("application:x",), False, "its ids lie everywhere"),
    (Sense.GROUPS, ("__consumer_offsets-7",), ("group:g",), False, "its part of the log"),
    (Sense.AUDITS, ("pipeline:a",), ("pipeline:a", "query:q"), False, "its manifests are torn"),
    (Sense.AUDITS, ("pipeline:a",), ("pipeline:b", "query:q"), True, "another one's are"),
)
def test_a_sense_covers_what_no_gap_hides(
    sense: Sense, hidden: tuple[str, ...], things: tuple[str, ...], sees: bool, why: str
) -> None:
    sight = Visibility({sense: frozenset(hidden)}, PLACES)
    assert sight.covers([sense], *things) is sees, why


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


@cases(
    (5, 900, 5, None, "as old as it may be"),
    (5.1, 900, 5, 5.1, "a tail that reads nothing newer"),
    (240, 900, 30, 240, "gaps were once empty while as_of stood still for four minutes"),
    (29, 900, 30, None, "a poller between two polls"),
    (None, 900, 30, 900, "its first poll is not complete: since it came to be"),
    (None, 20, 30, None, "it has just begun"),
    (-3, 900, 5, None, "another host's clock is ahead"),
)
def test_a_stale_source_is_a_gap(
    seen_s_ago: float | None, since_s_ago: float, expected_s: float, gap_s_ago: float | None, why: str
) -> None:
    found = stale_gap(
        "groups",
        seen_through_ms=None if seen_s_ago is None else ago(seen_s_ago),
        since_ms=ago(since_s_ago),
        expected_ms=int(expected_s * 1_000),
        now_ms=NOW_MS,
        reason="its worker is away",
    )
    wanted = None
    if gap_s_ago is not None:
        wanted = VisibilityGap("groups", "cluster", ago(gap_s_ago), "its worker is away")
    assert found == wanted, why


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


LOADING = "broker 2: it is still loading its part of __transaction_state; it will answer soon"


@cases(
    (collector("reconcile", Sense.LISTS, seen_s_ago=9.9, unseen=(LOADING,)), False, "just started"),
    (collector("reconcile", Sense.LISTS, seen_s_ago=10.1, unseen=(LOADING,)), True, "too long"),
    (collector("reconcile", Sense.LISTS, seen_s_ago=900), False, "all answered"),
    (collector("reconcile", Sense.LISTS, seen_s_ago=900, unseen=(LOADING,)), True, "still"),
    (collector("reconcile", Sense.LISTS, seen_s_ago=900, unseen=("x",), error="e"), False, "blind itself"),
)
def test_coordinator_loading(status: CollectorStatus, is_told: bool, why: str) -> None:
    told = findings_of("coordinator_loading", collectors=(TAIL, status))
    # A coordinator that loads for five minutes keeps its producers from all work.
    how_bad = "critical" if status.blind_since_ms < ago(300) else "warning"
    assert [each.severity.value for each in told] == ([how_bad] if is_told else []), why


def test_coordinator_loading_names_the_broker() -> None:
    status = collector("reconcile", Sense.LISTS, seen_s_ago=60, unseen=(LOADING,))
    (finding,) = findings_of("coordinator_loading", collectors=(TAIL, status))
    assert finding.summary == "broker 2 does not answer for transactional ids"
    assert (finding.since_ms, finding.evidence) == (ago(60), LOADING)
    assert finding.affected == ("broker:2",)
    assert not findings_of("coordinator_loading", collectors=(TAIL, status), gaps=(gap("reconcile"),))


def test_a_broker_that_pollers_miss_is_the_same_finding() -> None:
    """It is no longer listed, and asked for nothing, once the others have taken over."""
    seen = collector("reconcile", Sense.LISTS, seen_s_ago=1)
    polled = gap("partitions", "broker:2", since_s_ago=30)
    (finding,) = findings_of("coordinator_loading", collectors=(TAIL, seen), gaps=(polled,))
    assert finding.summary == "broker 2 does not answer"
    assert (finding.since_ms, finding.affected) == (ago(30), ("broker:2",))
    fresh = gap("partitions", "broker:2", since_s_ago=9)
    assert not findings_of("coordinator_loading", collectors=(TAIL, seen), gaps=(fresh,))
    listed = collector("reconcile", Sense.LISTS, seen_s_ago=60, unseen=(LOADING,))
    (both,) = findings_of("coordinator_loading", collectors=(TAIL, listed), gaps=(polled,))
    assert (both.since_ms, both.affected) == (ago(60), ("broker:2",))


@cases(
    ("partition:secret-0", 60, False, "the limit itself is within"),
    ("partition:secret-0", 61, True, "hidden for long"),
    ("cluster", 900, False, "System shows a collector that sees nothing"),
)
def test_gap(scope: str, since_s: float, is_told: bool, why: str) -> None:
    told = findings_of("collector_gap", gaps=(gap("partitions", scope, since_s_ago=since_s),))
    assert [each.severity.value for each in told] == (["warning"] if is_told else []), why


def test_gaps_of_one_collector_are_one_finding() -> None:
    gaps = [gap("partitions", f"partition:secret-{n}", since_s_ago=70 + n) for n in range(50)]
    (first, second) = findings_of("collector_gap", gaps=(*gaps, gap("groups", "group:x", since_s_ago=90)))
    assert (first.subject, first.since_ms) == ("collector:partitions", ago(119))
    assert first.summary == (
        "partitions cannot observe partition:secret-49, partition:secret-48, partition:secret-47 and 47 more"
    )
    assert second.subject == "collector:groups"


INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
ORDER = (INFO, WARNING, CRITICAL)


class Case(NamedTuple):
    """A block that began so many seconds ago, and how bad it is."""

    title: str
    severity: Severity
    since_s: float = 90
    readers: int = 1
    #: For how many seconds the first reader has been blocked.
    blocked_s: float | None = 90
    records: int = 50
    #: In how many seconds after its beginning a coordinator ends it; None where nothing does.
    ends_s: float | None = 600
    is_usual: bool = False


CASES = (
    # 1-4: nobody is known to be blocked.
    Case("nobody reads it", INFO, readers=0, blocked_s=None),
    Case("nobody reads it, and nothing ends it", INFO, readers=0, blocked_s=None, ends_s=None),
    Case("nobody is known to read it for 5 minutes", INFO, 300, 0, None),
    Case("and longer: not every reader commits to a group", WARNING, 300.1, 0, None),
    # 5-7: a reader, for how long.
    Case("a group came to the LSO a minute ago", INFO, 90, 1, 60),
    Case("a moment longer", WARNING, 90, 1, 60.1),
    Case("five minutes", WARNING, 300, 1, 300),
    Case("longer", CRITICAL, 301, 1, 300.1),
    # This was once "info".
    Case("1,465 records, a group stopped for 7 minutes", CRITICAL, 430, 1, 420, 1_465),
    # 10-14: a heavy block is critical as soon as it is more than a note.
    Case("9,999 records", WARNING, records=9_999),
    Case("10,000 records", CRITICAL, records=10_000),
    Case("10,000 records, for half a minute", INFO, blocked_s=30, records=10_000),
    Case("ten groups and queries", CRITICAL, readers=10),
    Case("nine", WARNING, readers=9),
    # 15-17: the time that is left.
    Case("nothing will ever end it", CRITICAL, ends_s=None),
    Case("its timeout is an hour", CRITICAL, ends_s=3_600),
    Case("its timeout is a quarter of an hour", WARNING, ends_s=900),
    # 18: usual work.
    Case("its application's transactions take so long", INFO, 430, 3, 420, 20_000, is_usual=True),
)


def impact(case: Case, readers: int | None = None) -> Impact:
    since_ms = NOW_MS - int(case.since_s * 1_000)
    return Impact(
        since_ms=since_ms,
        readers=case.readers,
        blocked_ms=None if case.blocked_s is None else NOW_MS - int(case.blocked_s * 1_000),
        records=case.records,
        ends_ms=None if case.ends_s is None else since_ms + int(case.ends_s * 1_000),
        is_usual=case.is_usual,
    )


@pytest.mark.parametrize("case", CASES, ids=[f"{n}: {case.title}" for n, case in enumerate(CASES, 1)])
def test_a_blocker_has_the_severity_of_its_impact(case: Case) -> None:
    assert of_block(impact(case), now_ms=NOW_MS, limits=LIMITS) is case.severity


@given(
    since_s=st.integers(0, 4_000),
    readers=st.integers(0, 20),
    records=st.integers(0, 30_000),
    ends_s=st.none() | st.integers(1, 4_000),
    more_s=st.integers(0, 4_000),
    more_records=st.integers(0, 30_000),
)
def test_severity_never_falls_while_a_block_lasts(
    since_s: int, readers: int, records: int, ends_s: int | None, more_s: int, more_records: int
) -> None:
    """An alert that resolves and fires again as the end comes nearer would be of no use."""
    case = Case("", INFO, since_s, readers, since_s if readers else None, records, ends_s)
    first = of_block(impact(case), now_ms=NOW_MS, limits=LIMITS)
    grown = impact(case)._replace(records=records + more_records)
    later = of_block(grown, now_ms=NOW_MS + 1_000 * more_s, limits=LIMITS)
    assert ORDER.index(later) >= ORDER.index(first)


@cases((None, CRITICAL), (-5, CRITICAL), (0, CRITICAL), (600, CRITICAL), (601, WARNING))
def test_severity_of_a_loss_grows_as_it_approaches(left_s: int | None, severity: Severity) -> None:
    loss_ms = None if left_s is None else NOW_MS + left_s * 1_000
    assert before_loss(loss_ms, now_ms=NOW_MS, limits=LIMITS) is severity


@pytest.mark.parametrize(("lasts_s", "severity"), [(0, WARNING), (300, WARNING), (300.5, CRITICAL)])
def test_an_outage_of_a_whole_kind_is_more_severe_once_it_lasts(lasts_s: float, severity: Severity) -> None:
    assert lasting_severity(NOW_MS - int(lasts_s * 1_000), now_ms=NOW_MS, limits=LIMITS) is severity


def test_the_worst_severity_is_chosen() -> None:
    assert worst_severity([INFO, CRITICAL, WARNING]) is CRITICAL
    assert worst_severity([]) is INFO
