"""Proves the rules about transactions by numbered cases: what is found, how severe it is, and when nothing
is.
"""

from dataclasses import replace

import pytest

from fenceline.facts import NOT_REPORTED, TransactionState
from fenceline.snapshot import MissingMarker, OpenTransactionFacts, Repeated, UsualCommit
from tests.unit.rules.factories import (
    NOW_MS,
    OWNED,
    ago,
    blocked_group,
    blocked_offset,
    blocked_partition,
    finding_severities,
    findings_of,
    lso_blocker,
    transaction,
)

TWO_PHASE_S = 10**9


@pytest.mark.parametrize(
    ("number", "subject", "severity", "why"),
    [
        (1, transaction(59.9), None, "within the limit"),
        (2, transaction(60), None, "the limit itself is still within"),
        (3, transaction(60.1), "warning", "past the limit, its coordinator will end it"),
        (4, transaction(605, timeout_s=600), "warning", "past its timeout, but coordinators look every 10 s"),
        (5, transaction(616, timeout_s=600), "warning", "late by now, which another rule says"),
        (6, transaction(61, timeout_s=TWO_PHASE_S), "critical", "two-phase commit: nothing ever ends it"),
        (
            7,
            transaction(900, state=TransactionState.PREPARE_COMMIT),
            None,
            "decided: not waiting for its producer",
        ),
        (8, transaction(None), None, "a record without a start says nothing about an age"),
    ],
)
def test_open_too_long(number: int, subject: OpenTransactionFacts, severity: str | None, why: str) -> None:
    told = finding_severities("open_too_long", transactions=(subject,))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "age_s", "commits", "p99_s", "timeout_s", "severity", "why"),
    [
        (1, 9.9, 50, 0.2, 600, None, "far beyond its past, but younger than any habit is looked at"),
        (2, 10.1, 50, 0.2, 600, "warning", "fifty times as long as its commits take"),
        (3, 10.1, 49, 0.2, 600, None, "too few commits to know what is usual"),
        (4, 29, 50, 10, 600, None, "within three times its 99th percentile"),
        (5, 31, 50, 10, 600, "warning", "beyond it"),
        (6, 70, 50, 30, 600, "info", "past the limit, and usual for this application"),
        (7, 91, 50, 30, 600, "warning", "past the limit and past what is usual"),
        (8, 31, 50, 10, TWO_PHASE_S, "warning", "unusual, but not past the limit: nothing critical yet"),
        (9, 91, 50, 30, TWO_PHASE_S, "critical", "past both, and nothing ever ends it"),
        (10, 70, 49, 30, 600, "warning", "too few commits to excuse it"),
    ],
)
def test_open_too_long_depends_on_the_applications_usual_commit_time(
    number: int, age_s: float, commits: int, p99_s: float, timeout_s: float, severity: str | None, why: str
) -> None:
    usual = {"payments": UsualCommit(commits, int(p99_s * 1_000))}
    subject = transaction(age_s, timeout_s=timeout_s)
    told = finding_severities("open_too_long", transactions=(subject,), usual=usual)
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "waits_s", "usual_s", "severity", "why"),
    [
        (1, None, None, "warning", "nobody is blocked by it"),
        (2, 90, None, "warning", "a group is, for a while"),
        (3, 420, None, "critical", "for seven minutes"),
        (4, 420, 200, "info", "its application's commits take so long"),
    ],
)
def test_open_too_long_severity_grows_with_what_it_blocks(
    number: int, waits_s: float | None, usual_s: float | None, severity: str, why: str
) -> None:
    facts = {
        "transactions": (transaction(430),),
        "partitions": (blocked_partition(lso_blocker(*OWNED, name="payments-7"), pinned_s_ago=425),),
        "groups": () if waits_s is None else (blocked_group(blocked_offset(waits_s)),),
        "usual": {} if usual_s is None else {"payments": UsualCommit(80, int(usual_s * 1_000))},
    }
    assert finding_severities("open_too_long", **facts) == [severity], f"case {number}: {why}"


def test_a_fence_is_not_suggested_for_a_transaction_of_the_sink() -> None:
    (finding,) = findings_of(
        "open_too_long", transactions=(transaction(61, name="orders-0a1b2c3d-p3-g2-b1-s17"),)
    )
    assert finding.next_step.startswith("Start its Spark query again")
    (other,) = findings_of("open_too_long", transactions=(transaction(61),))
    assert "or a fence ends it" in other.next_step


def test_open_too_long_gives_what_an_operator_needs() -> None:
    waiting = transaction(120, waiting=("audit", "billing"))
    (finding,) = findings_of(
        "open_too_long", transactions=(waiting,), usual={"payments": UsualCommit(80, 900)}
    )
    assert finding.subject == "transaction:payments-7"
    assert finding.since_ms == ago(120)
    partitions = [f"partition:payments-{n}" for n in range(4)]
    assert finding.affected == (*partitions, "group:audit", "group:billing")
    assert "payments-0, payments-1, payments-2 and 1 more" in finding.evidence
    assert "2 groups are blocked there: audit and billing" in finding.evidence
    assert "aborts it at" in finding.evidence
    assert "99 of 100 commits of payments take at most 900 ms" in finding.evidence


@pytest.mark.parametrize(
    ("timeout_s", "deadline_ms"), [(900, NOW_MS + 780_000), (60, NOW_MS - 60_000), (TWO_PHASE_S, None)]
)
def test_open_too_long_has_its_timeout_as_deadline(timeout_s: float, deadline_ms: int | None) -> None:
    (finding,) = findings_of("open_too_long", transactions=(transaction(120, timeout_s=timeout_s),))
    assert finding.deadline_ms == deadline_ms


@pytest.mark.parametrize(
    ("number", "subject", "is_late", "why"),
    [
        (1, transaction(74, timeout_s=60), False, "past its timeout, within the coordinator's scan"),
        (2, transaction(75.1, timeout_s=60), True, "15 s past its timeout"),
        (3, transaction(20, timeout_s=3), True, "also where it is not open for long"),
        (4, transaction(10**6, timeout_s=TWO_PHASE_S), False, "a two-phase commit is never late"),
        (
            5,
            transaction(900, timeout_s=60, state=TransactionState.PREPARE_ABORT),
            False,
            "decided; another rule's",
        ),
        (6, transaction(None, timeout_s=60), False, "no start, no age"),
    ],
)
def test_late(number: int, subject: OpenTransactionFacts, is_late: bool, why: str) -> None:
    told = finding_severities("coordinator_overdue", transactions=(subject,))
    assert told == (["critical"] if is_late else []), f"case {number}: {why}"


def test_coordinator_overdue_counts_from_the_timeout() -> None:
    (finding,) = findings_of("coordinator_overdue", transactions=(transaction(100, timeout_s=60),))
    assert finding.since_ms == ago(40)
    assert "partition:payments-0" in finding.affected


@pytest.mark.parametrize(
    ("number", "state", "decided_s_ago", "is_stuck", "why"),
    [
        (1, TransactionState.PREPARE_COMMIT, 14.9, False, "markers may take a moment while a leader moves"),
        (2, TransactionState.PREPARE_COMMIT, 15.1, True, "decided, and no marker for 15 s"),
        (3, TransactionState.PREPARE_ABORT, 15.1, True, "an abort may be stuck too"),
        (4, TransactionState.ONGOING, 900, False, "nothing is decided"),
    ],
)
def test_stuck_in_prepare(
    number: int, state: TransactionState, decided_s_ago: float, is_stuck: bool, why: str
) -> None:
    subject = transaction(900, state=state, decided_s_ago=decided_s_ago)
    told = findings_of("stuck_in_prepare", transactions=(subject,))
    assert [each.since_ms for each in told] == ([ago(decided_s_ago)] if is_stuck else []), (
        f"case {number}: {why}"
    )


def test_stuck_in_prepare_names_the_late_leader_of_three() -> None:
    missing = (MissingMarker("payments", 2, None, (2,)),)
    subject = transaction(900, state=TransactionState.PREPARE_COMMIT, decided_s_ago=20, missing=missing)
    (finding,) = findings_of("stuck_in_prepare", transactions=(subject,))
    assert (
        finding.summary
        == "payments-7 is in PrepareCommit, but its commit marker is not confirmed in payments-2"
    )
    assert "; payments-2 has no leader: its replicas are on broker 2; " in finding.evidence
    assert "consumers of payments-2 are blocked" in finding.evidence
    assert finding.next_step.startswith("Bring back broker 2: ")


def test_stuck_in_prepare_names_leaders_that_take_no_marker() -> None:
    missing = (MissingMarker("payments", 1, 3, (3, 1)), MissingMarker("payments", 2, None, (2, 4)))
    subject = transaction(900, state=TransactionState.PREPARE_ABORT, decided_s_ago=20, missing=missing)
    (finding,) = findings_of("stuck_in_prepare", transactions=(subject,))
    assert "its abort marker is not confirmed in payments-1 and payments-2" in finding.summary
    assert "payments-1 is led by broker 3, which has not confirmed it" in finding.evidence
    assert finding.next_step.startswith("Bring back the leaders of payments-1 and payments-2: ")


@pytest.mark.parametrize(
    ("number", "times", "unambiguous", "severity", "why"),
    [
        (1, 3, 3, [], "a few restarts in the middle of work"),
        (2, 4, 4, ["critical"], "two live owners"),
        (3, 40, 20, ["critical"], "enough of them without the ambiguous ones"),
        (4, 4, 3, ["warning"], "a client that aborts and initialises again leaves the same records"),
        (5, 40, 0, ["warning"], "the same"),
    ],
)
def test_fencing_storm(number: int, times: int, unambiguous: int, severity: list[str], why: str) -> None:
    seen = Repeated("transaction:payments-7", times, unambiguous, ago(500), ago(5))
    told = findings_of("fencing_storm", takeovers=(seen,))
    assert [each.severity.value for each in told] == severity, f"case {number}: {why}"
    assert all(each.since_ms == ago(500) for each in told)
    is_shown = severity == ["critical"]
    assert all(("is taken over" in each.summary) == is_shown for each in told)
    assert all(("or one that restarts" in each.summary) != is_shown for each in told)
    if is_shown:
        assert all(("ambiguous" in each.evidence) == (unambiguous < times) for each in told)


@pytest.mark.parametrize(
    ("number", "subject", "times", "is_told", "why"),
    [
        (1, "transaction:payments-7", 2, False, "twice may happen"),
        (2, "transaction:payments-7", 3, True, "three in a row"),
        (3, "application:payments", 3, True, "of ids that are used once each"),
        (4, "transaction:payments-7", 9, True, "nothing it writes arrives any more"),
    ],
)
def test_timeouts_in_a_row(number: int, subject: str, times: int, is_told: bool, why: str) -> None:
    seen = Repeated(subject, times, times, ago(500), ago(5), 60_000)
    told = findings_of("timeouts_in_a_row", timeouts=(seen,))
    expected = [(subject, "critical" if times >= 9 else "warning", ago(500))] if is_told else []
    assert [(each.subject, each.severity.value, each.since_ms) for each in told] == expected, (
        f"{number}: {why}"
    )


def test_a_transaction_whose_timeout_is_not_reported_is_open_too_long_and_never_overdue() -> None:
    listed = transaction(3_600)
    listed = replace(listed, timeout_ms=NOT_REPORTED)
    assert findings_of("coordinator_overdue", transactions=(listed,)) == []
    (found,) = findings_of("open_too_long", transactions=(listed,))
    assert found.deadline_ms is None
    assert "when it times out is not known" in found.evidence
