"""Proves what a gap hides of a cluster, so that rules say nothing; the rules about visibility; and the
severity of a finding, a function of the damage so far and of the time that is left."""

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


def test_every_needed_sense_must_be_available_but_findings_of_a_removed_rule_can_close() -> None:
    sight = Visibility({Sense.PARTITIONS: WHOLE}, PLACES)
    assert sight.covers([Sense.TRANSACTIONS], "partition:a-0")
    assert not sight.covers([Sense.TRANSACTIONS, Sense.PARTITIONS], "partition:a-0")
    nothing = Visibility(dict.fromkeys(Sense, WHOLE))
    assert rules.covers_finding(nothing, "a_rule_of_another_version", "transaction:t", ())
    assert rules.covers_finding(nothing, "collector_gap", "collector:partitions", ())
    assert not rules.covers_finding(nothing, "coordinator_overdue", "transaction:t", ())


def hidden(**facts: object) -> dict[Sense, frozenset[str]]:
    found = snapshot(**facts).visibility(now_ms=NOW_MS, limits=LIMITS).hidden
    return {sense: scopes for sense, scopes in found.items() if scopes}


TAILS = [
    collector(f"transaction_state-{n}", Sense.TRANSACTIONS, Sense.HISTORY, scope=f"shard:{n}")
    for n in range(3)
]
NEVER_POLLED = collector("transaction_state", *TAIL.senses, seen_s_ago=None, since_s_ago=1)
OTHERS = ALL_COLLECTORS[1:]
WHOLE, SHARD_2 = frozenset({"cluster"}), frozenset({"shard:2"})


@cases(
    ({}, {}, "all collectors are on time"),
    ({"collectors": (TAIL,)}, dict.fromkeys(set(Sense) - TAIL.senses, WHOLE), "no collector has that sense"),
    # Not even in its first seconds: what it found so far is not all there is.
    ({"collectors": (NEVER_POLLED, *OTHERS)}, dict.fromkeys(TAIL.senses, WHOLE), "it never polled"),
    (
        {"collectors": (*TAILS, *OTHERS), "gaps": (gap("transaction_state-2"),)},
        dict.fromkeys(TAIL.senses, SHARD_2),
        "a tail among several hides its own part",
    ),
    ({"gaps": (gap("transaction_state-7"),)}, {}, "the gap of a removed collector"),
)
def test_what_collectors_do_not_see_is_hidden(
    facts: dict[str, object], scopes: dict[Sense, frozenset[str]], why: str
) -> None:
    assert hidden(**facts) == scopes, why


@pytest.mark.parametrize("seen_s_ago", [1, 600])
def test_partial_lists_are_current_and_what_depends_on_them_is_unavailable(seen_s_ago: float) -> None:
    senses = Sense.LISTS, Sense.TRANSACTIONS
    alone = collector("reconcile", *senses, seen_s_ago=seen_s_ago, unseen=("broker 2: loading",))
    found = hidden(collectors=(alone, *ALL_COLLECTORS[1:3], CHECKPOINTS, AUDITS, FLINK))
    assert found == dict.fromkeys(TAIL.senses, WHOLE)


def test_a_collector_with_a_part_hidden_hides_that_part_alone() -> None:
    facts = {"gaps": (gap("groups", "group:secret"),)}
    assert hidden(**facts) == {Sense.GROUPS: frozenset({"group:secret"})}
    told = {each.rule for each in evaluate_rules(snapshot(**facts), now_ms=NOW_MS, limits=LIMITS)}
    assert told == set(), "neither late nor, so soon, a gap worth a word"


def test_a_rule_with_too_many_findings_reports_the_oldest() -> None:
    assert all(name == rule.name == rule.check.__name__ for name, rule in RULES.items())
    many = tuple(transaction(100 + n, timeout_s=3_600, name=f"t-{n}") for n in range(MOST_FINDINGS + 50))
    found = findings_of("open_too_long", transactions=many)
    assert len(found) == MOST_FINDINGS
    assert {"transaction:t-50", "transaction:t-49"} & {each.subject for each in found} == {"transaction:t-50"}


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
    seen_ms = None if seen_s_ago is None else ago(seen_s_ago)
    times = {"seen_through_ms": seen_ms, "since_ms": ago(since_s_ago), "expected_ms": int(expected_s * 1_000)}
    found = stale_gap("groups", **times, now_ms=NOW_MS, reason="its worker is away")
    begun_ms = found.since_ms if found else None
    assert begun_ms == (None if gap_s_ago is None else ago(gap_s_ago)), why
    assert found in (None, VisibilityGap("groups", "cluster", begun_ms, "its worker is away"))


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


def test_an_outage_of_a_whole_kind_is_more_severe_once_it_lasts_and_the_worst_severity_is_chosen() -> None:
    for lasts_s, severity in ((0, WARNING), (300, WARNING), (300.5, CRITICAL)):
        assert lasting_severity(ago(lasts_s), now_ms=NOW_MS, limits=LIMITS) is severity
    assert worst_severity([INFO, CRITICAL, WARNING]) is CRITICAL
    assert worst_severity([]) is INFO
