"""Incidents as lines of a list, open or closed."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.incidents import queries as incident_queries
from dashboard.incidents.queries import Recurrence
from dashboard.incidents.stored_facts import incidents_as_of, stored_facts
from dashboard.models import Incident, IncidentFinding
from dashboard.web.incidents import cards
from fenceline.incidents.sentences import closed_headline, incident_title
from fenceline.text.sentences import Sentence, as_of


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident of a list."""

    row: Incident
    title: Sentence
    #: Words and numbers of what it affects; of a closed incident the largest numbers.
    figures: Sequence[tuple[str, int]]
    recurrence: Recurrence | None


def incident_lines(rows: Sequence[Incident], at_ms: int | None = None) -> Sequence[IncidentLine]:
    """Return incidents as lines, in their order: as they are now, or as they were at an instant."""
    again = incident_queries.recurrences(rows)
    shown = rows if at_ms is None else incidents_as_of(rows, at_ms)
    return [
        IncidentLine(row, _title(row, at_ms), cards.impact_words(row), again.get(row.pk)) for row in shown
    ]


def newest_cause(members: Sequence[IncidentFinding]) -> IncidentFinding | None:
    """Return the current cause among an incident's findings, else the last one."""
    causes = [member for member in members if member.role == IncidentFinding.Role.CAUSE]
    return max(causes, key=lambda member: (member.until_ms is None, member.pk), default=None)


def headline_of(row: Incident) -> Sentence:
    """Return the title of an open incident; for a closed one, its title and its outcome."""
    facts = stored_facts(row)
    if facts is None:
        return (f"{row.rule} of {row.subject}",)
    if row.closed_ms is None:
        return incident_title(facts)
    return (closed_headline(facts, row.outcome, lasted_ms=row.closed_ms - row.since_ms),)


def _title(row: Incident, at_ms: int | None) -> Sentence:
    return headline_of(row) if at_ms is None else as_of(headline_of(row), at_ms)
