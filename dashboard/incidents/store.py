"""Write incidents, in the transaction of the evaluation that writes findings, under the same lease.

What is known is read in that transaction. A tick in which nothing changes writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.system import owners
from fenceline.facts import Severity
from fenceline.incidents.causality import ThingLinks, snapshot_links
from fenceline.incidents.findings import FindingKey, IncidentEventKind, key_of
from fenceline.incidents.grouping import IncidentGroup, group_findings
from fenceline.incidents.impact import (
    ImpactFigures,
    IncidentImpact,
    first_deadline,
    impact_figures,
    impact_of,
    incident_severity,
)
from fenceline.incidents.lifecycle import (
    REOPEN_MS,
    IncidentUpdate,
    KnownIncident,
    follow_incidents,
    returning_causes,
)
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot

_COLUMNS = [
    "rule", "subject", "severity", "reopened_ms", "closed_ms", "cause_over_ms", "owner", "deadline_ms",
    "impact",
]  # fmt: skip
#: By so little a deadline may move without news: clocks are compared again and again.
_SAME_DEADLINE_MS = 1_000
Role = IncidentFinding.Role
Kind = IncidentEventKind
Members = Mapping[int, Sequence[IncidentFinding]]


class GroupingFacts(NamedTuple):
    """What incidents take from a snapshot, beside the findings themselves."""

    links: ThingLinks = ThingLinks()
    figures: ImpactFigures = ImpactFigures()


def incident_facts(snapshot: Snapshot) -> GroupingFacts:
    """Return what incidents take from a snapshot."""
    return GroupingFacts(snapshot_links(snapshot), impact_figures(snapshot))


def save_incidents(
    cluster_id: int, findings: Collection[FindingRecord], facts: GroupingFacts, *, now_ms: int
) -> bool:
    """Follow the incidents of a cluster by all of its open findings; return whether any row was written.

    The caller's transaction holds the lease that guards findings.
    """
    rows = _known_rows(cluster_id, now_ms)
    if not rows and not findings:
        return False
    members = _open_members(rows)
    known = [_known(row, members[row.pk]) for row in rows.values()]
    groups = group_findings(findings, facts.links, returning_causes(known, now_ms=now_ms))
    damage = _GroupDamage(findings, facts.figures, settings.FENCELINE.limits)
    updates = follow_incidents(known, groups, damage.findings, damage.severity_of, now_ms=now_ms)
    return _IncidentWriter(cluster_id, rows, members, damage, now_ms).write(updates)


def _known_rows(cluster_id: int, now_ms: int) -> Mapping[int, Incident]:
    """Return the incidents that are open, and those that may be reopened."""
    lately = Q(closed_ms=None) | Q(closed_ms__gte=now_ms - REOPEN_MS)
    return {row.pk: row for row in Incident.objects.filter(lately, cluster_id=cluster_id)}


def _open_members(rows: Mapping[int, Incident]) -> Members:
    found: dict[int, list[IncidentFinding]] = defaultdict(list)
    is_open = {
        "incident__cluster_id__in": {row.cluster_id for row in rows.values()},
        "incident__closed_ms": None,
    }
    for row in IncidentFinding.objects.filter(until_ms=None, **is_open):
        found[row.incident_id].append(row)
    return found


def _known(row: Incident, members: Sequence[IncidentFinding]) -> KnownIncident:
    effects = frozenset(FindingKey(each.rule, each.subject) for each in members if each.role == Role.EFFECT)
    cause = FindingKey(row.rule, row.subject)
    return KnownIncident(row.pk, cause, Severity(row.severity), effects, row.cause_over_ms, row.closed_ms)


class _GroupDamage:
    """What groups of open findings cost, and by when: looked up once for each group."""

    def __init__(self, findings: Collection[FindingRecord], figures: ImpactFigures, limits: Limits) -> None:
        self.findings = {key_of(each): each for each in findings}
        self._figures, self._limits = figures, limits
        self._impacts: dict[IncidentGroup, IncidentImpact] = {}

    def impact_of(self, group: IncidentGroup) -> IncidentImpact:
        if group not in self._impacts:
            self._impacts[group] = impact_of(group.cause, self._open(group), self._figures)
        return self._impacts[group]

    def severity_of(self, group: IncidentGroup) -> Severity:
        return incident_severity(self._open(group), self.impact_of(group), limits=self._limits)

    def deadline_of(self, group: IncidentGroup) -> int | None:
        return first_deadline(self._open(group))

    def owner_of(self, group: IncidentGroup) -> str:
        """Return the team of the cause; without one, of the oldest effect that has one."""
        teams = (owners.of_finding(each) for each in self._open(group))
        return next((owner.team for owner in teams if owner), "")

    def _open(self, group: IncidentGroup) -> Sequence[FindingRecord]:
        """Return the open findings of a group, the cause first."""
        keys = (group.cause, *group.effects)
        return [self.findings[key] for key in keys if key in self.findings]


class _IncidentWriter:
    """Collects what one tick changes, and writes it table by table."""

    def __init__(
        self,
        cluster_id: int,
        rows: Mapping[int, Incident],
        members: Members,
        damage: _GroupDamage,
        now_ms: int,
    ) -> None:
        self._cluster_id, self._now_ms = cluster_id, now_ms
        self._rows, self._members, self._damage = rows, members, damage
        self._opened: list[Incident] = []
        self._changed: list[Incident] = []
        self._joined: list[IncidentFinding] = []
        self._left: list[int] = []
        self._events: list[IncidentEvent] = []

    def write(self, updates: Sequence[IncidentUpdate]) -> bool:
        """Write what differs; return whether anything does."""
        for update in updates:
            if update.is_opened:
                self._open(update)
            else:
                self._go_on(update)
        Incident.objects.bulk_create(self._opened)
        Incident.objects.bulk_update(sorted(self._changed, key=_number), _COLUMNS, batch_size=100)
        for at in range(0, len(self._left), 500):
            ended = IncidentFinding.objects.filter(pk__in=self._left[at : at + 500])
            ended.update(until_ms=self._now_ms)
        IncidentFinding.objects.bulk_create(self._joined, batch_size=500)
        IncidentEvent.objects.bulk_create(self._events, batch_size=500)
        return bool(self._opened or self._changed)

    def _open(self, update: IncidentUpdate) -> None:
        row = Incident(cluster_id=self._cluster_id, opened_ms=self._now_ms)
        self._opened.append(row)
        self._set(row, update)
        self._note_events(row, update)
        self._join(row, update)

    def _go_on(self, update: IncidentUpdate) -> None:
        if update.before is None:
            return
        row = self._rows[update.before.number]
        if not (update.is_change or self._is_news(row, update)):
            return
        self._changed.append(row)
        self._set(row, update)
        self._note_events(row, update)
        self._join(row, update)

    def _is_news(self, row: Incident, update: IncidentUpdate) -> bool:
        """Whether the impact or the deadline of an incident that goes on differs from what its row has."""
        if update.group is None:
            return False
        if not row.impact or self._damage.impact_of(update.group).is_news(IncidentImpact(**row.impact)):
            return True
        before, now = row.deadline_ms, self._damage.deadline_of(update.group)
        if before is None or now is None:
            return before != now
        return abs(now - before) > _SAME_DEADLINE_MS

    def _set(self, row: Incident, update: IncidentUpdate) -> None:
        """Give a row what it is after this tick; one that closes keeps its cause, deadline and impact."""
        row.severity = update.severity
        row.cause_over_ms = update.cause_over_ms
        row.closed_ms = self._now_ms if update.is_closed else None
        row.reopened_ms = self._now_ms if update.is_reopened else row.reopened_ms
        if update.group is not None:
            row.rule, row.subject = update.group.cause
            row.impact = self._damage.impact_of(update.group)._asdict()
            row.deadline_ms = self._damage.deadline_of(update.group)
            if update.is_opened or update.has_new_cause or (update.added and not row.owner):
                row.owner = self._damage.owner_of(update.group)

    def _join(self, row: Incident, update: IncidentUpdate) -> None:
        """Add the findings that come in, or change their role; end what leaves."""
        group = update.group
        wanted = dict.fromkeys(group.effects, Role.EFFECT) | {group.cause: Role.CAUSE} if group else {}
        present = {key_of_member(each): each for each in self._members.get(row.pk or 0, ())}
        stays = {key for key, each in present.items() if wanted.get(key) == each.role}
        stays &= self._damage.findings.keys()
        self._left += [each.pk for key, each in present.items() if key not in stays]
        for key, role in wanted.items():
            finding = self._damage.findings.get(key)
            if finding is not None and key not in stays:
                self._joined.append(self._member(row, finding, role))

    def _member(self, row: Incident, finding: FindingRecord, role: str) -> IncidentFinding:
        return IncidentFinding(
            incident=row,
            finding=finding.pk,
            rule=finding.rule,
            subject=finding.subject,
            role=role,
            severity=finding.severity,
            summary=finding.summary,
            since_ms=self._now_ms,
        )

    def _note_events(self, row: Incident, update: IncidentUpdate) -> None:
        if update.group is None:
            self._event(row, Kind.CLOSED, FindingKey(row.rule, row.subject), _merged(update))
        elif update.is_opened or update.is_reopened:
            self._event(row, Kind.OPENED if update.is_opened else Kind.REOPENED, update.group.cause)
        elif update.has_new_cause:
            self._event(row, Kind.CAUSE_CHANGED, update.group.cause, _before(update))
        if update.is_escalated and update.before is not None:
            text = f"{update.before.severity} to {update.severity}"
            self._event(row, Kind.ESCALATED, FindingKey(row.rule, row.subject), text)
        for key in update.added:
            self._event(row, Kind.EFFECT_ADDED, key)
        for key in update.removed:
            self._event(row, Kind.EFFECT_REMOVED, key)

    def _event(self, row: Incident, kind: IncidentEventKind, key: FindingKey, text: str = "") -> None:
        event = IncidentEvent(incident=row, at_ms=self._now_ms, kind=kind, text=text)
        event.rule, event.subject = key
        self._events.append(event)


def key_of_member(row: IncidentFinding) -> FindingKey:
    """Return the key of the finding that a row of an incident stands for."""
    return FindingKey(row.rule, row.subject)


def _merged(update: IncidentUpdate) -> str:
    causes = ", ".join(f"{cause.rule} of {cause.subject}" for cause in update.merged_into)
    return f"its cause follows from {causes}" if causes else ""


def _before(update: IncidentUpdate) -> str:
    return f"before: {update.before.cause.rule} of {update.before.cause.subject}" if update.before else ""


def _number(row: Incident) -> int:
    return row.pk
