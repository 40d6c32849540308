"""Read the stored facts of incidents, and incidents in their state at an instant."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from dashboard.models import Incident, IncidentRevision
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
    known = _known_before([row.pk for row in rows], at_ms)
    return [_as_of(row, known.get(row.pk), at_ms) for row in rows]


def _known_before(numbers: Iterable[int], at_ms: int) -> Mapping[int, _Known]:
    known: dict[int, _Known] = {}
    rows = IncidentRevision.objects.filter(incident__in=list(numbers), at_ms__lt=at_ms)
    for row in rows.order_by("at_ms", "pk"):
        impact = IncidentImpact(**row.impact)
        before = known.get(row.incident_id)
        known[row.incident_id] = _Known(row, before.peak.worst_with(impact) if before else impact)
    return known


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
