"""Proves what counts as a series, and as timeouts in a row."""

from fenceline.facts import Confidence, Transition, TransitionKind, TransitionReason
from fenceline.history.timeline import in_a_row, latest_streak


def test_a_series_ends_where_it_paused() -> None:
    assert latest_streak([0, 100, 500, 590, 600], within_ms=100) == [500, 590, 600]
    assert latest_streak([0, 100, 200], within_ms=100) == [0, 100, 200]
    assert latest_streak([7], within_ms=100) == [7]
    assert latest_streak([], within_ms=100) == []


def transitions_of(*kinds: TransitionKind) -> list[Transition]:
    return [
        Transition(kind, Confidence.CERTAIN, TransitionReason.BROKER_LATE, n, 1, 2, 2, 3, 4, None, None, 0, n)
        for n, kind in enumerate(kinds)
    ][::-1]


def test_a_commit_ends_the_series_and_other_transitions_do_not() -> None:
    steps = [
        TransitionKind.TIMEOUT,
        TransitionKind.COMMIT,
        TransitionKind.TIMEOUT,
        TransitionKind.REINIT,
        TransitionKind.BEGIN,
        TransitionKind.TIMEOUT,
        TransitionKind.EMPTY_ABORT,
    ]
    assert [each.offset for each in in_a_row(transitions_of(*steps))] == [2, 5]
    assert (
        in_a_row(transitions_of(TransitionKind.TIMEOUT, TransitionKind.TIMEOUT, TransitionKind.COMMIT)) == []
    )
