"""Write incidents, in the evaluation's transaction that writes findings, under the same lease.

Earlier rows are read in that transaction. A tick without changes writes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from dashboard.incidents.endings import outcome_of
from dashboard.incidents.queries import REVISED, facts_as_json, stored_facts
from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding, IncidentRevision
from dashboard.runtime.sql import in_portions, update_rows
from dashboard.system import owners
from fenceline.facts import Severity
from fenceline.findings import is_worse, severity_rank
from fenceline.grouping import grouped
from fenceline.incidents.causality import ThingLinks, snapshot_links
from fenceline.incidents.facts import FactsReader, are_news, damage_since_ms
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
from fenceline.incidents.sentences import IncidentFacts
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot

_COLUMNS = [
    "rule", "subject", "instance", "severity", "since_ms", "reopened_ms", "closed_ms", "cause_over_ms",
    "owner", "deadline_ms", "impact", "peak", "facts", "outcome", "acknowledged_ms", "acknowledged_by",
]  # fmt: skip
#: Milliseconds in which a closed incident's outcome may still become known, because actions are attributed
#: late.
_OUTCOME_MS = 10_000
_MERGED = "Its cause follows from"
Role = IncidentFinding.Role
Kind = IncidentEventKind
Members = Mapping[int, Sequence[IncidentFinding]]


class GroupingFacts(NamedTuple):
    """Facts for incidents from a snapshot, besides the findings."""

    links: ThingLinks = ThingLinks()
    figures: ImpactFigures = ImpactFigures()
    snapshot: Snapshot = Snapshot()


def incident_facts(snapshot: Snapshot, *, now_ms: int) -> GroupingFacts:
    figures = impact_figures(snapshot, now_ms=now_ms, limits=settings.FENCELINE.limits)
    return GroupingFacts(snapshot_links(snapshot), figures, snapshot)


def save_incidents(
    cluster_id: int, findings: Collection[FindingRecord], facts: GroupingFacts, *, now_ms: int
) -> bool:
    """Update the incidents of a cluster from all of its open findings; return whether a row was written.

    The caller's transaction must hold the lease that guards findings.
    """
    # The open incidents, and the closed ones that may be reopened.
    lately = Q(closed_ms=None) | Q(closed_ms__gte=now_ms - REOPEN_MS)
    rows = {row.pk: row for row in Incident.objects.filter(lately, cluster_id=cluster_id)}
    if not rows and not findings:
        return False
    members = _open_members(rows)
    known = [_known(row, members[row.pk]) for row in rows.values()]
    groups = group_findings(findings, facts.links, returning_causes(known, now_ms=now_ms))
    damage = _GroupDamage(findings, facts, settings.FENCELINE.limits, now_ms)
    updates = follow_incidents(known, groups, damage.instances, damage.severity_of, now_ms=now_ms)
    return _IncidentWriter(cluster_id, rows, members, damage, now_ms).write(updates)


def _open_members(rows: Mapping[int, Incident]) -> Members:
    is_open = {
        "incident__cluster_id__in": {row.cluster_id for row in rows.values()},
        "incident__closed_ms": None,
    }
    members = IncidentFinding.objects.filter(until_ms=None, **is_open)
    return grouped((row.incident_id, row) for row in members)


def _known(row: Incident, members: Sequence[IncidentFinding]) -> KnownIncident:
    effects = frozenset(
        FindingKey(member.rule, member.subject) for member in members if member.role == Role.EFFECT
    )
    cause = FindingKey(row.rule, row.subject)
    return KnownIncident(
        row.pk, cause, Severity(row.severity), effects, row.cause_over_ms, row.closed_ms, row.instance
    )


class _GroupDamage:
    """Damage and deadline of groups of open findings, looked up once for each group."""

    def __init__(
        self, findings: Collection[FindingRecord], facts: GroupingFacts, limits: Limits, now_ms: int
    ) -> None:
        self.findings = {key_of(finding): finding for finding in findings}
        self.instances = {key: finding.instance for key, finding in self.findings.items()}
        self._figures, self._limits, self._now_ms = facts.figures, limits, now_ms
        self._reader = FactsReader(
            facts.snapshot, now_ms=now_ms, limits=limits, blocked=facts.figures.blocked
        )
        self._impacts: dict[IncidentGroup, IncidentImpact] = {}

    def impact_of(self, group: IncidentGroup) -> IncidentImpact:
        if group not in self._impacts:
            self._impacts[group] = impact_of(group.cause, self._open(group), self._figures)
        return self._impacts[group]

    def severity_of(self, group: IncidentGroup) -> Severity:
        return incident_severity(self._open(group), self.impact_of(group), limits=self._limits)

    def deadline_of(self, group: IncidentGroup) -> int | None:
        return first_deadline(self._open(group))

    def since_ms_of(self, group: IncidentGroup) -> int:
        return damage_since_ms(group.cause, self._open(group), self._now_ms)

    def facts_of(self, row: Incident, group: IncidentGroup, over_ms: int | None) -> IncidentFacts:
        """Return the facts of an incident with a group; after its cause's end, the earlier facts."""
        findings, known = self._open(group), stored_facts(row)
        if over_ms is not None and known is not None:
            return replace(
                known,
                cause_over_ms=over_ms,
                left_summary=findings[0].summary,
                deadline_ms=self.deadline_of(group),
            )
        return self._reader.facts_of(
            group.cause,
            findings,
            self.impact_of(group),
            since_ms=row.since_ms,
            deadline_ms=self.deadline_of(group),
        )

    def owner_of(self, group: IncidentGroup) -> str:
        """Return the team of the cause, else of the oldest effect with a team."""
        teams = (owners.of_finding(finding) for finding in self._open(group))
        return next((owner.team for owner in teams if owner), "")

    def members_of(self, group: IncidentGroup) -> Mapping[FindingKey, str]:
        """Return the roles of a group's open findings, the cause first."""
        roles = {} if group.is_cause_over else {group.cause: Role.CAUSE.value}
        roles |= dict.fromkeys(group.effects, Role.EFFECT.value)
        return {key: role for key, role in roles.items() if key in self.findings}

    def _open(self, group: IncidentGroup) -> Sequence[FindingRecord]:
        """Return the open findings of a group, the cause first; else the worst effect first."""
        findings = [self.findings[key] for key in self.members_of(group)]
        is_over = group.is_cause_over or group.cause not in self.findings
        return sorted(findings, key=lambda row: -severity_rank(row.severity)) if is_over else findings


class _IncidentWriter:
    """Collects the changes of one tick, and writes them table by table."""

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
        """Write differences; return whether there were any."""
        for update in updates:
            if update.is_opened:
                self._open(update)
            else:
                self._go_on(update)
        self._learn_outcomes()
        Incident.objects.bulk_create(self._opened)
        update_rows(self._changed, _COLUMNS)
        for ended in in_portions(IncidentFinding.objects.all(), "pk", self._left):
            ended.update(until_ms=self._now_ms)
        IncidentFinding.objects.bulk_create(self._joined, batch_size=500)
        IncidentEvent.objects.bulk_create(self._events, batch_size=500)
        revised = [_revision(row, self._now_ms) for row in (*self._opened, *self._changed)]
        IncidentRevision.objects.bulk_create(revised, batch_size=500)
        return bool(self._opened or self._changed)

    def _open(self, update: IncidentUpdate) -> None:
        row = Incident(cluster_id=self._cluster_id, opened_ms=self._now_ms, since_ms=self._now_ms)
        self._opened.append(row)
        self._set(row, update)
        self._note_events(row, update)
        self._join(row, update)

    def _go_on(self, update: IncidentUpdate) -> None:
        if update.before is None:
            return
        row = self._rows[update.before.number]
        if not (update.is_change or self._is_news(row, update) or self._has_new_rows(row, update)):
            return
        self._changed.append(row)
        self._set(row, update)
        self._note_events(row, update)
        self._join(row, update)

    def _is_news(self, row: Incident, update: IncidentUpdate) -> bool:
        """Whether the impact or the facts of a continuing incident differ from its row."""
        if update.group is None:
            return False
        known = stored_facts(row)
        if known is None or self._damage.impact_of(update.group).is_news(IncidentImpact(**row.impact)):
            return True
        return are_news(self._damage.facts_of(row, update.group, update.cause_over_ms), known)

    def _has_new_rows(self, row: Incident, update: IncidentUpdate) -> bool:
        """Whether a finding of an incident has another row now, for another instance of its subject."""
        if update.group is None:
            return False
        members = {key_of_member(member): member.finding for member in self._members.get(row.pk, ())}
        now = self._damage.members_of(update.group)
        return any(members.get(key) != self._damage.findings[key].pk for key in now)

    def _set(self, row: Incident, update: IncidentUpdate) -> None:
        """Set a row's state after this tick; a closing incident keeps its cause, deadline and impact."""
        row.cause_over_ms = update.cause_over_ms
        row.closed_ms = self._now_ms if update.is_closed else None
        row.reopened_ms = self._now_ms if update.is_reopened else row.reopened_ms
        self._set_severity(row, update)
        if update.group is None:
            row.outcome = _merged(update) or outcome_of(row)
            return
        row.outcome = ""
        row.rule, row.subject = update.group.cause
        if not update.group.is_cause_over:
            row.instance = self._damage.instances.get(update.group.cause) or row.instance
            row.since_ms = min(row.since_ms, self._damage.since_ms_of(update.group))
        self._set_damage(row, update.group, update.cause_over_ms)
        if update.is_opened or update.has_new_cause or (update.added and not row.owner):
            row.owner = self._damage.owner_of(update.group)

    def _set_severity(self, row: Incident, update: IncidentUpdate) -> None:
        """Set the severity; an acknowledgement lapses if the severity got worse."""
        if row.acknowledged_ms is not None and is_worse(update.severity, row.severity):
            text = f"{row.acknowledged_by} had acknowledged a {row.severity}"
            self._event(row, Kind.UNACKNOWLEDGED, FindingKey(row.rule, row.subject), text)
            row.acknowledged_ms, row.acknowledged_by = None, ""
        row.severity = update.severity

    def _set_damage(self, row: Incident, group: IncidentGroup, over_ms: int | None) -> None:
        impact = self._damage.impact_of(group)
        row.impact = impact._asdict()
        row.peak = (impact.worst_with(IncidentImpact(**row.peak)) if row.peak else impact)._asdict()
        row.deadline_ms = self._damage.deadline_of(group)
        row.facts = facts_as_json(self._damage.facts_of(row, group, over_ms))

    def _learn_outcomes(self) -> None:
        """Update the outcomes of recently closed incidents if more is known now."""
        for row in self._rows.values():
            is_fresh = row.closed_ms is not None and 0 < self._now_ms - row.closed_ms <= _OUTCOME_MS
            if is_fresh and not row.outcome.startswith(_MERGED):
                outcome = outcome_of(row)
                if outcome and outcome != row.outcome:
                    row.outcome = outcome
                    self._changed.append(row)

    def _join(self, row: Incident, update: IncidentUpdate) -> None:
        """Add findings that join or change their role; end findings that leave."""
        wanted = self._damage.members_of(update.group) if update.group else {}
        present = {key_of_member(member): member for member in self._members.get(row.pk or 0, ())}
        stays = {
            key
            for key, member in present.items()
            if wanted.get(key) == member.role and self._damage.findings[key].pk == member.finding
        }
        self._left += [member.pk for key, member in present.items() if key not in stays]
        for key, role in wanted.items():
            if key not in stays:
                self._joined.append(self._member(row, self._damage.findings[key], role))

    def _member(self, row: Incident, finding: FindingRecord, role: str) -> IncidentFinding:
        return IncidentFinding(
            incident=row,
            finding=finding.pk,
            role=role,
            since_ms=self._now_ms,
            **{name: getattr(finding, name) for name in ("rule", "subject", "severity", "summary")},
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
    """Return the key of the finding that an incident's row represents."""
    return FindingKey(row.rule, row.subject)


def _revision(row: Incident, at_ms: int) -> IncidentRevision:
    return IncidentRevision(
        incident=row,
        at_ms=at_ms,
        **{name: getattr(row, name) for name in REVISED},
    )


def _merged(update: IncidentUpdate) -> str:
    causes = ", ".join(f"{cause.rule} of {cause.subject}" for cause in update.merged_into)
    return f"{_MERGED} {causes}." if causes else ""


def _before(update: IncidentUpdate) -> str:
    return f"before: {update.before.cause.rule} of {update.before.cause.subject}" if update.before else ""
