"""The life of incidents: known incidents and present groups in, changes out.

An incident is one episode: one instance of its cause (one transaction, one batch, one start; see
`facts.Finding.instance`). Another instance is another incident, for any subject.

1. A group whose cause is the instance of an open incident continues that incident, whichever rule found it.
2. For SETTLE_MS after the cause of an open incident ended, effects without another cause stay in it, because
   effects are polled less often than their cause.
3. A group whose cause is the instance of an incident that closed within REOPEN_MS reopens it.
4. A group with the cause of an open incident among its effects continues that incident's number: its cause
   was found later than its effect. So does, after SETTLE_MS, an effect left without a cause. If several
   incidents match, the first takes the group, and the others close as merged into it.
5. Every other group opens an incident; an incident without a group closes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.facts import Severity
from fenceline.findings import worst_severity
from fenceline.grouping import grouped
from fenceline.incidents.findings import FindingKey, is_same_instance
from fenceline.incidents.grouping import IncidentGroup

REOPEN_MS = 60_000
SETTLE_MS = 120_000


@dataclass(frozen=True, slots=True)
class KnownIncident:
    """An incident after the previous tick; a closed one has no effects."""

    number: int
    cause: FindingKey
    severity: Severity
    effects: frozenset[FindingKey] = frozenset()
    #: The end of the cause while effects are left; None while the cause is open.
    cause_over_ms: int | None = None
    closed_ms: int | None = None
    #: The instance of its cause, "" without one or if unknown.
    instance: str = ""

    @property
    def members(self) -> frozenset[FindingKey]:
        return self.effects | {self.cause}


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """One incident after a tick; without `before` it is new, without `group` it closes."""

    before: KnownIncident | None
    group: IncidentGroup | None
    severity: Severity
    cause_over_ms: int | None = None
    #: The causes of the incidents that a closing incident is merged into.
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
        """Whether a continuing incident has another cause than before."""
        return bool(self.before and self.group and self.before.cause != self.group.cause)

    @property
    def is_escalated(self) -> bool:
        """Whether a continuing incident is worse than before."""
        return self.before is not None and self.severity != self.before.severity

    @property
    def is_change(self) -> bool:
        """Whether anything but the impact differs from the previous tick."""
        if self.before is None or self.group is None or self.is_reopened or self.has_new_cause:
            return True
        before = self.before
        state = (self.severity, self.cause_over_ms) != (before.severity, before.cause_over_ms)
        return state or bool(self.added or self.removed)


@dataclass(slots=True)
class _Matching:
    """The matching of groups to incidents in progress."""

    #: By cause: groups without an incident yet.
    groups: dict[FindingKey, IncidentGroup]
    #: By number: incidents without a group yet.
    incidents: dict[int, KnownIncident]
    #: The instances of all open findings.
    instances: Mapping[FindingKey, str]
    pairs: list[tuple[KnownIncident | None, IncidentGroup, int | None]] = field(default_factory=list)

    def pair(self, incident: KnownIncident, group: IncidentGroup, over_ms: int | None = None) -> None:
        """Continue an incident with a group; `over_ms` is the end of its cause."""
        self.pairs.append((incident, group, over_ms))
        self.incidents.pop(incident.number, None)
        # An ended cause does not take the group of another instance.
        if not (group.is_cause_over and group.cause in self.instances):
            self.groups.pop(group.cause, None)

    def is_live(self, incident: KnownIncident) -> bool:
        """Whether the cause of an incident is open, as the same instance."""
        now = self.instances.get(incident.cause)
        return now is not None and is_same_instance(now, incident.instance)

    def groups_by_instance(self) -> Mapping[tuple[str, str], IncidentGroup]:
        """Return the free groups by subject and instance of their cause, for causes with an instance."""
        causes = {cause: self.instances.get(cause, "") for cause in self.groups}
        return {(key.subject, instance): self.groups[key] for key, instance in causes.items() if instance}


def follow_incidents(
    known: Iterable[KnownIncident],
    groups: Sequence[IncidentGroup],
    instances: Mapping[FindingKey, str],
    severity_of: Callable[[IncidentGroup], Severity],
    *,
    now_ms: int,
) -> Sequence[IncidentUpdate]:
    """Return every open incident after a tick, and those that close in it.

    `known`: all open incidents, and those that closed within REOPEN_MS; `instances`: those of all open
    findings; `severity_of`: the severity of a group from its open findings.
    """
    known = sorted(known, key=lambda incident: incident.number)
    still_open = {incident.number: incident for incident in known if incident.closed_ms is None}
    closed = [incident for incident in reversed(known) if _closed_lately(incident, now_ms)]
    matching = _Matching({group.cause: group for group in groups}, still_open, instances)
    _match_same(matching, list(still_open.values()))
    _match_settling(matching, now_ms)
    _match_same(matching, closed)
    _match_moved(matching, groups)
    pairs = [*matching.pairs, *((None, group, None) for group in matching.groups.values())]
    updates = [_updated(before, group, over_ms, severity_of(group)) for before, group, over_ms in pairs]
    return [*updates, *_closing(matching, groups)]


def returning_causes(known: Iterable[KnownIncident], *, now_ms: int) -> Mapping[FindingKey, str]:
    """Return the causes of open incidents, with their instances: ended ones may return.

    Without incidents whose cause ended long enough ago for an effect to become their cause. Of several
    incidents with causes of one subject the newest counts.
    """
    newest = {
        incident.cause.subject: incident
        for incident in sorted(known, key=lambda incident: incident.number)
        if incident.closed_ms is None and _is_settling(incident, now_ms)
    }
    return {incident.cause: incident.instance for incident in newest.values()}


def _closed_lately(incident: KnownIncident, now_ms: int) -> bool:
    return incident.closed_ms is not None and now_ms - incident.closed_ms <= REOPEN_MS


def _is_settling(incident: KnownIncident, now_ms: int) -> bool:
    """Whether the cause of an open incident ended a short time ago."""
    return incident.cause_over_ms is None or now_ms - incident.cause_over_ms < SETTLE_MS


def _match_same(matching: _Matching, incidents: Iterable[KnownIncident]) -> None:
    """Continue or reopen incidents with the group of the same instance; the first of several wins."""
    by_instance = matching.groups_by_instance()
    for incident in incidents:
        group = matching.groups.get(incident.cause) if matching.is_live(incident) else None
        group = group or by_instance.get((incident.cause.subject, incident.instance))
        if group is not None and group.cause in matching.groups:
            matching.pair(incident, group)


def _match_settling(matching: _Matching, now_ms: int) -> None:
    """Keep the effects without another cause in incidents whose cause has just ended."""
    for incident in list(matching.incidents.values()):
        over_ms = now_ms if incident.cause_over_ms is None else incident.cause_over_ms
        if matching.is_live(incident) or not _is_settling(incident, now_ms):
            continue
        returning = [incident.cause] if incident.cause not in matching.instances else []
        keys = [*sorted(incident.effects), *returning]
        groups = [matching.groups[key] for key in keys if key in matching.groups]
        if groups:
            effects = dict.fromkeys(key for group in groups for key in (group.cause, *group.effects))
            effects.pop(incident.cause, None)
            matching.pair(
                incident, IncidentGroup(incident.cause, tuple(effects), is_cause_over=True), over_ms
            )
    settling = [group for _, group, over_ms in matching.pairs if over_ms is not None]
    for key in {key for group in settling for key in group.effects}:
        matching.groups.pop(key, None)


def _match_moved(matching: _Matching, groups: Iterable[IncidentGroup]) -> None:
    """Give groups the numbers of incidents whose cause has ended, or is now an effect."""
    above = _groups_by_effect(groups)
    for incident in list(matching.incidents.values()):
        if matching.is_live(incident):
            candidates = above.get(incident.cause, ())
        else:
            effects = sorted(incident.effects)
            candidates = [matching.groups[key] for key in effects if key in matching.groups]
        free = next((group for group in candidates if group.cause in matching.groups), None)
        if free is not None:
            matching.pair(incident, free)


def _groups_by_effect(groups: Iterable[IncidentGroup]) -> Mapping[FindingKey, Sequence[IncidentGroup]]:
    return grouped((key, group) for group in groups for key in group.effects)


def _updated(
    before: KnownIncident | None,
    group: IncidentGroup,
    over_ms: int | None,
    severity: Severity,
) -> IncidentUpdate:
    if before is None:
        return IncidentUpdate(before, group, severity, over_ms)
    worst = worst_severity([severity, before.severity])
    if before.closed_ms is not None:
        return IncidentUpdate(before, group, worst, over_ms)
    added = tuple(key for key in group.effects if key not in before.members)
    removed = tuple(sorted(before.effects - group.members))
    return IncidentUpdate(before, group, worst, over_ms, added=added, removed=removed)


def _closing(matching: _Matching, groups: Iterable[IncidentGroup]) -> Iterator[IncidentUpdate]:
    above = _groups_by_effect(groups)
    for incident in matching.incidents.values():
        explained = above.get(incident.cause, ()) if matching.is_live(incident) else ()
        causes = tuple(group.cause for group in explained)
        yield IncidentUpdate(incident, None, incident.severity, merged_into=causes)
