"""Incidents, open and closed, as pages and the API read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from django.db.models import QuerySet

from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Name, Ranged, overlaps_range
from fenceline.facts import Severity

#: Keys of one query of the database.
_KEYS = 500


class IncidentCriteria(Ranged):
    """Which incidents a list is asked for."""

    cluster: Name = ""
    state: Literal["open", "closed", "all"] = "open"
    severity: Severity | Literal[""] = ""


def incidents_before(
    place: int | None,
    wanted: IncidentCriteria,
    *,
    limit: int,
) -> Sequence[Incident]:
    """Return incidents behind a number, the newest first; of a range those that were open in it."""
    rows = Incident.objects.filter(cluster__configured=True).select_related("cluster")
    rows = visibility.rows_of_cluster(rows, wanted.cluster)
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


def incident_findings(row: Incident, limit: int) -> Sequence[IncidentFinding]:
    """Return the newest findings of an incident, those that are in it now first, the oldest first of each."""
    newest = list(row.findings.filter(until_ms=None).order_by("-pk")[:limit])
    over = list(row.findings.exclude(until_ms=None).order_by("-pk")[: limit - len(newest)])
    return [*reversed(newest), *reversed(over)]


def incident_events(row: Incident, limit: int) -> Sequence[IncidentEvent]:
    """Return the newest events of an incident, in their order."""
    return list(row.events.order_by("-pk")[:limit])[::-1]


def causes_of(rows: Iterable[Incident]) -> Mapping[int, IncidentFinding]:
    """Return the newest cause of each incident by its number."""
    numbers = [row.pk for row in rows]
    found = IncidentFinding.objects.filter(incident__in=numbers, role=IncidentFinding.Role.CAUSE)
    return {row.incident_id: row for row in found.order_by("pk")}


def finding_rows(numbers: Iterable[int]) -> Mapping[int, FindingRecord]:
    """Return the findings that are still kept, by number."""
    wanted, found = list(numbers), {}
    for at in range(0, len(wanted), _KEYS):
        found.update(FindingRecord.objects.in_bulk(wanted[at : at + _KEYS]))
    return found


def also_blocked_by(row: Incident, findings: Iterable[IncidentFinding]) -> Mapping[int, Sequence[int]]:
    """Return by finding which other incidents it is in now: all of their causes must end."""
    found: dict[int, set[int]] = defaultdict(set)
    wanted = [each.finding for each in findings if each.until_ms is None]
    for at in range(0, len(wanted), _KEYS):
        others = IncidentFinding.objects.filter(finding__in=wanted[at : at + _KEYS], until_ms=None)
        for finding, incident in others.exclude(incident=row.pk).values_list("finding", "incident"):
            found[finding].add(incident)
    return {finding: sorted(numbers) for finding, numbers in found.items()}


def open_incidents(cluster: str = "") -> Sequence[Incident]:
    """Return the open incidents, worst and oldest first."""
    rows = Incident.objects.filter(closed_ms=None, cluster__configured=True).select_related("cluster")
    order = [severity.value for severity in Severity]
    return sorted(
        visibility.rows_of_cluster(rows, cluster), key=lambda row: (order.index(row.severity), row.opened_ms)
    )


def incidents_within(cluster: str, from_ms: int, to_ms: int, *, limit: int) -> Sequence[Incident]:
    """Return incidents that were open at any time of a range, in ms since 1970, the newest first."""
    rows = Incident.objects.filter(cluster__configured=True, opened_ms__lt=to_ms)
    rows = visibility.rows_of_cluster(rows, cluster).exclude(closed_ms__lt=from_ms)
    return list(rows.select_related("cluster").order_by("-opened_ms")[:limit])


def open_findings_of(
    rows: Iterable[Incident], findings: Iterable[FindingRecord]
) -> Mapping[int, Sequence[FindingRecord]]:
    """Return those of some open findings that are in these incidents, by number: the cause first.

    The rest keeps its order.
    """
    members = IncidentFinding.objects.filter(incident__in=[row.pk for row in rows], until_ms=None)
    of: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for incident, finding, role in members.values_list("incident", "finding", "role"):
        of[finding].append((incident, role == IncidentFinding.Role.CAUSE))
    found: dict[int, list[FindingRecord]] = defaultdict(list)
    for row in findings:
        for incident, is_cause in of.get(row.pk, ()):
            found[incident].insert(0 if is_cause else len(found[incident]), row)
    return found


def open_count(cluster: str, severities: Collection[str]) -> int:
    """Return how many incidents are open, with findings that are in none, of these severities."""
    rows = Incident.objects.filter(closed_ms=None, cluster__configured=True, severity__in=severities)
    alone = _ungrouped(cluster).filter(severity__in=severities)
    return visibility.rows_of_cluster(rows, cluster).values("pk").union(alone.values("pk"), all=True).count()


def _ungrouped(cluster: str) -> QuerySet[FindingRecord]:
    rows = FindingRecord.objects.filter(closed_at=None, cluster__configured=True)
    members = IncidentFinding.objects.filter(until_ms=None, incident__closed_ms=None)
    return visibility.rows_of_cluster(rows, cluster).exclude(pk__in=members.values("finding"))
