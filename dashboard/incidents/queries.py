"""Queries for incidents, open and closed, for pages and API."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from django.db.models import Q, QuerySet

from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Name, Ranged, overlaps_range
from dashboard.runtime.sql import in_portions, portions
from fenceline.facts import Severity
from fenceline.grouping import grouped

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
    """The filters of a list of incidents."""

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
    rows = Incident.objects.filter(closed_ms=None, cluster__configured=True).select_related("cluster")
    order = [severity.value for severity in Severity]
    return sorted(
        visibility.rows_of_cluster(rows, cluster), key=lambda row: (order.index(row.severity), row.opened_ms)
    )


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
    rows = Incident.objects.filter(closed_ms=None, cluster__configured=True, severity__in=severities)
    alone = _ungrouped(cluster).filter(severity__in=severities)
    return visibility.rows_of_cluster(rows, cluster).values("pk").union(alone.values("pk"), all=True).count()


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
    rows = FindingRecord.objects.filter(closed_at=None, cluster__configured=True)
    members = IncidentFinding.objects.filter(until_ms=None, incident__closed_ms=None)
    return visibility.rows_of_cluster(rows, cluster).exclude(pk__in=members.values("finding"))
