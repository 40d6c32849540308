"""Proves the rules about groups by numbered cases: which group is blocked, by what, and when its status is
unknown.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline.kafka.groups import Waiting
from fenceline.snapshot import BlockedOffset, Blocker
from tests.unit.rules.factories import (
    BLOCKER,
    ago,
    blocked_group,
    blocked_offset,
    finding_severities,
    findings_of,
    gap,
    pending_offset,
    transaction,
    with_stale_collector,
)


@pytest.mark.parametrize(
    ("number", "offset", "is_stalled", "why"),
    [
        (1, blocked_offset(60), False, "the limit itself is within"),
        (2, blocked_offset(60.1), True, "it stands at the LSO, which somebody holds"),
        (3, blocked_offset(900, how=Waiting.READS_PAST), False, "it reads uncommitted"),
        (4, blocked_offset(900, how=Waiting.NOT_YET), False, "it has work before the LSO"),
        (5, blocked_offset(900, how=None), False, "nothing holds that partition"),
        (6, blocked_offset(None), False, "not known since when"),
    ],
)
def test_group_stalled(number: int, offset: BlockedOffset, is_stalled: bool, why: str) -> None:
    told = findings_of("group_stalled", groups=(blocked_group(offset),))
    assert [each.severity.value for each in told] == (["warning"] if is_stalled else []), f"{number}: {why}"


@pytest.mark.parametrize(
    ("number", "offset", "timeout_s", "severity", "why"),
    [
        (1, blocked_offset(70), 600, "warning", "its coordinator ends it within ten minutes"),
        (2, blocked_offset(301), 600, "critical", "for five minutes"),
        (3, blocked_offset(70), 3_600, "critical", "nothing ends it for an hour"),
        (4, blocked_offset(70, Blocker(4_900, "")), 600, "critical", "nobody is known to end it"),
        (5, replace(blocked_offset(70), behind=20_000), 600, "critical", "so many records"),
    ],
)
def test_group_stalled_severity_grows_with_the_damage(
    number: int, offset: BlockedOffset, timeout_s: float, severity: str, why: str
) -> None:
    facts = {"groups": (blocked_group(offset),), "transactions": (transaction(90, timeout_s=timeout_s),)}
    assert finding_severities("group_stalled", **facts) == [severity], f"case {number}: {why}"


def test_group_stalled_names_the_blocker() -> None:
    nameless = Blocker(4_900, "")
    (finding,) = findings_of(
        "group_stalled",
        groups=(blocked_group(blocked_offset(90), blocked_offset(70, nameless, partition=3)),),
    )
    assert finding.subject == "group:billing"
    assert finding.since_ms == ago(90)
    assert finding.summary == "billing is blocked at the LSO of payments-0 and payments-3"
    assert "blocked by producer id 4900 and payments-7" in finding.evidence
    assert finding.affected == (
        "partition:payments-0",
        "partition:payments-3",
        "transaction:payments-7",
    )


PENDING = BLOCKER._replace(pending=True)
YOUNG = PENDING._replace(transactional_id="young")


@pytest.mark.parametrize(
    ("number", "blockers", "age_s", "log_s", "since_s", "why"),
    [
        (1, (PENDING,), 29, None, None, "pending commits are everyday work"),
        (2, (PENDING,), 31, None, 31, "the transaction that holds them is open for long"),
        (3, (PENDING,), None, None, None, "how long is not known"),
        (4, (), None, 31, 31, "its partition of __consumer_offsets says how long"),
        (5, (), None, 29, None, "and that it is not long"),
        (6, (YOUNG,), 900, 900, None, "it is young, and another one holds the log"),
        (7, (YOUNG._replace(certain=False),), 900, 31, 31, "which one it is, is not sure"),
        (8, (YOUNG._replace(transactional_id=""),), 900, 31, 31, "which one it is, is not known"),
    ],
)
def test_offsets_unstable(
    number: int,
    blockers: tuple[Blocker, ...],
    age_s: float | None,
    log_s: float | None,
    since_s: float | None,
    why: str,
) -> None:
    held = blocked_group(pending_offset(*blockers), log_pinned_s_ago=log_s)
    told = findings_of("offsets_unstable", groups=(held,), transactions=(transaction(age_s),))
    assert [each.since_ms for each in told] == ([] if since_s is None else [ago(since_s)]), f"{number}: {why}"


def test_offsets_unstable_names_the_transaction_and_its_confidence() -> None:
    sure, unsure = (
        findings_of(
            "offsets_unstable",
            groups=(blocked_group(pending_offset(PENDING._replace(certain=certain))),),
            transactions=(transaction(90),),
        )[0]
        for certain in (True, False)
    )
    assert "are pending in payments-7" in sure.evidence
    assert "are pending, probably in payments-7" in unsure.evidence
    assert sure.affected == ("partition:orders-1", "transaction:payments-7")


def test_a_blocked_group_without_a_pending_commit_is_not_unstable() -> None:
    assert not findings_of(
        "offsets_unstable", groups=(blocked_group(blocked_offset(900), log_pinned_s_ago=900),)
    )


STALLED = {"groups": (blocked_group(blocked_offset(90)),)}
UNSTABLE = {"groups": (blocked_group(pending_offset(), log_pinned_s_ago=90),)}


@pytest.mark.parametrize(
    ("number", "rule", "facts", "source", "scope", "is_told", "why"),
    [
        (1, "group_stalled", STALLED, "groups", "cluster", False, "it may have gone on"),
        (2, "group_stalled", STALLED, "groups", "group:billing", False, "this one is hidden"),
        (3, "group_stalled", STALLED, "groups", "group:audit", True, "another one is"),
        (4, "group_stalled", STALLED, "groups", "broker:2", False, "its coordinator did not answer"),
        (5, "group_stalled", STALLED, "groups", "broker:1", True, "another one did not"),
        (6, "group_stalled", STALLED, "groups", "__consumer_offsets-7", False, "its part of the log"),
        (7, "group_stalled", STALLED, "groups", "__consumer_offsets-8", True, "another part"),
        (8, "group_stalled", STALLED, "partitions", "partition:payments-0", False, "the LSO may have moved"),
        (9, "group_stalled", STALLED, "partitions", "partition:payments-1", True, "not where it waits"),
        (
            10,
            "group_stalled",
            STALLED,
            "consumer_offsets",
            "__consumer_offsets-7",
            True,
            "it was asked itself",
        ),
        (
            11,
            "group_stalled",
            STALLED,
            "transaction_state",
            "cluster",
            True,
            "who waits is seen all the same",
        ),
        (12, "offsets_unstable", UNSTABLE, "groups", "group:billing", False, "this one is hidden"),
        (13, "offsets_unstable", UNSTABLE, "partitions", "cluster", True, "its coordinator says so itself"),
    ],
)
def test_a_rule_is_suppressed_by_gaps_in_what_it_needs(
    number: int, rule: str, facts: dict[str, object], source: str, scope: str, is_told: bool, why: str
) -> None:
    places = {
        "group:billing": frozenset({"broker:2", "__consumer_offsets-7"}),
        "partition:payments-0": frozenset({"broker:3"}),
    }
    told = findings_of(rule, **facts, gaps=(gap(source, scope),), places=places)
    assert bool(told) is is_told, f"case {number}: {why}"


@pytest.mark.parametrize(("rule", "facts"), [("group_stalled", STALLED), ("offsets_unstable", UNSTABLE)])
def test_a_late_collector_suppresses_findings_like_a_gap(rule: str, facts: dict[str, object]) -> None:
    assert findings_of(rule, **facts)
    assert not findings_of(rule, **facts, collectors=with_stale_collector("groups"))
