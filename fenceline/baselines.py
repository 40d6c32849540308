"""What is usual for an application, learned from its own hours: how often it starts over, how long it takes.

For some frameworks initialising an id again is everyday work (pooled ids: before every transaction; probing
on start). So nothing is called unusual but against the application's own past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from fenceline.facts import TransitionKind

#: What an application does by habit, or does not.
HABITS = (TransitionKind.REINIT, TransitionKind.TAKEOVER, TransitionKind.TIMEOUT)
#: Fewer hours with work than this are no habit yet.
LEAST_HOURS = 24
#: An hour with fewer commits and events than this is too small a sample of their share.
_LEAST_EVENTS = 5
#: The share of hours that count as usual; the others were bad days.
_USUAL = 0.95
#: No application is held to a share below this.
_LOWEST_SHARE = 0.02


class UsualCommit(NamedTuple):
    """How long an application's commits take, from begin to decision."""

    commits: int
    p99_ms: int


class Habit(NamedTuple):
    """How often an application did something in an hour at most, on all but its worst hours."""

    hours: int
    most: int
    #: Of its commits and these events together, 0 to 1.
    share: float


class RateChange(NamedTuple):
    """Something an application does much more often than it used to: counts per hour."""

    kind: TransitionKind
    now: int
    habit: Habit


def learn_habits(hours: Iterable[Mapping[TransitionKind, int]]) -> Mapping[TransitionKind, Habit]:
    """Return an application's habits from its counts by hour; none before it has worked for a day."""
    worked = [hour for hour in hours if any(hour.values())]
    if len(worked) < LEAST_HOURS:
        return {}
    return {kind: _habit(kind, worked) for kind in HABITS}


def _habit(kind: TransitionKind, hours: Sequence[Mapping[TransitionKind, int]]) -> Habit:
    counts = sorted(hour.get(kind, 0) for hour in hours)
    enough = [
        hour for hour in hours if hour.get(kind, 0) + hour.get(TransitionKind.COMMIT, 0) >= _LEAST_EVENTS
    ]
    shares = sorted(share_of(kind, hour) for hour in enough) or [0.0]
    return Habit(len(hours), int(_nearly_most(counts)), _nearly_most(shares))


def _nearly_most(ordered: Sequence[float]) -> float:
    return ordered[ceil(_USUAL * len(ordered)) - 1]


def share_of(kind: TransitionKind, counts: Mapping[TransitionKind, float]) -> float:
    """Return the share of one kind among itself and the commits, 0 to 1."""
    number = counts.get(kind, 0)
    return number / (number + counts.get(TransitionKind.COMMIT, 0)) if number else 0.0


def rate_changes(
    now: Mapping[TransitionKind, float],
    habits: Mapping[TransitionKind, Habit],
    *,
    factor: float,
    least: float,
) -> Iterable[RateChange]:
    """Yield what happens more often than usual: by number, and by share, so that mere load is no change.

    `now` are the counts of one hour; fewer than `least` are never reported.
    """
    for kind, habit in habits.items():
        number = now.get(kind, 0)
        if number >= least and number > factor * habit.most and share_of(kind, now) > _bound(habit, factor):
            yield RateChange(kind, int(number), habit)


def _bound(habit: Habit, factor: float) -> float:
    """Return the share that is unusual: a multiple, but always one that can be reached."""
    share = max(habit.share, _LOWEST_SHARE)
    return min(factor * share, (1 + share) / 2)
