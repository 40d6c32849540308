"""Incidents as lines of a list, open or closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, IncidentFinding


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident of a list."""

    row: Incident
    summary: str


def incident_lines(rows: Sequence[Incident]) -> Sequence[IncidentLine]:
    """Return incidents as lines, in their order."""
    causes = incident_queries.causes_of(rows)
    kept = incident_queries.finding_rows(each.finding for each in causes.values())
    return [IncidentLine(row, summary_of(row, causes.get(row.pk), kept)) for row in rows]


def newest_cause(members: Sequence[IncidentFinding]) -> IncidentFinding | None:
    """Return the cause of now among an incident's findings, else the last one that was."""
    causes = [each for each in members if each.role == IncidentFinding.Role.CAUSE]
    return max(causes, key=lambda each: (each.until_ms is None, each.pk), default=None)


def summary_of(row: Incident, cause: IncidentFinding | None, kept: Mapping[int, FindingRecord]) -> str:
    """Return the newest summary of an incident's cause; `kept` are findings by number."""
    return kept.get(cause.finding, cause).summary if cause else f"{row.rule} of {row.subject}"
