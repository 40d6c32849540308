"""How incidents go on: those that are known and the groups of now in, what changes out.

1. A group whose cause is the cause of an open incident is that incident.
2. While the cause of an open incident is over for less than SETTLE_MS, effects that nothing else explains
   stay in it: they are polled less often than their cause.
3. A group whose cause was that of an incident closed within REOPEN_MS reopens it; so does what follows from
   that cause and is found before it (`returning_causes`).
4. A group with the cause of an open incident among its effects goes on with that incident's number: its
   cause was found later than its effect. So does, after SETTLE_MS, an effect that is left without a cause.
   Of several incidents the first takes the group, and the others close as merged into it.
5. Every other group opens an incident; an incident without a group closes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.facts import Severity
from fenceline.incidents.findings import FindingKey
from fenceline.incidents.grouping import IncidentGroup
from fenceline.severity import worst_severity

REOPEN_MS = 600_000
SETTLE_MS = 120_000


@dataclass(frozen=True, slots=True)
class KnownIncident:
    """An incident as it was after the tick before; one that is closed has no effects."""

    number: int
    cause: FindingKey
    severity: Severity
    effects: frozenset[FindingKey] = frozenset()
    #: Since when the cause is over while effects are left; None while it is open.
    cause_over_ms: int | None = None
    closed_ms: int | None = None

    @property
    def members(self) -> frozenset[FindingKey]:
        """Return the cause and its effects."""
        return self.effects | {self.cause}


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """One incident after a tick; without `before` it is new, without `group` it closes."""

    before: KnownIncident | None
    group: IncidentGroup | None
    severity: Severity
    cause_over_ms: int | None = None
    #: Causes of the incidents that a closing one is merged into.
    merged_into: tuple[FindingKey, ...] = ()
    added: tuple[FindingKey, ...] = ()
    removed: tuple[FindingKey, ...] = ()

    @property
    def is_opened(self) -> bool:
        return self.before is None

    @property
    def is_reopened(self) -> bool:
        return self.before is not None and self.before.closed_ms is not None

    @property
    def is_closed(self) -> bool:
        return self.group is None

    @property
    def has_new_cause(self) -> bool:
        """Whether an incident that goes on has another cause than before."""
        return bool(self.before and self.group and self.before.cause != self.group.cause)

    @property
    def is_escalated(self) -> bool:
        """Whether an incident that goes on is worse than before."""
        before = self.before
        return before is not None and before.closed_ms is None and self.severity != before.severity

    @property
    def is_change(self) -> bool:
        """Whether anything but the impact differs from the tick before."""
        if self.before is None or self.group is None or self.is_reopened or self.has_new_cause:
            return True
        before = self.before
        state = (self.severity, self.cause_over_ms) != (before.severity, before.cause_over_ms)
        return state or bool(self.added or self.removed)


@dataclass(slots=True)
class _Matching:
    """Which groups go on with which incidents, while it is decided step by step."""

    #: By cause; those that no incident has yet.
    groups: dict[FindingKey, IncidentGroup]
    #: By number; those without a group yet.
    incidents: dict[int, KnownIncident]
    pairs: list[tuple[KnownIncident | None, IncidentGroup, int | None]] = field(default_factory=list)

    def pair(self, incident: KnownIncident, group: IncidentGroup, over_ms: int | None = None) -> None:
        """Let an incident go on with a group; its cause may be over since an instant."""
        self.pairs.append((incident, group, over_ms))
        self.groups.pop(group.cause, None)
        self.incidents.pop(incident.number, None)


def follow_incidents(
    known: Iterable[KnownIncident],
    groups: Sequence[IncidentGroup],
    is_open: Container[FindingKey],
    severity_of: Callable[[IncidentGroup], Severity],
    *,
    now_ms: int,
) -> Sequence[IncidentUpdate]:
    """Return every incident that is open after a tick, and those that close in it.

    `known`: all that are open, and those that closed within REOPEN_MS; `is_open`: the keys of all open
    findings; `severity_of`: how bad a group is by its open findings.
    """
    known = sorted(known, key=lambda each: each.number)
    still_open = {each.number: each for each in known if each.closed_ms is None}
    matching = _Matching({group.cause: group for group in groups}, still_open)
    _match_same(matching, is_open)
    _match_settling(matching, is_open, now_ms)
    _match_closed(matching, known, is_open, now_ms)
    _match_moved(matching, groups, is_open)
    pairs = [*matching.pairs, *((None, group, None) for group in matching.groups.values())]
    updates = [_updated(before, group, over_ms, severity_of(group)) for before, group, over_ms in pairs]
    return [*updates, *_closing(matching.incidents.values(), groups)]


def returning_causes(known: Iterable[KnownIncident], *, now_ms: int) -> Iterator[FindingKey]:
    """Yield the causes of incidents that are open, or closed lately: those that are over may return.

    Not of incidents whose cause is over for so long that an effect becomes their cause. `known` as in
    `follow_incidents`; of several incidents with causes of one subject the newest counts.
    """
    newest = {
        each.cause.subject: each.cause
        for each in sorted(known, key=lambda each: each.number)
        if (_is_settling(each, now_ms) if each.closed_ms is None else _closed_lately(each, now_ms))
    }
    yield from newest.values()


def _closed_lately(incident: KnownIncident, now_ms: int) -> bool:
    return incident.closed_ms is not None and now_ms - incident.closed_ms <= REOPEN_MS


def _is_settling(incident: KnownIncident, now_ms: int) -> bool:
    """Whether the cause of an open incident has not been over for long."""
    return incident.cause_over_ms is None or now_ms - incident.cause_over_ms < SETTLE_MS


def _match_same(matching: _Matching, is_open: Container[FindingKey]) -> None:
    for incident in list(matching.incidents.values()):
        if incident.cause in is_open and (group := matching.groups.get(incident.cause)):
            matching.pair(incident, group)


def _match_settling(matching: _Matching, is_open: Container[FindingKey], now_ms: int) -> None:
    """Keep in each incident whose cause has just ended the effects that nothing else explains."""
    for incident in list(matching.incidents.values()):
        over_ms = now_ms if incident.cause_over_ms is None else incident.cause_over_ms
        if incident.cause in is_open or not _is_settling(incident, now_ms):
            continue
        left = [matching.groups[each] for each in sorted(incident.effects) if each in matching.groups]
        left += [matching.groups[incident.cause]] if incident.cause in matching.groups else []
        if left:
            effects = dict.fromkeys(key for group in left for key in (group.cause, *group.effects))
            effects.pop(incident.cause, None)
            matching.pair(incident, IncidentGroup(incident.cause, tuple(effects)), over_ms)
    settling = [group for _, group, over_ms in matching.pairs if over_ms is not None]
    for key in {key for group in settling for key in group.effects}:
        matching.groups.pop(key, None)


def _match_closed(
    matching: _Matching, known: Iterable[KnownIncident], is_open: Container[FindingKey], now_ms: int
) -> None:
    """Reopen what closed lately, of one cause the newest; its cause may still be to come."""
    lately = [each for each in known if _closed_lately(each, now_ms)]
    for cause, incident in {each.cause: each for each in lately}.items():
        if cause in matching.groups:
            matching.pair(incident, matching.groups[cause], None if cause in is_open else now_ms)


def _match_moved(
    matching: _Matching, groups: Iterable[IncidentGroup], is_open: Container[FindingKey]
) -> None:
    """Give groups the numbers of incidents whose cause is an effect by now, or over."""
    above = _groups_by_effect(groups)
    for incident in list(matching.incidents.values()):
        if incident.cause in is_open:
            candidates = above.get(incident.cause, ())
        else:
            candidates = [
                matching.groups[each] for each in sorted(incident.effects) if each in matching.groups
            ]
        free = next((group for group in candidates if group.cause in matching.groups), None)
        if free is not None:
            matching.pair(incident, free)


def _groups_by_effect(groups: Iterable[IncidentGroup]) -> Mapping[FindingKey, Sequence[IncidentGroup]]:
    found: dict[FindingKey, list[IncidentGroup]] = defaultdict(list)
    for group in groups:
        for key in group.effects:
            found[key].append(group)
    return found


def _updated(
    before: KnownIncident | None,
    group: IncidentGroup,
    over_ms: int | None,
    severity: Severity,
) -> IncidentUpdate:
    if before is None or before.closed_ms is not None:
        return IncidentUpdate(before, group, severity, over_ms)
    added = tuple(key for key in group.effects if key not in before.members)
    removed = tuple(sorted(before.effects - group.members))
    worst = worst_severity([severity, before.severity])
    return IncidentUpdate(before, group, worst, over_ms, added=added, removed=removed)


def _closing(left: Iterable[KnownIncident], groups: Iterable[IncidentGroup]) -> Iterator[IncidentUpdate]:
    above = _groups_by_effect(groups)
    for incident in left:
        causes = tuple(group.cause for group in above.get(incident.cause, ()))
        yield IncidentUpdate(incident, None, incident.severity, merged_into=causes)
