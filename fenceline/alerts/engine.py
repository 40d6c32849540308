"""Findings over time: when an alert is pending, fires, ends, and flaps, by the limits of `[alerts]`. Pure.

For each finding, the evaluator counts the complete ticks that found it and the later ones that missed it; a
tick that could not see it does not count. So this may run at any interval: it misses no finding that opened
and closed between two runs, and a repeated run changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fenceline.findings import is_worse
from fenceline.formatting import count_noun, format_duration

PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"


@dataclass(frozen=True, slots=True)
class Alerting:
    """When alerts fire and how they are notified; `_s` are seconds, `_ticks` evaluations, one a second."""

    #: Complete ticks that find a finding before it fires, and that miss it before it resolves.
    for_ticks: int = 2
    resolve_ticks: int = 2
    #: As in Alertmanager: how long a group's first message waits for more alerts, the interval of later ones,
    #: and the interval of repeats while alerts fire.
    group_wait_s: float = 30.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 14_400.0
    group_by: tuple[str, ...] = ("cluster", "incident")
    #: Openings within the window that make an alert flap: it keeps firing until it is quiet for the window.
    flap_openings: int = 5
    flap_s: float = 600.0
    #: How long a delivery is retried, with growing pauses.
    retry_for_s: float = 3_600.0
    timeout_s: float = 10.0
    #: Consecutive failed messages that disable a channel.
    disable_after: int = 10
    #: Permitted receivers at private addresses: CIDRs, host names, or one port of a host, HOST:PORT.
    allow_private: tuple[str, ...] = ()
    #: The dashboard's address for people: links in messages begin with it.
    external_url: str = "http://127.0.0.1:8000"


#: HOST:PORT, for an IPv6 address [ADDRESS]:PORT; a CIDR has no port.
_ONE_PORT = re.compile(r"(\[[^\]/]+\]|[^:/\[\]]+):([0-9]{1,5})")


def split_port(entry: str) -> tuple[str, int | None]:
    """Return the host or CIDR of an entry of `allow_private`, and its port; None for every port."""
    match = _ONE_PORT.fullmatch(entry)
    return (match[1], int(match[2])) if match else (entry, None)


class FindingObservation(NamedTuple):
    """One finding's present row; an alert may have several, one after another."""

    #: Grows from row to row.
    number: int
    is_open: bool
    #: Whether the last tick could see its subject, while it is open.
    complete: bool
    #: Number of complete ticks that found it.
    ticks: int
    #: Complete ticks that must still miss a closed finding; below 0: it was found again before.
    to_miss: int
    severity: str
    since_ms: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    affected: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AlertState:
    """The state of an alert; the names are those of the table's columns."""

    state: str
    severity: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    affected: Sequence[str]
    since_ms: int
    seen_ms: int
    finding: int
    fired_ms: int | None = None
    resolved_ms: int | None = None
    ticks: int = 0
    openings: Sequence[int] = field(default_factory=list)
    flapping_ms: int | None = None
    loud_ms: int | None = None


class StateChange(NamedTuple):
    """One change that channels may be notified of, with the alert at that moment."""

    old: str
    new: str
    at_ms: int
    state: AlertState


def advance_alert(
    known: AlertState | None, observations: Sequence[FindingObservation], *, now_ms: int, limits: Alerting
) -> tuple[AlertState | None, list[StateChange]]:
    """Return an alert's new state, and its changes: it began to fire, got worse, or ended.

    `observations` are the rows of its finding, in order: the open one, unsettled ones, and rows since the
    last run. Without any the alert has ended, whatever its state was.
    """
    changes: list[StateChange] = []
    rows: Sequence[FindingObservation | None] = observations or [None]
    for observation in rows:
        known, changed = _step(known, observation, now_ms, limits)
        changes += changed
    return known, changes


def why_pending(known: AlertState, limits: Alerting) -> str:
    return f"found in {known.ticks} of {count_noun(max(1, limits.for_ticks), 'complete tick')}"


def why_flapping(known: AlertState, limits: Alerting) -> str:
    """Return why an alert keeps firing although its finding comes and goes; "" if it does not flap."""
    if known.flapping_ms is None:
        return ""
    within = format_duration(int(limits.flap_s * 1_000))
    opened = count_noun(len(known.openings), "time")
    return f"it opened {opened} within {within}: it keeps firing until {within} pass without a finding"


def _step(
    known: AlertState | None, observation: FindingObservation | None, now_ms: int, limits: Alerting
) -> tuple[AlertState | None, list[StateChange]]:
    if known is None or known.state == RESOLVED:
        return _idle(known, observation, now_ms, limits)
    if known.state == PENDING:
        return _pending(known, observation, now_ms, limits)
    return _firing(known, observation, now_ms, limits)


def _idle(
    known: AlertState | None, observation: FindingObservation | None, now_ms: int, limits: Alerting
) -> tuple[AlertState | None, list[StateChange]]:
    """Handle an unknown or ended alert: a new row opens it."""
    followed = known.finding if known else 0
    if (
        observation is None
        or observation.number <= followed
        or (observation.is_open and not observation.complete)
    ):
        return known, []
    openings = known.openings if known else []
    begun = AlertState(
        PENDING,
        observation.severity,
        observation.labels,
        observation.annotations,
        list(observation.affected),
        observation.since_ms,
        now_ms,
        observation.number,
        openings=openings,
    )
    return _pending(begun, observation, now_ms, limits)


def _pending(
    known: AlertState, observation: FindingObservation | None, now_ms: int, limits: Alerting
) -> tuple[AlertState | None, list[StateChange]]:
    if observation is None or observation.number < known.finding:
        return (_over(known, now_ms), []) if observation is None else (known, [])
    if observation.is_open and not observation.complete:
        return known, []
    known = _worded(known, observation)
    if observation.ticks >= max(1, limits.for_ticks):
        fired, changes = _fire(known, now_ms, limits)
        after, more = _firing(fired, observation, now_ms, limits)
        return after, [*changes, *more]
    if observation.is_open:
        return replace(known, ticks=observation.ticks), []
    return _over(known, now_ms), []


def _firing(
    known: AlertState, observation: FindingObservation | None, now_ms: int, limits: Alerting
) -> tuple[AlertState | None, list[StateChange]]:
    if observation is None:
        return _end(_missed(known, max(1, limits.resolve_ticks), now_ms), now_ms, limits)
    if observation.number < known.finding or (observation.is_open and not observation.complete):
        return known, []
    if observation.number > known.finding:
        known = _reopened(known, observation, now_ms, limits)
    worded = _worded(known, observation)
    worse = is_worse(worded.severity, known.severity)
    changes = [StateChange(FIRING, FIRING, now_ms, worded)] if worse else []
    if observation.is_open or observation.to_miss < 0:
        return _steady(worded, now_ms, limits), changes
    needed = max(1, limits.resolve_ticks)
    missed = _missed(worded, max(1, needed - observation.to_miss), now_ms)
    if observation.to_miss > 0:
        return missed, changes
    after, more = _end(missed, now_ms, limits)
    return after, [*changes, *more]


def _fire(known: AlertState, now_ms: int, limits: Alerting) -> tuple[AlertState, list[StateChange]]:
    fired = replace(
        known, state=FIRING, fired_ms=now_ms, resolved_ms=None, ticks=0, seen_ms=now_ms, loud_ms=now_ms
    )
    fired = _opened(fired, now_ms, limits)
    return fired, [StateChange(known.state, FIRING, now_ms, fired)]


def _reopened(
    known: AlertState, observation: FindingObservation, now_ms: int, limits: Alerting
) -> AlertState:
    """Follow the next row; it counts as an opening if the alert was held only because it flaps."""
    known = replace(known, finding=observation.number)
    held = known.ticks >= max(1, limits.resolve_ticks)
    return _opened(known, now_ms, limits) if held else known


def _opened(known: AlertState, now_ms: int, limits: Alerting) -> AlertState:
    recent = [at for at in known.openings if now_ms - at < limits.flap_s * 1_000]
    most = max(2, limits.flap_openings)
    openings = [*recent, now_ms][-most:]
    flapping = known.flapping_ms
    if len(openings) >= most and flapping is None:
        flapping = now_ms
    return replace(known, openings=openings, flapping_ms=flapping)


def _steady(known: AlertState, now_ms: int, limits: Alerting) -> AlertState:
    """Handle a found alert: it stops flapping after a while without a new opening."""
    calm = not known.openings or now_ms - known.openings[-1] >= limits.flap_s * 1_000
    return replace(known, ticks=0, flapping_ms=None if calm else known.flapping_ms)


def _missed(known: AlertState, ticks: int, now_ms: int) -> AlertState:
    if known.ticks >= ticks:
        return known
    return replace(known, ticks=ticks, seen_ms=known.seen_ms if known.ticks else now_ms)


def _end(known: AlertState, now_ms: int, limits: Alerting) -> tuple[AlertState, list[StateChange]]:
    """End the alert, unless it flaps and has not been quiet for long enough."""
    if known.flapping_ms is not None and now_ms - known.seen_ms < limits.flap_s * 1_000:
        return known, []
    over = _over(known, now_ms)
    return over, [StateChange(FIRING, RESOLVED, now_ms, over)]


def _over(known: AlertState, now_ms: int) -> AlertState:
    return replace(known, state=RESOLVED, resolved_ms=now_ms, ticks=0, flapping_ms=None, loud_ms=None)


def _worded(known: AlertState, observation: FindingObservation) -> AlertState:
    """Copy severity and words from the finding."""
    return replace(
        known,
        severity=observation.severity,
        labels=observation.labels,
        annotations=observation.annotations,
        affected=list(observation.affected),
        since_ms=observation.since_ms,
        finding=observation.number,
    )
