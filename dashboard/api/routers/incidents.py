"""`/api/v1/incidents`: causes with their effects, now and in the past; acknowledging one, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import AfterValidator, Field

from dashboard.api import cursors, schemas
from dashboard.api.known_names import Body
from dashboard.api.permissions import require_permission
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.stored_facts import incidents_as_of
from dashboard.models import Incident, IncidentFinding
from dashboard.runtime import loop
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import access
from fenceline.facts import Severity
from fenceline.incidents.findings import IncidentEventKind

router = Router(tags=["incidents"])

#: Findings and events of one answer; an incident that flaps for days has more.
_MOST = 1_000


class IncidentImpactOut(Schema):
    """Distinct things that the findings of an incident name; null where no figure is known.

    Of queries those that are blocked, not the one that is the cause. `backlog`: records, at most, that
    read_committed consumers cannot read; `records_lost`: records of batches that are lost unless they are
    committed, or are lost already.
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
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    until: schemas.Instant | None = Field(validation_alias="until_ms")
    also_blocked_by: list[int]


class IncidentEventOut(Schema):
    """One line of an incident's history; `rule` and `subject` are "" where it is about no finding."""

    at: schemas.Instant | None = Field(validation_alias="at_ms")
    kind: IncidentEventKind
    rule: str
    subject: str
    actor: str
    text: str


class IncidentOut(Schema):
    """A cause that no other open finding explains, with what follows from it.

    It is one episode: one transaction, batch or start of its subject. `began_at` is when its damage began,
    `outcome` how it ended, in a sentence; "" where nothing shows that. `peak` is the largest impact it had.
    With `to`, words, severity and figures are those known then.
    `severity` is the worst since it was opened; `cause_over_at` is set while its cause is over
    and effects are left. `deadline_at` is when the first of its findings ends by itself or loses records
    unless somebody acts (as `deadline_at` of findings), null where none has such an instant; of a closed one
    as it was at last.
    `owner` is a team of `[[owners]]`, "" without one.
    """

    number: int = Field(validation_alias="pk")
    cluster: str = Field(validation_alias="cluster.name")
    state: Literal["open", "closed"]
    rule: str
    subject: str
    severity: Severity
    summary: str
    began_at: schemas.Instant | None = Field(validation_alias="since_ms")
    opened_at: schemas.Instant | None = Field(validation_alias="opened_ms")
    reopened_at: schemas.Instant | None = Field(validation_alias="reopened_ms")
    closed_at: schemas.Instant | None = Field(validation_alias="closed_ms")
    cause_over_at: schemas.Instant | None = Field(validation_alias="cause_over_ms")
    deadline_at: schemas.Instant | None = Field(validation_alias="deadline_ms")
    owner: str
    acknowledged_at: schemas.Instant | None = Field(validation_alias="acknowledged_ms")
    acknowledged_by: str
    outcome: str
    impact: IncidentImpactOut
    peak: IncidentImpactOut

    @staticmethod
    def resolve_state(row: Incident) -> str:
        return "open" if row.closed_ms is None else "closed"

    @staticmethod
    def resolve_summary(row: Incident) -> str:
        return str(row.facts.get("summary", ""))

    @staticmethod
    def resolve_peak(row: Incident) -> object:
        return row.peak or row.impact


class IncidentDetail(IncidentOut):
    """One incident with its findings and its history, the newest 1,000 of each.

    `cause` is null while its cause is over. `past` are findings that left it, or changed their role.
    """

    cause: IncidentFindingOut | None
    effects: list[IncidentFindingOut]
    past: list[IncidentFindingOut]
    also_blocked_by: list[int]
    history: list[IncidentEventOut]

    @staticmethod
    def resolve_history(row: Incident) -> object:
        return incident_queries.incident_events(row, _MOST)


class IncidentList(schemas.Listing):
    items: list[IncidentOut]


class IncidentFilters(schemas.ShortListFilters, incident_queries.IncidentCriteria):
    """The query string of the list: incidents that were open at some time in `from` ≤ t < `to`."""


class IncidentNoteIn(Body):
    """A note to an incident."""

    text: Annotated[
        str, Field(min_length=1, max_length=operators.LONGEST_NOTE), AfterValidator(operators.usable_note)
    ]


@router.get("", response=IncidentList, summary="List incidents")
def list_incidents(request: HttpRequest, wanted: Query[IncidentFilters]) -> dict[str, object]:
    """Incidents, the newest first; the open ones unless `state` is given."""
    before = cursors.read_number(wanted.cursor, "incidents")
    rows = incident_queries.incidents_before(before, wanted, limit=wanted.limit + 1)
    page, following = cursors.cut_page("incidents", rows, wanted.limit)
    shown = page if wanted.to_ms is None else incidents_as_of(page, wanted.to_ms)
    return schemas.list_answer(shown, following, wanted.cluster, EVERYTHING)


@router.get("/{int:number}", response=IncidentDetail, summary="One incident")
def get_incident(request: HttpRequest, number: int) -> Incident:
    """One incident by its number, open or closed."""
    return _detail(_known(number))


@router.post("/{int:number}/acknowledge", response=IncidentDetail, summary="Acknowledge an incident")
def acknowledge_incident(request: HttpRequest, number: int) -> Incident:
    """Note that you take care of it; who did so first stays. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS, _known(number).cluster.name)
    try:
        operators.acknowledge_incident(number, by=actor.name, now_ms=loop.now_ms())
    except operators.IncidentClosed as error:
        raise HttpError(409, str(error)) from error
    return _detail(_known(number))


@router.post("/{int:number}/notes", response=IncidentDetail, summary="Add a note to an incident")
def add_incident_note(request: HttpRequest, number: int, asked: IncidentNoteIn) -> Incident:
    """Add a note to its history; notes are never changed. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS, _known(number).cluster.name)
    operators.add_incident_note(number, asked.text, by=actor.name, now_ms=loop.now_ms())
    return _detail(_known(number))


def _known(number: int) -> Incident:
    row = incident_queries.incident_by_number(number) if number < 2**63 else None
    if row is None:
        raise Http404(f"No incident {number} is known.")
    return row


def _detail(row: Incident) -> Incident:
    """Return a row with its findings, by the role that each has now."""
    findings = incident_queries.incident_findings(row, _MOST)
    others = incident_queries.also_blocked_by(row, findings)
    _add_words(findings)
    for finding in findings:
        schemas.add_fields(finding, also_blocked_by=others.get(finding.finding, ()))
    now = [finding for finding in findings if finding.until_ms is None]
    cause = next((finding for finding in now if finding.role == IncidentFinding.Role.CAUSE), None)
    return schemas.add_fields(
        row,
        cause=cause,
        effects=[finding for finding in now if finding is not cause],
        past=[finding for finding in findings if finding.until_ms is not None],
        also_blocked_by=sorted({number for numbers in others.values() for number in numbers}),
    )


def _add_words(findings: Sequence[IncidentFinding]) -> None:
    """Set the words of findings as they are now, or were at last where the finding itself is not kept."""
    kept = incident_queries.finding_rows({finding.finding for finding in findings})
    for finding in findings:
        record = kept.get(finding.finding)
        words = record or finding
        schemas.add_fields(
            finding,
            severity=words.severity,
            summary=words.summary,
            evidence=record.evidence if record else "",
            next_step=record.next_step if record else "",
        )
