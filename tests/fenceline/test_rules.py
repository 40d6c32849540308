"""Proves the rules by numbered cases: what is found, how bad it is, and where silence is right."""

from __future__ import annotations

import pytest

from fenceline.facts import (
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Finding,
    Gap,
    State,
    TopicPartitions,
)
from fenceline.limits import Limits
from fenceline.rules import judge
from fenceline.snapshot import CollectorStatus, OpenTransaction, Snapshot

NOW_MS = 1_795_000_000_000
LIMITS = Limits(open_too_long_s=60, collector_behind_s=5)


def transaction(
    age_s: float | None, *, timeout_s: float = 600, state: State = State.ONGOING
) -> OpenTransaction:
    return OpenTransaction(
        cluster="prod",
        transactional_id="payments-7",
        state=state,
        producer_id=1,
        producer_epoch=2,
        timeout_ms=min(int(timeout_s * 1000), TWO_PHASE_COMMIT_TIMEOUT_MS),
        started_ms=None if age_s is None else NOW_MS - int(age_s * 1000),
        updated_ms=NOW_MS,
        partitions=(TopicPartitions("payments", (0, 1, 2, 3)),),
    )


def found(
    *, transactions: tuple[OpenTransaction, ...] = (), collectors: tuple[CollectorStatus, ...] = ()
) -> list[Finding]:
    return list(judge(Snapshot(transactions, collectors), now_ms=NOW_MS, limits=LIMITS))


@pytest.mark.parametrize(
    ("number", "subject", "severity", "why"),
    [
        (1, transaction(59.9), None, "within the limit"),
        (2, transaction(60), None, "the limit itself is still within"),
        (3, transaction(60.1), "warning", "past the limit, its coordinator will end it"),
        (4, transaction(614, timeout_s=600), "warning", "past its timeout, but coordinators look every 10 s"),
        (5, transaction(616, timeout_s=600), "critical", "its coordinator should have ended it"),
        (6, transaction(61, timeout_s=10**9), "critical", "two-phase commit: nothing ever ends it"),
        (7, transaction(900, state=State.PREPARE_COMMIT), None, "decided: not waiting for its producer"),
        (8, transaction(None), None, "a record without a start says nothing about an age"),
        (9, transaction(-3600), None, "a producer's clock an hour ahead is no age"),
    ],
)
def test_open_too_long(number: int, subject: OpenTransaction, severity: str | None, why: str) -> None:
    severities = [finding.severity.value for finding in found(transactions=(subject,))]
    assert severities == ([severity] if severity else []), f"case {number}: {why}"


def test_open_too_long_says_what_an_operator_needs() -> None:
    (finding,) = found(transactions=(transaction(120),))
    assert finding.subject == "transaction:payments-7"
    assert finding.since_ms == NOW_MS - 120_000
    assert finding.affected == tuple(f"partition:payments-{n}" for n in range(4))
    assert "payments-0, payments-1, payments-2 and 1 more" in finding.evidence
    assert "aborts it at" in finding.evidence


def test_open_too_long_accuses_nobody_while_blind() -> None:
    """A transaction that was open when sight was lost may have ended since."""
    gap = Gap("prod", "transaction_state", "cluster", NOW_MS - 1, None, "cannot reach it")
    late = CollectorStatus("prod", "transaction_state", NOW_MS - 6_000, None, "", NOW_MS - 60_000)
    for blind in (Snapshot((transaction(120),), gaps=(gap,)), Snapshot((transaction(120),), (late,))):
        found = judge(blind, now_ms=NOW_MS, limits=LIMITS)
        assert "open_too_long" not in {finding.rule for finding in found}


def test_words_do_not_change_while_nothing_does() -> None:
    """Words with ages in them would be written to the database every second."""
    snapshot = Snapshot((transaction(120),))
    first, later = (list(judge(snapshot, now_ms=NOW_MS + ms, limits=LIMITS)) for ms in (0, 30_000))
    assert first == later


@pytest.mark.parametrize(
    ("number", "seen_s_ago", "error", "severity", "why"),
    [
        (1, 4.9, "", None, "within the limit"),
        (2, 5.1, "", "warning", "late, but it may be catching up"),
        (3, 5.1, "cannot reach it", "critical", "it cannot see"),
        (4, 1.0, "cannot reach it", None, "one failed look is not blindness yet"),
        (5, None, "", "warning", "never saw anything since it was made, a minute ago"),
    ],
)
def test_collector_behind(
    number: int, seen_s_ago: float | None, error: str, severity: str | None, why: str
) -> None:
    seen = None if seen_s_ago is None else NOW_MS - int(seen_s_ago * 1000)
    status = CollectorStatus("prod", "transaction_state", seen, None, error, NOW_MS - 60_000)
    severities = [finding.severity.value for finding in found(collectors=(status,))]
    assert severities == ([severity] if severity else []), f"case {number}: {why}"


def test_a_blind_collector_gives_its_reason_as_evidence() -> None:
    status = CollectorStatus("prod", "transaction_state", NOW_MS - 60_000, 5, "no READ on the topic", NOW_MS)
    (finding,) = found(collectors=(status,))
    assert finding.evidence == "no READ on the topic"
