"""Queries for incidents for pages and API, open and closed, as they are now or were at an instant."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from django.db.models import Q, QuerySet
from pydantic import TypeAdapter

from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding, IncidentRevision
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Name, Ranged, overlaps_range
from dashboard.runtime.sql import in_portions, portions
from fenceline.facts import Severity
from fenceline.grouping import grouped
from fenceline.incidents.findings import FindingKey, IncidentCause
from fenceline.incidents.impact import IncidentImpact
from fenceline.incidents.sentences import IncidentFacts

#: Columns of an incident that revisions keep.
REVISED = (
    "rule", "subject", "severity", "owner", "cause_over_ms", "closed_ms", "outcome", "deadline_ms", "impact",
    "facts",
)  # fmt: skip
_FACTS = TypeAdapter(IncidentFacts)


class _Known(NamedTuple):
    """An incident's newest revision before an instant, and its largest impact until then."""

    revision: IncidentRevision
    peak: IncidentImpact


def facts_as_json(facts: IncidentFacts) -> Mapping[str, Any]:
    """Return facts in the form of a row."""
    document: Mapping[str, Any] = _FACTS.dump_python(facts, mode="json")
    return document


def stored_facts(row: Incident) -> IncidentFacts | None:
    """Return the facts of an incident, None for a row without any yet."""
    return _FACTS.validate_python(row.facts) if row.facts else None


def incidents_as_of(rows: Sequence[Incident], at_ms: int) -> Sequence[Incident]:
    """Return copies of incidents in their state at an instant, without later changes."""
    known: dict[int, _Known] = {}
    revisions = IncidentRevision.objects.filter(incident__in=[row.pk for row in rows], at_ms__lt=at_ms)
    for revision in revisions.order_by("at_ms", "pk"):
        impact = IncidentImpact(**revision.impact)
        before = known.get(revision.incident_id)
        peak = before.peak.worst_with(impact) if before else impact
        known[revision.incident_id] = _Known(revision, peak)
    return [_as_of(row, known.get(row.pk), at_ms) for row in rows]


def _as_of(row: Incident, known: _Known | None, at_ms: int) -> Incident:
    copied = copy(row)
    if known is not None:
        for name in REVISED:
            setattr(copied, name, getattr(known.revision, name))
        copied.peak = known.peak._asdict()
        copied.since_ms = copied.facts.get("since_ms", copied.since_ms)
    elif copied.closed_ms is not None and copied.closed_ms >= at_ms:
        copied.closed_ms, copied.outcome = None, ""
    if copied.reopened_ms is not None and copied.reopened_ms >= at_ms:
        copied.reopened_ms = None
    if copied.acknowledged_ms is not None and copied.acknowledged_ms >= at_ms:
        copied.acknowledged_ms, copied.acknowledged_by = None, ""
    return copied


#: Earlier incidents of a subject count within this time.
_RECENT_MS = 3_600_000


class Recurrence(NamedTuple):
    """The position of an incident among several of its subject."""

    #: 2 for the second one within an hour.
    nth: int
    #: From the first one to this one.
    span_ms: int
    #: The number of the previous one.
    last: int

    def __str__(self) -> str:
        suffix = (
            "th" if self.nth % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(self.nth % 10, "th")
        )
        return f"{self.nth}{suffix} in {max(1, round(self.span_ms / 60_000))} min"


class IncidentCriteria(Ranged):
    cluster: Name = ""
    state: Literal["open", "closed", "all"] = "open"
    severity: Severity | Literal[""] = ""


def incidents_before(
    place: int | None,
    wanted: IncidentCriteria,
    *,
    limit: int,
) -> Sequence[Incident]:
    """Return incidents before a number, newest first; a range selects incidents that were open in it."""
    rows = visibility.rows_in(Incident, wanted.cluster).select_related("cluster")
    if wanted.state != "all":
        rows = rows.filter(closed_ms__isnull=wanted.state == "open")
    if wanted.severity:
        rows = rows.filter(severity=wanted.severity)
    rows = rows.filter(overlaps_range(wanted, "opened_ms", "closed_ms"))
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def incident_by_number(number: int) -> Incident | None:
    """Return one incident of a configured cluster, open or closed."""
    return Incident.objects.filter(pk=number, cluster__configured=True).select_related("cluster").first()


def incidents_by_number(numbers: Iterable[int]) -> Sequence[Incident]:
    """Return the incidents of configured clusters with these numbers."""
    rows = Incident.objects.filter(pk__in=set(numbers), cluster__configured=True)
    return list(rows.select_related("cluster"))


def incident_findings(row: Incident, limit: int) -> Sequence[IncidentFinding]:
    """Return the newest findings of an incident, current ones first; oldest first in both parts."""
    newest = list(row.findings.filter(until_ms=None).order_by("-pk")[:limit])
    over = list(row.findings.exclude(until_ms=None).order_by("-pk")[: limit - len(newest)])
    return [*reversed(newest), *reversed(over)]


def incident_events(row: Incident, limit: int) -> Sequence[IncidentEvent]:
    """Return the newest events of an incident, in their order."""
    return list(row.events.order_by("-pk")[:limit])[::-1]


def finding_rows(numbers: Iterable[int]) -> Mapping[int, FindingRecord]:
    """Return the findings that are still stored, by number."""
    findings = in_portions(FindingRecord.objects.all(), "pk", numbers)
    return {row.pk: row for rows in findings for row in rows}


def also_blocked_by(row: Incident, findings: Iterable[IncidentFinding]) -> Mapping[int, Sequence[int]]:
    """Return the other open incidents of findings, by finding; all of their causes must end."""
    incidents: dict[int, set[int]] = defaultdict(set)
    wanted = [member.finding for member in findings if member.until_ms is None]
    for others in in_portions(IncidentFinding.objects.filter(until_ms=None), "finding", wanted):
        for finding, incident in others.exclude(incident=row.pk).values_list("finding", "incident"):
            incidents[finding].add(incident)
    return {finding: sorted(numbers) for finding, numbers in incidents.items()}


def recurrences(rows: Sequence[Incident]) -> Mapping[int, Recurrence]:
    """Return by number how many incidents the subjects had in the hour before these opened.

    First incidents are omitted.
    """
    recurrences_by_number: dict[int, Recurrence] = {}
    for part in portions(rows):
        before = _same_subjects_before(part)
        for row in part:
            earlier = before[row.cluster_id, row.subject]
            known = [
                (at_ms, pk) for at_ms, pk in earlier if row.opened_ms - _RECENT_MS <= at_ms < row.opened_ms
            ]
            if known:
                span_ms = row.opened_ms - min(known)[0]
                recurrences_by_number[row.pk] = Recurrence(len(known) + 1, span_ms, max(known)[1])
    return recurrences_by_number


def _same_subjects_before(rows: Sequence[Incident]) -> Mapping[tuple[int, str], Sequence[tuple[int, int]]]:
    """Return instants and numbers of incidents by cluster and subject, from an hour before these opened."""
    first_ms = min((row.opened_ms for row in rows), default=0) - _RECENT_MS
    rows_before = Incident.objects.filter(
        Q(closed_ms=None) | Q(closed_ms__gte=first_ms),
        cluster__in={row.cluster_id for row in rows},
        subject__in={row.subject for row in rows},
    )
    return grouped(
        ((cluster_id, subject), (at_ms, pk))
        for cluster_id, subject, at_ms, pk in rows_before.values_list("cluster", "subject", "opened_ms", "pk")
    )


def open_incidents(cluster: str = "") -> Sequence[Incident]:
    """Return the open incidents, worst and oldest first."""
    rows = visibility.rows_in(Incident, cluster).filter(closed_ms=None).select_related("cluster")
    order = [severity.value for severity in Severity]
    return sorted(rows, key=lambda row: (order.index(row.severity), row.opened_ms))


def incidents_within(cluster: str, from_ms: int, to_ms: int, *, limit: int) -> Sequence[Incident]:
    """Return incidents that were open at any time of a range, in ms since 1970, newest first."""
    rows = visibility.rows_in(Incident, cluster).filter(opened_ms__lt=to_ms).exclude(closed_ms__lt=from_ms)
    return list(rows.select_related("cluster").order_by("-opened_ms")[:limit])


def open_findings_of(
    rows: Iterable[Incident], findings: Iterable[FindingRecord]
) -> Mapping[int, Sequence[FindingRecord]]:
    """Return the open findings of these incidents, by number: the cause first, then the others in order."""
    members = IncidentFinding.objects.filter(incident__in=[row.pk for row in rows], until_ms=None)
    incidents_by_finding = grouped(
        (finding, (incident, role == IncidentFinding.Role.CAUSE))
        for incident, finding, role in members.values_list("incident", "finding", "role")
    )
    findings_by_incident: dict[int, list[FindingRecord]] = defaultdict(list)
    for row in findings:
        for incident, is_cause in incidents_by_finding.get(row.pk, ()):
            findings_by_incident[incident].insert(0 if is_cause else len(findings_by_incident[incident]), row)
    return findings_by_incident


def open_count(cluster: str, severities: Collection[str]) -> int:
    """Return the number of open incidents, and of findings without one, of these severities."""
    rows = visibility.rows_in(Incident, cluster).filter(closed_ms=None, severity__in=severities)
    alone = _ungrouped(cluster).filter(severity__in=severities)
    return rows.values("pk").union(alone.values("pk"), all=True).count()


def open_by_cluster() -> Mapping[str, Mapping[str, int]]:
    """Return the number of open incidents, and of findings without one, by cluster and severity."""
    incidents = Incident.objects.filter(closed_ms=None, cluster__configured=True).values_list(
        "cluster__name", "severity"
    )
    counts: dict[str, Counter[str]] = {}
    for cluster, severity in (*incidents, *_ungrouped("").values_list("cluster__name", "severity")):
        counts.setdefault(cluster, Counter())[severity] += 1
    return counts


def _ungrouped(cluster: str) -> QuerySet[FindingRecord]:
    rows = visibility.rows_in(FindingRecord, cluster).filter(closed_at=None)
    members = IncidentFinding.objects.filter(until_ms=None, incident__closed_ms=None)
    return rows.exclude(pk__in=members.values("finding"))


@dataclass(frozen=True, slots=True)
class IncidentMembership:
    """The number of a finding's incident, and the causes of the incidents in which it is an effect now. With
    several incidents the number is that in which it is the cause, else the lowest; without an open one, the
    last one's.
    """

    number: int
    causes: Sequence[IncidentCause] = ()


def memberships_of(cluster_id: int, findings: Collection[int]) -> Mapping[int, IncidentMembership]:
    """Return the memberships of findings by their keys; findings without an incident are omitted."""
    if not findings:
        return {}
    memberships = {
        key: membership for key, membership in _open_memberships(cluster_id).items() if key in findings
    }
    rest = [key for key in findings if key not in memberships]
    for rows in in_portions(IncidentFinding.objects.order_by("pk"), "finding", rest):
        for key, number in rows.values_list("finding", "incident_id"):
            memberships[key] = IncidentMembership(number)
    return memberships


def _open_memberships(cluster_id: int) -> Mapping[int, IncidentMembership]:
    rows = IncidentFinding.objects.filter(
        until_ms=None, incident__closed_ms=None, incident__cluster_id=cluster_id
    )
    as_cause: dict[int, int] = {}
    as_effect: dict[int, list[IncidentCause]] = defaultdict(list)
    columns = ("finding", "role", "incident_id", "incident__rule", "incident__subject")
    for key, role, number, rule, subject in rows.order_by("incident_id").values_list(*columns):
        if role == IncidentFinding.Role.CAUSE:
            as_cause.setdefault(key, number)
        else:
            as_effect[key].append(IncidentCause(number, FindingKey(rule, subject)))
    effects = {key: IncidentMembership(causes[0].incident, causes) for key, causes in as_effect.items()}
    return effects | {key: IncidentMembership(number) for key, number in as_cause.items()}
