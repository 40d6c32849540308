"""Proves the baselines of an application: they exist after a day of work, without its worst hours."""

from __future__ import annotations

from fenceline.baselines import LEAST_HOURS, Habit, learn_habits, rate_changes
from fenceline.facts import TransitionKind

COMMIT, REINIT = TransitionKind.COMMIT, TransitionKind.REINIT


def hours(number: int, commits: int = 90, reinits: int = 10) -> list[dict[TransitionKind, int]]:
    return [{COMMIT: commits, REINIT: reinits}] * number


def test_no_baseline_exists_before_a_day_of_work() -> None:
    assert learn_habits(hours(LEAST_HOURS - 1)) == {}
    assert learn_habits([*hours(LEAST_HOURS - 1), {}, {COMMIT: 0}]) == {}
    assert learn_habits(hours(LEAST_HOURS))[REINIT] == Habit(LEAST_HOURS, 10, 0.1)


def test_an_event_that_never_happened_has_a_baseline() -> None:
    assert learn_habits(hours(LEAST_HOURS))[TransitionKind.TIMEOUT] == Habit(LEAST_HOURS, 0, 0.0)


def test_the_worst_hours_are_left_out() -> None:
    """One bad night must not excuse the next one."""
    bad = hours(5, commits=0, reinits=4_000)
    assert learn_habits([*hours(95), *bad])[REINIT] == Habit(100, 10, 0.1)
    assert learn_habits([*hours(90), *bad, *bad])[REINIT] == Habit(100, 4_000, 1.0)


def test_hours_with_little_work_do_not_count_for_shares() -> None:
    quiet = hours(50, commits=1, reinits=3)
    assert learn_habits([*hours(50), *quiet])[REINIT] == Habit(100, 10, 0.1)


def test_a_change_needs_both_the_number_and_the_share() -> None:
    habit = {REINIT: Habit(100, 10, 0.1)}
    cases = [
        ({REINIT: 31.0, COMMIT: 50.0}, 1),
        ({REINIT: 30.0, COMMIT: 50.0}, 0),
        ({REINIT: 31.0, COMMIT: 500.0}, 0),
        ({COMMIT: 500.0}, 0),
    ]
    for now, expected in cases:
        assert len(list(rate_changes(now, habit, factor=3, least=20))) == expected, now
