"""Proves the rules about visibility by numbered cases: brokers that do not answer, parts that are hidden."""

import pytest

from fenceline.findings.visibility import Sense
from fenceline.snapshot import CollectorStatus
from tests.unit.rules.factories import (
    TAIL,
    ago,
    collector,
    findings_of,
    gap,
)

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
    told = findings_of("coordinator_loading", collectors=(TAIL, status))
    # A coordinator that loads for five minutes keeps its producers from all work.
    how_bad = "critical" if status.blind_since_ms < ago(300) else "warning"
    assert [each.severity.value for each in told] == ([how_bad] if is_told else []), f"{number}: {why}"


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


@pytest.mark.parametrize(
    ("number", "scope", "since_s", "is_told", "why"),
    [
        (1, "partition:secret-0", 60, False, "the limit itself is within"),
        (2, "partition:secret-0", 61, True, "hidden for long"),
        (3, "cluster", 900, False, "System shows a collector that sees nothing"),
    ],
)
def test_gap(number: int, scope: str, since_s: float, is_told: bool, why: str) -> None:
    told = findings_of("collector_gap", gaps=(gap("partitions", scope, since_s_ago=since_s),))
    assert [each.severity.value for each in told] == (["warning"] if is_told else []), f"{number}: {why}"


def test_gaps_of_one_collector_are_one_finding() -> None:
    gaps = [gap("partitions", f"partition:secret-{n}", since_s_ago=70 + n) for n in range(50)]
    (first, second) = findings_of("collector_gap", gaps=(*gaps, gap("groups", "group:x", since_s_ago=90)))
    assert (first.subject, first.since_ms) == ("collector:partitions", ago(119))
    assert first.summary == (
        "partitions cannot observe partition:secret-49, partition:secret-48, partition:secret-47 and 47 more"
    )
    assert second.subject == "collector:groups"
