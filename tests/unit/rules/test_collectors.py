"""Proves the rules about collectors by numbered cases: which data is unavailable, and how severe that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline.collecting import Punctual
from fenceline.formatting import format_clock
from fenceline.snapshot import CollectorStatus
from fenceline.visibility import Sense
from tests.unit.rules.factories import (
    ALL_COLLECTORS,
    GROUPS,
    LIMITS,
    NOW_MS,
    PARTITIONS,
    TAIL,
    ago,
    collector,
    finding_severities,
    findings_of,
    gap,
)


@pytest.mark.parametrize(
    ("number", "seen_s_ago", "error", "severity", "why"),
    [
        (1, 5.1, "", None, "late for a moment: a line in the freshness display"),
        (2, 60, "", None, "the limit itself is within"),
        (3, 60.1, "", "warning", "late for long, but it may be catching up"),
        (4, 60.1, "cannot reach it", "critical", "it cannot see"),
        (5, 30, "cannot reach it", None, "half a minute: its gap says so, and rules are silent"),
        (6, None, "", "warning", "never saw anything since it was made, an hour ago"),
    ],
)
def test_collector_behind(
    number: int, seen_s_ago: float | None, error: str, severity: str | None, why: str
) -> None:
    status = collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=seen_s_ago, error=error)
    told = finding_severities("collector_behind", collectors=(status,))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "status", "severity", "missing", "why"),
    [
        (1, collector("partitions", Sense.PARTITIONS, seen_s_ago=59), None, "", "pollers look now and then"),
        (2, collector("partitions", Sense.PARTITIONS, seen_s_ago=61), "warning", "hanging", "no look"),
        (3, collector("groups", Sense.GROUPS, seen_s_ago=61, error="x"), "warning", "Lag", "cannot look"),
        (4, collector("consumer_offsets-1", seen_s_ago=61), "warning", "commit times", "a shard of the tail"),
        (
            5,
            collector("recoveries", seen_s_ago=61),
            "warning",
            "Recoveries neither",
            "no episode is followed",
        ),
        (6, collector("reconcile", Sense.LISTS, error="x"), "info", "not checked", "the log is read"),
        (
            10,
            collector("audits", Sense.AUDITS, seen_s_ago=61, error="x"),
            "warning",
            "duplicated",
            "no store",
        ),
        (7, collector("reconcile", Sense.LISTS, seen_s_ago=900), None, "", "its pace is its own"),
        (
            8,
            collector("reconcile", Sense.LISTS, error="x", since_s_ago=59),
            None,
            "",
            "it fails for a moment",
        ),
        (
            9,
            collector("transaction_state", Sense.HISTORY, error="no READ"),
            "info",
            "history",
            "lists are seen",
        ),
    ],
)
def test_collector_behind_of_collectors_that_only_poll(
    number: int, status: CollectorStatus, severity: str | None, missing: str, why: str
) -> None:
    told = findings_of("collector_behind", collectors=(TAIL, status))
    assert [each.severity.value for each in told] == ([severity] if severity else []), f"{number}: {why}"
    assert all(missing in each.next_step for each in told), f"case {number}: {why}"


def test_an_unavailable_collector_gives_its_error_as_evidence() -> None:
    status = collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=61, error="no READ on the topic")
    (finding,) = findings_of("collector_behind", collectors=(status,))
    assert finding.evidence == "no READ on the topic"
    assert finding.since_ms == ago(61)


@pytest.mark.parametrize(
    ("number", "seen_s_ago", "on_time_s", "is_told", "why"),
    [
        (1, 0.5, None, True, "it is on time, and not known since when"),
        (2, 0.5, 19.9, True, "on time for some seconds only"),
        (3, 0.5, 20, False, "on time for long enough"),
        (4, 6, None, True, "late again, by little"),
    ],
)
def test_a_reported_collector_stays_reported_until_it_is_on_time_for_a_while(
    number: int, seen_s_ago: float, on_time_s: float | None, is_told: bool, why: str
) -> None:
    status = replace(
        collector("transaction_state", Sense.TRANSACTIONS, seen_s_ago=seen_s_ago),
        reported_ms=ago(100),
        on_time_ms=None if on_time_s is None else ago(on_time_s),
    )
    told = findings_of("collector_behind", collectors=(status,))
    assert [each.since_ms for each in told] == ([ago(100)] if is_told else []), f"case {number}: {why}"


def test_texts_do_not_change_while_a_reported_collector_catches_up() -> None:
    """Its position moves each second; a text with it would be written each second."""
    first, later = (
        findings_of(
            "collector_behind",
            now_ms=NOW_MS + ms,
            collectors=(replace(TAIL, behind=ms, seen_through_ms=ago(70) + ms, reported_ms=ago(200)),),
        )
        for ms in (1_000, 9_000)
    )
    assert first == later
    assert first[0].summary == f"prod has been polled late since {format_clock(ago(200))}"


def test_a_collector_that_is_repeatedly_late_is_one_finding() -> None:
    """Late by up to 30 s every half minute, and once for two minutes: one finding."""
    punctual, reported_ms, openings, seen_ms = Punctual(), None, 0, NOW_MS
    for second in range(780):
        now_ms = NOW_MS + 1_000 * second
        stuck = 300 <= second < 420 or second % 30 < 12
        seen_ms = seen_ms if stuck else now_ms
        status = replace(TAIL, seen_through_ms=seen_ms, reported_ms=reported_ms)
        on_time = punctual.on_time_since([status], now_ms=now_ms, limits=LIMITS)
        status = replace(status, on_time_ms=on_time.get(status.name))
        told = findings_of("collector_behind", now_ms=now_ms, collectors=(status,))
        openings += bool(told) and reported_ms is None
        reported_ms = told[0].since_ms if told else None
    assert openings == 1


def test_time_on_schedule_is_reset_after_the_rules_have_paused() -> None:
    punctual = Punctual()
    for ms in (0, 5_000, 10_000):
        since = punctual.on_time_since([TAIL], now_ms=NOW_MS + ms - 10_000, limits=LIMITS)
    assert since == {"transaction_state": NOW_MS - 10_000}
    later = replace(TAIL, seen_through_ms=NOW_MS + 30_000)
    assert (
        punctual.on_time_since([later], now_ms=NOW_MS + 30_000, limits=LIMITS)[TAIL.name] == NOW_MS + 30_000
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
        (3, "cluster", 900, False, "a collector that sees nothing says so itself"),
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


def test_collectors_on_time_raise_no_finding() -> None:
    assert {PARTITIONS, GROUPS} < set(ALL_COLLECTORS)
    assert not findings_of("collector_behind")
