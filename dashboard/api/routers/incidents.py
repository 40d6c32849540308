"""`/api/v1/incidents`: causes with their effects, now and in the past; acknowledging one, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import AfterValidator, Field

from dashboard.api import cursors, schemas
from dashboard.api.permissions import require_permission
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime import loop, visibility
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import access
from fenceline.facts import Severity
from fenceline.incidents.findings import IncidentEventKind

router = Router(tags=["incidents"])

#: Findings and events of one answer; an incident that flaps for days has more.
_MOST = 1_000


class IncidentImpactOut(Schema):
    """Distinct things that the findings of an incident name; null where no figure is known.

    `backlog`: records, at most, that read_committed consumers cannot read; `records_lost`: records of batches
    that are lost unless they are committed, or are lost already.
    """

    transactions: int
    partitions: int
    groups: int
    queries: int
    backlog: int | None
    records_lost: int | None


class IncidentFindingOut(Schema):
    """A finding in an incident, in one role, `until` it left or changed its role; null while it is in it.

    Words are as they are now, or were at last; `evidence` and `next_step` are "" once the finding itself is
    no longer kept. `also_blocked_by` are other incidents that it is in now.
    """

    finding: int
    role: Literal["cause", "effect"]
    rule: str
    subject: str
    severity: Severity
    summary: str
    evidence: str
    next_step: str
    since: str | None
    until: str | None
    also_blocked_by: list[int]


class IncidentEventOut(Schema):
    """One line of an incident's history; `rule` and `subject` are "" where it is about no finding."""

    at: str | None
    kind: IncidentEventKind
    rule: str
    subject: str
    actor: str
    text: str


class IncidentOut(Schema):
    """A cause that no other open finding explains, with what follows from it.

    `severity` is the worst since it was opened or reopened; `cause_over_at` is set while its cause is over
    and effects are left. `deadline_at` is when the first of its findings ends by itself or loses records
    unless somebody acts (as `deadline_at` of findings), null where none has such an instant; of a closed one
    as it was at last.
    `owner` is a team of `[[owners]]`, "" without one.
    """

    number: int
    cluster: str
    state: Literal["open", "closed"]
    rule: str
    subject: str
    severity: Severity
    summary: str
    opened_at: str | None
    reopened_at: str | None
    closed_at: str | None
    cause_over_at: str | None
    deadline_at: str | None
    owner: str
    acknowledged_at: str | None
    acknowledged_by: str
    impact: IncidentImpactOut


class IncidentDetail(IncidentOut):
    """One incident with its findings and its history, the newest 1,000 of each.

    `cause` is null while its cause is over. `past` are findings that left it, or changed their role.
    """

    cause: IncidentFindingOut | None
    effects: list[IncidentFindingOut]
    past: list[IncidentFindingOut]
    also_blocked_by: list[int]
    history: list[IncidentEventOut]


class IncidentList(schemas.Listing):
    items: list[IncidentOut]


class IncidentFilters(schemas.ShortListFilters, incident_queries.IncidentCriteria):
    """The query string of the list: incidents that were open at some time in `from` ≤ t < `to`."""


class IncidentNoteIn(Schema):
    """A note to an incident."""

    text: Annotated[str, Field(max_length=operators.LONGEST_NOTE), AfterValidator(operators.usable_note)]


@router.get("", response=IncidentList, summary="List incidents")
def list_incidents(request: HttpRequest, wanted: Query[IncidentFilters]) -> dict[str, object]:
    """Incidents, the newest first; the open ones unless `state` is given."""
    rows = incident_queries.incidents_before(
        cursors.read_number(wanted.cursor, "incidents"),
        wanted,
        limit=wanted.limit + 1,
    )
    page, following = cursors.cut_page("incidents", rows, wanted.limit, cursors.by_key)
    causes = incident_queries.causes_of(page)
    kept = incident_queries.finding_rows(each.finding for each in causes.values())
    return {
        "items": [IncidentOut(**_fields(row, causes.get(row.pk), kept)) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, EVERYTHING)),
    }


@router.get("/{int:number}", response=IncidentDetail, summary="One incident")
def get_incident(request: HttpRequest, number: int) -> IncidentDetail:
    """One incident by its number, open or closed."""
    return _detail(_known(number))


@router.post("/{int:number}/acknowledge", response=IncidentDetail, summary="Acknowledge an incident")
def acknowledge_incident(request: HttpRequest, number: int) -> IncidentDetail:
    """Note that you take care of it; who did so first stays. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS)
    _known(number)
    try:
        operators.acknowledge_incident(number, by=actor.name, now_ms=loop.now_ms())
    except operators.IncidentClosed as error:
        raise HttpError(409, str(error)) from error
    return _detail(_known(number))


@router.post("/{int:number}/notes", response=IncidentDetail, summary="Add a note to an incident")
def add_incident_note(request: HttpRequest, number: int, asked: IncidentNoteIn) -> IncidentDetail:
    """Add a note to its history; notes are never changed. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS)
    _known(number)
    operators.add_incident_note(number, asked.text, by=actor.name, now_ms=loop.now_ms())
    return _detail(_known(number))


def _known(number: int) -> Incident:
    row = incident_queries.incident_by_number(number) if number < 2**63 else None
    if row is None:
        raise Http404(f"No incident {number} is known.")
    return row


def _detail(row: Incident) -> IncidentDetail:
    findings = incident_queries.incident_findings(row, _MOST)
    kept = incident_queries.finding_rows({each.finding for each in findings})
    others = incident_queries.also_blocked_by(row, findings)
    shown = [_finding_out(each, kept, others.get(each.finding, ())) for each in findings]
    now = [each for each in shown if each.until is None]
    cause = next((each for each in now if each.role == "cause"), None)
    latest = incident_queries.causes_of([row]).get(row.pk)
    return IncidentDetail(
        **_fields(row, latest, kept),
        cause=cause,
        effects=[each for each in now if each is not cause],
        past=[each for each in shown if each.until is not None],
        also_blocked_by=sorted({number for numbers in others.values() for number in numbers}),
        history=[_event_out(each) for each in incident_queries.incident_events(row, _MOST)],
    )


def _fields(
    row: Incident, cause: IncidentFinding | None, kept: Mapping[int, FindingRecord]
) -> dict[str, Any]:
    """Return what a list and a detail have in common."""
    return {
        "number": row.pk,
        "cluster": row.cluster.name,
        "state": "open" if row.closed_ms is None else "closed",
        "rule": row.rule,
        "subject": row.subject,
        "severity": Severity(row.severity),
        "summary": "" if cause is None else _words(cause, kept).summary,
        "opened_at": schemas.format_iso(row.opened_ms),
        "reopened_at": schemas.format_iso(row.reopened_ms),
        "closed_at": schemas.format_iso(row.closed_ms),
        "cause_over_at": schemas.format_iso(row.cause_over_ms),
        "deadline_at": schemas.format_iso(row.deadline_ms),
        "owner": row.owner,
        "acknowledged_at": schemas.format_iso(row.acknowledged_ms),
        "acknowledged_by": row.acknowledged_by,
        "impact": IncidentImpactOut(**row.impact),
    }


def _words(each: IncidentFinding, kept: Mapping[int, FindingRecord]) -> FindingRecord | IncidentFinding:
    return kept.get(each.finding, each)


def _finding_out(
    each: IncidentFinding, kept: Mapping[int, FindingRecord], others: Sequence[int]
) -> IncidentFindingOut:
    record = kept.get(each.finding)
    words = _words(each, kept)
    return IncidentFindingOut(
        finding=each.finding,
        role="cause" if each.role == IncidentFinding.Role.CAUSE else "effect",
        rule=each.rule,
        subject=each.subject,
        severity=Severity(words.severity),
        summary=words.summary,
        evidence=record.evidence if record else "",
        next_step=record.next_step if record else "",
        since=schemas.format_iso(each.since_ms),
        until=schemas.format_iso(each.until_ms),
        also_blocked_by=list(others),
    )


def _event_out(each: IncidentEvent) -> IncidentEventOut:
    return IncidentEventOut(
        at=schemas.format_iso(each.at_ms),
        kind=IncidentEventKind(each.kind),
        rule=each.rule,
        subject=each.subject,
        actor=each.actor,
        text=each.text,
    )
