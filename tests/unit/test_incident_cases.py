"""Proves whole cases tick by tick, from findings to numbers: causes that overlap, that share a partition,
that are found after their effects, that come and go; which things and which deadline an incident has."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from fenceline.facts import Finding, Severity
from fenceline.incidents.causality import ThingLinks
from fenceline.incidents.findings import key_of
from fenceline.incidents.grouping import NO_LINKS, IncidentGroup, group_findings
from fenceline.incidents.impact import (
    ImpactFigures,
    first_deadline,
    impact_of,
    incident_severity,
)
from fenceline.incidents.lifecycle import SETTLE_MS, returning_causes
from fenceline.limits import Limits
from tests.cases import cases
from tests.unit.test_incident_lifecycle import Deployment

S = 1_000
#: What is open in a tick, and the incidents after it: number -> (cause, effects), each `rule name`.
Expected = dict[int, tuple[str, Collection[str]]]


class Tick(NamedTuple):
    findings: Sequence[Finding]
    expected: Expected


def finding(
    rule: str,
    subject: str,
    *affected: str,
    severity: Severity = Severity.WARNING,
    ends_ms: int | None = None,
    instance: str = "",
) -> Finding:
    return Finding(rule, "prod", subject, severity, None, "s", "e", "n", affected, ends_ms, instance)


def name_of(key: tuple[str, str]) -> str:
    return " ".join(key)


class FoundIncidents(Deployment):
    """Incidents of findings, which each tick groups as the evaluation does."""

    def __init__(self, links: ThingLinks = NO_LINKS) -> None:
        super().__init__()
        self.links = links

    def find(self, *findings: Finding, after_ms: int = S) -> None:
        now_ms = self.now_ms + after_ms
        self.instances = {each.subject: each.instance for each in findings}
        groups = group_findings(findings, self.links, returning_causes(self.lately(now_ms), now_ms=now_ms))
        self.follow(groups, Severity.WARNING, after_ms, {key_of(each) for each in findings})

    @property
    def named(self) -> Expected:
        """What is open, by number; the rule before each subject."""
        return {
            number: (name_of(row.cause), {name_of(each) for each in row.effects})
            for number, row in self.rows.items()
            if row.closed_ms is None
        }


Q, SINK, OUT = "query:enrich", "transaction:enrich-1a2b-p0", "partition:out-0"
GHOST, STOCK = "transaction:stock-sync-3", "partition:stock-0"
LOST, BILLING, AUDIT = "partition:lost-0", "group:billing", "group:audit"

PREPARED = finding("batch_prepared", Q, SINK, ends_ms=900 * S)
SINK_OPEN = finding("open_too_long", SINK, OUT, ends_ms=900 * S)
OUT_STUCK = finding("lso_pinned", OUT, BILLING)
ABANDONED = finding("open_too_long", GHOST, STOCK, ends_ms=600 * S)
STOCK_STUCK = finding("lso_pinned", STOCK, BILLING)
HANGING = finding("hanging", LOST, BILLING)
#: Blocked in all three places, by all three causes.
BLOCKED = finding("group_stalled", BILLING, OUT, STOCK, LOST, SINK, GHOST)
CRASH = {name_of(key_of(each)) for each in (SINK_OPEN, OUT_STUCK)}
BILLING_BLOCKED = "group_stalled group:billing"
GHOST_OPEN, ENRICH_OPEN = f"open_too_long {GHOST}", f"open_too_long {SINK}"
BATCH, BATCH_LOST, LOST_HANGS = f"batch_prepared {Q}", f"batch_lost {Q}", f"hanging {LOST}"
OUT_PINNED, STOCK_PINNED = f"lso_pinned {OUT}", f"lso_pinned {STOCK}"

LOST_BATCH = replace(finding("batch_lost", Q), since_ms=41)
VIOLATED = replace(finding("audit_violated", "pipeline:enrich", Q, "partition:orders-0"), since_ms=41)
OTHER_BATCH = replace(VIOLATED, since_ms=40)
VIOLATION = "audit_violated pipeline:enrich"

CASES: dict[str, list[Tick]] = {
    "an audit that finds the lost batch is its effect, and one that finds another batch is no effect": [
        Tick([LOST_BATCH], {1: (BATCH_LOST, set())}),
        Tick([LOST_BATCH, VIOLATED], {1: (BATCH_LOST, {VIOLATION})}),
        Tick([LOST_BATCH, OTHER_BATCH], {1: (BATCH_LOST, set()), 2: (VIOLATION, set())}),
    ],
    "three causes that begin and end one after another keep their numbers": [
        Tick([ABANDONED], {1: (GHOST_OPEN, set())}),
        Tick(
            [ABANDONED, HANGING, BLOCKED],
            {1: (GHOST_OPEN, {BILLING_BLOCKED}), 2: (LOST_HANGS, {BILLING_BLOCKED})},
        ),
        Tick(
            [ABANDONED, HANGING, PREPARED, SINK_OPEN, BLOCKED],
            {
                1: (GHOST_OPEN, {BILLING_BLOCKED}),
                2: (LOST_HANGS, {BILLING_BLOCKED}),
                3: (BATCH, {ENRICH_OPEN, BILLING_BLOCKED}),
            },
        ),
        Tick(
            [HANGING, PREPARED, SINK_OPEN, BLOCKED],
            {2: (LOST_HANGS, {BILLING_BLOCKED}), 3: (BATCH, {ENRICH_OPEN, BILLING_BLOCKED})},
        ),
        Tick([HANGING, BLOCKED], {2: (LOST_HANGS, {BILLING_BLOCKED})}),
        Tick([], {}),
    ],
    "an effect found first waits under its own name, then each of its causes has an incident": [
        Tick([BLOCKED], {1: (BILLING_BLOCKED, set())}),
        Tick([OUT_STUCK, BLOCKED], {1: (OUT_PINNED, {BILLING_BLOCKED})}),
        Tick([OUT_STUCK, BLOCKED, SINK_OPEN], {1: (ENRICH_OPEN, {OUT_PINNED, BILLING_BLOCKED})}),
        Tick([OUT_STUCK, BLOCKED, SINK_OPEN, PREPARED], {1: (BATCH, {*CRASH, BILLING_BLOCKED})}),
        Tick(
            [OUT_STUCK, BLOCKED, SINK_OPEN, PREPARED, ABANDONED],
            {1: (BATCH, {*CRASH, BILLING_BLOCKED}), 2: (GHOST_OPEN, {BILLING_BLOCKED})},
        ),
    ],
    "another cause on the same partition is another incident, however soon": [
        Tick([ABANDONED, STOCK_STUCK], {1: (GHOST_OPEN, {STOCK_PINNED})}),
        Tick([], {}),
        Tick([STOCK_STUCK], {2: (STOCK_PINNED, set())}),
        Tick(
            [STOCK_STUCK, finding("open_too_long", "transaction:other", STOCK)],
            {2: ("open_too_long transaction:other", {STOCK_PINNED})},
        ),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    prod = FoundIncidents()
    for number, tick in enumerate(CASES[name], 1):
        prod.find(*tick.findings)
        assert prod.named == tick.expected, f"after tick {number}"


def test_what_the_next_batch_holds_does_not_follow_from_one_that_is_over() -> None:
    """Batch 43 is over and its group still blocked when transactions of batch 44 are open for too long."""
    blocked, again = finding("group_stalled", BILLING, OUT), finding("open_too_long", SINK, instance="5@2")
    prod = FoundIncidents(ThingLinks({Q: [SINK]}, instances={Q: "batch 44"}))
    prod.find(replace(PREPARED, instance="batch 43"), replace(SINK_OPEN, instance="5@1"), blocked)
    prod.find(blocked)
    prod.find(blocked, again)
    assert prod.named == {
        1: ("batch_prepared query:enrich", {"group_stalled group:billing"}),
        2: (f"open_too_long {SINK}", set()),
    }


def test_an_effect_whose_cause_is_over_becomes_a_cause_of_its_own() -> None:
    prod = FoundIncidents(ThingLinks({Q: [SINK]}))
    prod.find(PREPARED, SINK_OPEN)
    prod.find(SINK_OPEN)
    assert prod.rows[1].cause_over_ms == prod.now_ms
    prod.find(SINK_OPEN, after_ms=SETTLE_MS)
    assert prod.named == {1: ("open_too_long transaction:enrich-1a2b-p0", set())}
    assert len(prod.rows) == 1


def test_what_an_open_finding_explains_reopens_nothing() -> None:
    prod = FoundIncidents(ThingLinks({Q: [SINK]}))
    prod.find(PREPARED, SINK_OPEN)
    prod.find()
    failed = finding("query_failed", Q)
    prod.find(failed, SINK_OPEN)
    assert prod.named == {2: ("query_failed query:enrich", {"open_too_long transaction:enrich-1a2b-p0"})}


def groups(*findings: Finding) -> dict[str, tuple[IncidentGroup, list[Finding]]]:
    by_key = {key_of(each): each for each in findings}
    return {
        name_of(group.cause): (group, [by_key[key] for key in (group.cause, *group.effects)])
        for group in group_findings(findings)
    }


def test_each_of_two_causes_counts_its_own_things_and_its_own_deadline() -> None:
    """The group that both block names both partitions and both transactions: each belongs to one of them."""
    other = finding("open_too_long", "transaction:refunds-1", "partition:refunds-1", ends_ms=120 * S)
    blocked = finding("group_stalled", BILLING, STOCK, "partition:refunds-1", GHOST, "transaction:refunds-1")
    figures = ImpactFigures({STOCK: 400, "partition:refunds-1": 7})
    for name, (backlog, ends_ms) in {
        f"open_too_long {GHOST}": (400, 600 * S),
        "open_too_long transaction:refunds-1": (7, 120 * S),
    }.items():
        group, members = groups(ABANDONED, other, blocked)[name]
        impact = impact_of(group.cause, members, figures)
        assert (impact.transactions, impact.partitions, impact.groups) == (1, 1, 1), name
        assert (impact.backlog, first_deadline(members)) == (backlog, ends_ms), name


def test_a_reader_that_nothing_explains_counts_what_blocks_it() -> None:
    group, members = groups(finding("group_stalled", BILLING, STOCK, GHOST))[BILLING_BLOCKED]
    impact = impact_of(group.cause, members, ImpactFigures({STOCK: 400}))
    assert (impact.transactions, impact.partitions, impact.groups, impact.backlog) == (1, 1, 1, 400)


@cases(
    (9, 100, Severity.WARNING, Severity.WARNING),
    (10, 100, Severity.WARNING, Severity.CRITICAL),
    (1, 10_000, Severity.WARNING, Severity.CRITICAL),
    (0, 10_000, Severity.WARNING, Severity.WARNING),
    (0, 10_000, Severity.INFO, Severity.INFO),
    (1, 5, Severity.CRITICAL, Severity.CRITICAL),
)
def test_what_is_a_warning_in_each_place_is_critical_where_it_adds_up(
    readers: int, backlog: int, cause: Severity, severity: Severity
) -> None:
    found = [finding("open_too_long", GHOST, STOCK, severity=cause)]
    found += [
        finding("group_stalled", f"group:g{number}", STOCK, severity=cause) for number in range(readers)
    ]
    impact = impact_of(key_of(found[0]), found, ImpactFigures({STOCK: backlog}))
    assert incident_severity(found, impact, limits=Limits()) is severity
