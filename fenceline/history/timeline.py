"""Events from every source on one time axis, with routine ones folded; series of repeated events. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from fenceline.facts import Transition, TransitionKind

#: Transitions of which a healthy application may have thousands in a minute.
ROUTINE = (TransitionKind.CLIENT_ABORT, TransitionKind.EMPTY_ABORT, TransitionKind.REINIT)
_MINUTE_MS = 60_000


class EventSource(StrEnum):
    """The source of an event."""

    TRANSITION = "transition"
    FINDING = "finding"
    INCIDENT = "incident"
    ALERT = "alert"
    DELIVERY = "delivery"
    ACTION = "action"
    RECOVERY = "recovery"
    COORDINATOR = "coordinator"


class EventPlace(NamedTuple):
    """An event's sort key: instant in µs since 1970, number of its stream, and of its row."""

    at_us: int
    stream: int
    row: int


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One event.

    `what` is a word of its source: the kind of a transition, the change of a finding. `subject` is
    `kind:name`, "" for none. `number` is the key of its subject's page, if it has one. A folded event counts
    the events that it represents, and is at the begin of their minute; others have a `count` of 0.
    """

    place: EventPlace
    source: EventSource
    what: str
    cluster: str
    subject: str
    text: str
    number: int = 0
    application: str = ""
    severity: str = ""
    #: The confidence of a transition, "" for other sources and folded events.
    confidence: str = ""
    count: int = 0

    @property
    def at_ms(self) -> int:
        """Return its instant in ms since 1970."""
        return self.place.at_us // 1_000


class RoutineCount(NamedTuple):
    """The number of an application's routine transitions of one kind in the minute from `at_ms` on."""

    at_ms: int
    cluster: str
    application: str
    kind: TransitionKind
    number: int


def fold_routine(counts: Iterable[RoutineCount], *, from_ms: int, stream: int) -> Sequence[TimelineEvent]:
    """Return one event per count, the newest first; no event is before `from_ms`."""
    clipped = sorted(count._replace(at_ms=max(count.at_ms, from_ms)) for count in counts)
    return [
        TimelineEvent(
            EventPlace(at_ms * 1_000, stream, row),
            EventSource.TRANSITION,
            count.kind,
            count.cluster,
            f"application:{count.application}",
            "",
            application=count.application,
            count=count.number,
        )
        for at_ms, of_minute in groupby(clipped, key=lambda count: count.at_ms)
        for row, count in enumerate(of_minute, 1)
    ][::-1]


def minute_of(at_ms: int) -> int:
    """Return the start of an instant's minute, in ms since 1970."""
    return at_ms - at_ms % _MINUTE_MS


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
