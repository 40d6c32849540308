"""Proves the rules about applications by numbered cases: shares and ids."""

import pytest

from fenceline.facts import TransitionKind
from fenceline.snapshot import ApplicationFigures
from tests.unit.rules.factories import finding_severities, findings_of

COMMIT, TIMEOUT, CLIENT, REINIT = (
    TransitionKind.COMMIT,
    TransitionKind.TIMEOUT,
    TransitionKind.CLIENT_ABORT,
    TransitionKind.REINIT,
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


def test_no_figure_is_surer_than_the_verdicts_that_it_counts() -> None:
    """Counts hold ambiguous verdicts too: an application that aborts and starts again leaves takeovers."""
    (ratio,) = findings_of(
        "abort_ratio", applications=application(window={COMMIT: 5, TransitionKind.TAKEOVER: 20})
    )
    assert "most of them takeover, or own abort before a new start" in ratio.evidence
    (fenced,) = findings_of("abort_ratio", applications=application(window={TransitionKind.ADMIN_FENCE: 20}))
    assert "most of them fence, or takeover by a producer with a timeout of 30 s" in fenced.evidence


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
