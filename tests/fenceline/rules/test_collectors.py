"""Proves the rules about our own sight by numbered cases: who cannot see what, and how much that matters."""

from __future__ import annotations

import pytest

from fenceline.sight import Sense
from fenceline.snapshot import CollectorStatus
from tests.fenceline.rules.build import ALL, GROUPS, PARTITIONS, TAIL, ago, collector, found, gap, severities


@pytest.mark.parametrize(
    ("number", "seen_s_ago", "error", "severity", "why"),
    [
        (1, 4.9, "", None, "within the limit"),
        (2, 5.1, "", "warning", "late, but it may be catching up"),
        (3, 5.1, "cannot reach it", "critical", "it cannot see"),
        (4, 1.0, "cannot reach it", None, "one failed look is not blindness yet"),
        (5, None, "", "warning", "never saw anything since it was made, an hour ago"),
    ],
)
def test_collector_behind(
    number: int, seen_s_ago: float | None, error: str, severity: str | None, why: str
) -> None:
    status = collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=seen_s_ago, error=error)
    told = severities("collector_behind", collectors=(status,))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "status", "severity", "missing", "why"),
    [
        (1, collector("partitions", Sense.PARTITIONS, seen_s_ago=29), None, "", "pollers look now and then"),
        (2, collector("partitions", Sense.PARTITIONS, seen_s_ago=31), "warning", "hanging", "no look"),
        (3, collector("groups", Sense.GROUPS, seen_s_ago=31, error="x"), "warning", "Lag", "cannot look"),
        (4, collector("consumer_offsets-1", seen_s_ago=31), "warning", "commit times", "a shard of the tail"),
        (5, collector("recoveries", seen_s_ago=31), "warning", "Episodes", "no episode is followed"),
        (6, collector("reconcile", Sense.LISTS, error="x"), "info", "nobody checks", "the log is read"),
        (7, collector("reconcile", Sense.LISTS, seen_s_ago=900), None, "", "its pace is its own"),
        (
            8,
            collector("transaction_state", Sense.HISTORY, error="no READ"),
            "info",
            "history",
            "lists are seen",
        ),
    ],
)
def test_collector_behind_of_those_that_look_beside(
    number: int, status: CollectorStatus, severity: str | None, missing: str, why: str
) -> None:
    told = found("collector_behind", collectors=(TAIL, status))
    assert [each.severity.value for each in told] == ([severity] if severity else []), f"{number}: {why}"
    assert all(missing in each.next_step for each in told), f"case {number}: {why}"


def test_a_blind_collector_gives_its_reason_as_evidence() -> None:
    status = collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=60, error="no READ on the topic")
    (finding,) = found("collector_behind", collectors=(status,))
    assert finding.evidence == "no READ on the topic"
    assert finding.since_ms == ago(60)


LOADING = "broker 2: it is still loading its part of __transaction_state; it will answer soon"


@pytest.mark.parametrize(
    ("number", "status", "is_told", "why"),
    [
        (1, collector("reconcile", Sense.LISTS, seen_s_ago=9.9, unseen=(LOADING,)), False, "just started"),
        (2, collector("reconcile", Sense.LISTS, seen_s_ago=10.1, unseen=(LOADING,)), True, "too long"),
        (3, collector("reconcile", Sense.LISTS, seen_s_ago=900), False, "all answered"),
        (4, collector("reconcile", Sense.LISTS, seen_s_ago=900, unseen=(LOADING,)), True, "still"),
        (
            5,
            collector("reconcile", Sense.LISTS, seen_s_ago=900, unseen=("x",), error="e"),
            False,
            "blind itself",
        ),
    ],
)
def test_coordinator_loading(number: int, status: CollectorStatus, is_told: bool, why: str) -> None:
    told = found("coordinator_loading", collectors=(TAIL, status))
    assert [each.severity.value for each in told] == (["warning"] if is_told else []), f"{number}: {why}"


def test_coordinator_loading_names_the_broker() -> None:
    status = collector("reconcile", Sense.LISTS, seen_s_ago=60, unseen=(LOADING,))
    (finding,) = found("coordinator_loading", collectors=(TAIL, status))
    assert finding.summary == "broker 2 does not answer for transactional ids"
    assert (finding.since_ms, finding.evidence) == (ago(60), LOADING)
    assert not found("coordinator_loading", collectors=(TAIL, status), gaps=(gap("reconcile"),))


@pytest.mark.parametrize(
    ("number", "scope", "since_s", "is_told", "why"),
    [
        (1, "partition:secret-0", 60, False, "the limit itself is within"),
        (2, "partition:secret-0", 61, True, "hidden for long"),
        (3, "cluster", 900, False, "a collector that sees nothing says so itself"),
    ],
)
def test_gap(number: int, scope: str, since_s: float, is_told: bool, why: str) -> None:
    told = found("gap", gaps=(gap("partitions", scope, since_s_ago=since_s),))
    assert [each.severity.value for each in told] == (["warning"] if is_told else []), f"{number}: {why}"


def test_gaps_of_one_collector_are_one_finding() -> None:
    gaps = [gap("partitions", f"partition:secret-{n}", since_s_ago=70 + n) for n in range(50)]
    (first, second) = found("gap", gaps=(*gaps, gap("groups", "group:x", since_s_ago=90)))
    assert (first.subject, first.since_ms) == ("collector:partitions", ago(119))
    assert first.summary == (
        "partitions cannot see partition:secret-49, partition:secret-48, partition:secret-47 and 47 more"
    )
    assert second.subject == "collector:groups"


def test_every_collector_that_sees_is_silent() -> None:
    assert {PARTITIONS, GROUPS} < set(ALL)
    assert not found("collector_behind")
