"""Proves the rules about applications by numbered cases: shares, habits, ids and epochs."""

from __future__ import annotations

import pytest

from fenceline.baselines import Habit
from fenceline.facts import TransitionKind
from fenceline.snapshot import ApplicationFigures, Burn
from tests.unit.rules.factories import finding_severities, findings_of, gap, with_stale_collector

COMMIT, TIMEOUT, CLIENT, REINIT, TAKEOVER = (
    TransitionKind.COMMIT,
    TransitionKind.TIMEOUT,
    TransitionKind.CLIENT_ABORT,
    TransitionKind.REINIT,
    TransitionKind.TAKEOVER,
)


def application(**figures: object) -> tuple[ApplicationFigures, ...]:
    return (ApplicationFigures("payments", **figures),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "window", "severity", "why"),
    [
        (1, {COMMIT: 0, TIMEOUT: 19}, None, "too few ends to speak of a share"),
        (2, {COMMIT: 17, TIMEOUT: 3}, None, "15 %"),
        (3, {COMMIT: 16, TIMEOUT: 4}, "warning", "the share itself"),
        (4, {COMMIT: 10, CLIENT: 5, TIMEOUT: 5}, "warning", "of any cause"),
        (5, {TIMEOUT: 20}, "critical", "nothing is committed at all"),
        (
            6,
            {COMMIT: 20, TransitionKind.EMPTY_ABORT: 500, REINIT: 500},
            None,
            "an abort of nothing loses nothing",
        ),
        (7, {}, None, "nothing happened"),
    ],
)
def test_abort_ratio(number: int, window: dict[TransitionKind, int], severity: str | None, why: str) -> None:
    told = finding_severities("abort_ratio", applications=application(window=window))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


def test_abort_ratio_names_the_most_frequent_cause() -> None:
    window = {COMMIT: 10, CLIENT: 5, TIMEOUT: 7}
    (finding,) = findings_of("abort_ratio", applications=application(window=window))
    assert finding.subject == "application:payments"
    assert finding.summary == "payments aborts more than 50 % of the transactions"
    assert "most of them timeout" in finding.evidence
    assert finding.since_ms is None


NEVER, RARE, POOLED = Habit(100, 0, 0.0), Habit(100, 10, 0.05), Habit(100, 5_000, 0.5)


@pytest.mark.parametrize(
    ("number", "hour", "habits", "severity", "why"),
    [
        (1, {REINIT: 19}, {REINIT: NEVER}, None, "a few restarts"),
        (2, {REINIT: 20, COMMIT: 5}, {REINIT: NEVER}, "info", "it never did"),
        (3, {REINIT: 20}, {}, None, "no habit is known yet"),
        (4, {REINIT: 30, COMMIT: 5}, {REINIT: RARE}, None, "three times as often is the line"),
        (5, {REINIT: 31, COMMIT: 5}, {REINIT: RARE}, "info", "beyond it"),
        (6, {REINIT: 500, COMMIT: 9_500}, {REINIT: RARE}, None, "mere load: the same share of more work"),
        (7, {REINIT: 9_000, COMMIT: 9_000}, {REINIT: POOLED}, None, "pooled ids: before every transaction"),
        (8, {REINIT: 16_000, COMMIT: 16_000}, {REINIT: POOLED}, None, "the same with three times the load"),
        (9, {REINIT: 16_000, COMMIT: 4_000}, {REINIT: POOLED}, "info", "and most of them lead to nothing"),
        (10, {TIMEOUT: 25, COMMIT: 5}, {TIMEOUT: NEVER}, "warning", "timeouts are worse"),
        (11, {TAKEOVER: 25, COMMIT: 5, REINIT: 25}, {TAKEOVER: NEVER, REINIT: NEVER}, "warning", "both"),
    ],
)
def test_abort_rate_anomaly(
    number: int,
    hour: dict[TransitionKind, float],
    habits: dict[TransitionKind, Habit],
    severity: str | None,
    why: str,
) -> None:
    told = finding_severities("abort_rate_anomaly", applications=application(hour=hour, habits=habits))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "made", "sample_id", "severity", "why"),
    [
        (1, 600.0, "", None, "one checkpoint a minute at parallelism 10: the limit itself"),
        (2, 601.0, "payments-7", "warning", "beyond it"),
        (3, 6_001.0, "payments-0-77", "critical", "ten times that"),
        (4, 6_001.0, "payments-0a1b2c3d-p2999-g1-s0", None, "the first start of a sink with 3,000 tasks"),
        (
            5,
            6_001.0,
            "payments-0a1b2c3d-p2999-g1-b0-s0",
            "critical",
            "a sink of old, with other ids each time",
        ),
    ],
)
def test_id_explosion(number: int, made: float, sample_id: str, severity: str | None, why: str) -> None:
    figures = application(hour={TransitionKind.INIT: made}, sample_id=sample_id)
    told = finding_severities("id_explosion", applications=figures)
    assert told == ([severity] if severity else []), f"case {number}: {why}"


def test_id_explosion_estimates_the_ids_that_coordinators_keep() -> None:
    """FLIP-511's arithmetic: 7 d x 24 h x 60 checkpoints an hour x parallelism."""
    (finding,) = findings_of("id_explosion", applications=application(hour={TransitionKind.INIT: 60.0 * 100}))
    assert finding.summary == "payments makes 6,000+ transactional ids an hour"
    assert "1,000,000+ ids" in finding.evidence  # 60 * 100 * 168 = 1,008,000


@pytest.mark.parametrize(
    ("number", "burn", "is_told", "why"),
    [
        (1, None, False, "no id of it was met twice"),
        (2, Burn("payments-7", 9, 136_000), False, "99 rotations a day"),
        (3, Burn("payments-7", 9, 137_000), True, "100 rotations a day"),
    ],
)
def test_epoch_burn(number: int, burn: Burn | None, is_told: bool, why: str) -> None:
    told = finding_severities("epoch_burn", applications=application(burn=burn))
    assert told == (["info"] if is_told else []), f"case {number}: {why}"


def test_epoch_burn_gives_the_time_to_the_next_producer_id() -> None:
    (finding,) = findings_of("epoch_burn", applications=application(burn=Burn("payments-7", 9, 327_660, 3)))
    assert "payments-7 uses 300,000+ of its 32,766 epochs an hour" in finding.evidence
    assert "every 5 min" in finding.evidence
    assert "200+ a day; 3 of its ids do" in finding.evidence


FACTS = application(
    window={TIMEOUT: 50},
    hour={REINIT: 50, TransitionKind.INIT: 900},
    habits={REINIT: NEVER},
    burn=Burn("payments-7", 9, 10**6),
)


@pytest.mark.parametrize("rule", ["abort_ratio", "abort_rate_anomaly", "id_explosion", "epoch_burn"])
def test_application_rules_need_the_whole_history_only(rule: str) -> None:
    assert findings_of(rule, applications=FACTS)
    assert not findings_of(rule, applications=FACTS, gaps=(gap("transaction_state"),))
    assert not findings_of(rule, applications=FACTS, collectors=with_stale_collector("transaction_state"))
    assert findings_of(rule, applications=FACTS, gaps=(gap("partitions"), gap("groups")))
