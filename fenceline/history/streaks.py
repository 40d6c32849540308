"""What happens again and again: in series, and in a row with nothing better between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fenceline.facts import Transition, TransitionKind


def latest_streak(instants: Sequence[int], *, within_ms: int) -> Sequence[int]:
    """Return the last of some instants, oldest first: those that follow one another within `within_ms`."""
    start = len(instants) - 1
    while start > 0 and instants[start] - instants[start - 1] <= within_ms:
        start -= 1
    return instants[max(0, start) :]


def in_a_row(newest_first: Iterable[Transition]) -> list[Transition]:
    """Return an id's last timeouts with no commit between or after them, oldest first."""
    streak: list[Transition] = []
    for transition in newest_first:
        if transition.kind is TransitionKind.COMMIT:
            break
        if transition.kind is TransitionKind.TIMEOUT:
            streak.append(transition)
    return streak[::-1]
