"""Repeated events: series of events, and consecutive ones without a better one between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fenceline.facts import Transition, TransitionKind


def latest_streak(instants: Sequence[int], *, within_ms: int) -> Sequence[int]:
    """Return the last series of instants, oldest first, in which each follows within `within_ms`."""
    start = len(instants) - 1
    while start > 0 and instants[start] - instants[start - 1] <= within_ms:
        start -= 1
    return instants[max(0, start) :]


def in_a_row(newest_first: Iterable[Transition]) -> list[Transition]:
    """Return an id's last timeouts without a commit between or after them, oldest first."""
    streak: list[Transition] = []
    for transition in newest_first:
        if transition.kind is TransitionKind.COMMIT:
            break
        if transition.kind is TransitionKind.TIMEOUT:
            streak.append(transition)
    return streak[::-1]
