"""`/api/v1/incidents` and `/api/v1/findings`: causes with their effects, now and in the past,
acknowledgements and notes; the rules' open and closed findings.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import AfterValidator, Field

from dashboard.actions import offers
from dashboard.api import schemas
from dashboard.api.auth import require_permission
from dashboard.api.problems import Body
from dashboard.api.schemas import OfferOut, OwnerOut
from dashboard.evaluation import finding_queries
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.queries import incidents_as_of
from dashboard.models import FindingRecord, Incident, IncidentFinding
from dashboard.runtime import loop
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system import access, owners
from fenceline.facts import Severity
from fenceline.incidents.findings import IncidentEventKind

router = Router(tags=["incidents"])

#: The most findings, and the most events, in a response; an incident that flaps for days has more.
_MOST = 1_000


class IncidentImpactOut(Schema):
    """Counts of distinct subjects of an incident's findings; null if unknown.

    `queries` counts the blocked queries, not the one that is the cause. `backlog` is an upper bound of the
    records that read_committed consumers cannot read. `records_lost` counts the records of batches that are
    lost already, or will be unless they are committed.
    """

    transactions: int
    partitions: int
    groups: int
    queries: int
    backlog: int | None
    records_lost: int | None


class IncidentFindingOut(Schema):
    """A finding in one role in an incident; `until` is null until the finding leaves or changes its role.

    Texts are the finding's newest ones. `evidence` and `next_step` are "" once the finding itself is deleted.
    `also_blocked_by` are other incidents with the finding now.
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
    """A line of an incident's history; `rule` and `subject` are "" if it is not about a finding."""

    at: schemas.Instant | None = Field(validation_alias="at_ms")
    kind: IncidentEventKind
    rule: str
    subject: str
    actor: str
    text: str


class IncidentOut(Schema):
    """A cause that no other open finding explains, with its effects.

    An incident is one episode: one transaction, batch or start of its subject. `began_at` is the start of its
    damage. `outcome` says in a sentence how it ended, "" if unknown. `peak` is its largest impact. With `to`,
    texts, severity and figures are those known at that time. `severity` is the worst since it was opened.
    `cause_over_at` is set while the cause is over and effects remain. `deadline_at` is the earliest
    `deadline_at` of its findings, null if none has one; a closed incident keeps its last value. `owner` is a
    team of `[[owners]]`, or "".
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

    resolve_state = staticmethod(lambda row: "open" if row.closed_ms is None else "closed")
    resolve_summary = staticmethod(lambda row: str(row.facts.get("summary", "")))
    resolve_peak = staticmethod(lambda row: row.peak or row.impact)


class IncidentDetail(IncidentOut):
    """An incident with its findings and its history, the newest 1,000 of each.

    `cause` is null while the cause is over. `past` are findings that left the incident or changed their role.
    """

    cause: IncidentFindingOut | None
    effects: list[IncidentFindingOut]
    past: list[IncidentFindingOut]
    also_blocked_by: list[int]
    history: list[IncidentEventOut]

    resolve_history = staticmethod(lambda row: incident_queries.incident_events(row, _MOST))


class IncidentFilters(schemas.ShortListFilters, incident_queries.IncidentCriteria):
    """The query string of the list; a range selects incidents that were open in `from` ≤ t < `to`."""


class IncidentNoteIn(Body):
    """A note on an incident."""

    text: Annotated[
        str, Field(min_length=1, max_length=operators.LONGEST_NOTE), AfterValidator(operators.usable_note)
    ]


@router.get("", response=schemas.list_of(IncidentOut), summary="List incidents")
def list_incidents(request: HttpRequest, wanted: Query[IncidentFilters]) -> dict[str, object]:
    """Incidents, newest first; without `state` the open ones."""
    before = schemas.read_number(wanted.cursor, "incidents")
    rows = incident_queries.incidents_before(before, wanted, limit=wanted.limit + 1)
    page, following = schemas.cut_page("incidents", rows, wanted.limit)
    shown = page if wanted.to_ms is None else incidents_as_of(page, wanted.to_ms)
    return schemas.list_answer(shown, following, wanted.cluster, EVERYTHING)


@router.get("/{int:number}", response=IncidentDetail, summary="One incident")
def get_incident(request: HttpRequest, number: int) -> Incident:
    """Return an incident by its number, open or closed."""
    return _detail(_known(number))


@router.post("/{int:number}/acknowledge", response=IncidentDetail, summary="Acknowledge an incident")
def acknowledge_incident(request: HttpRequest, number: int) -> Incident:
    """Record that the caller handles the incident; the first caller is kept. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS, _known(number).cluster.name)
    operators.acknowledge_incident(number, by=actor.name, now_ms=loop.now_ms())
    return _detail(_known(number))


@router.post("/{int:number}/notes", response=IncidentDetail, summary="Add a note to an incident")
def add_incident_note(request: HttpRequest, number: int, asked: IncidentNoteIn) -> Incident:
    """Add a note to the incident's history; notes cannot be changed. Needs the role operator."""
    actor = require_permission(request, access.INCIDENTS, _known(number).cluster.name)
    operators.add_incident_note(number, asked.text, by=actor.name, now_ms=loop.now_ms())
    return _detail(_known(number))


def _known(number: int) -> Incident:
    return schemas.known(incident_queries.incident_by_number(number), f"No incident {number} is known.")


def _detail(row: Incident) -> Incident:
    """Return a row with its findings by their current role."""
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
    """Set the texts of findings from their records, or the last known texts if a record is deleted."""
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


findings_router = Router(tags=["findings"])


class FindingOut(Schema):
    """A rule's verdict about a subject, `kind:name`; `complete` is false if data for the rule is missing.

    `closed_at` is null while the finding is open. At `deadline_at` a coordinator aborts the transaction, or
    records are lost, unless somebody acts; null if unknown. `/rules/{rule}` explains the rule. `offers` are
    the actions that the planner would not refuse now.
    """

    id: int
    rule: str
    cluster: str = Field(validation_alias="cluster.name")
    subject: str
    severity: Severity
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    seen_at: schemas.Instant | None
    closed_at: schemas.Instant | None
    deadline_at: schemas.Instant | None = Field(validation_alias="deadline_ms")
    complete: bool
    summary: str
    evidence: str
    next_step: str
    affected: list[str]
    offers: list[OfferOut]
    owner: OwnerOut | None


class FindingFilters(schemas.ListFilters, finding_queries.FindingCriteria):
    """The query string of the list."""


@findings_router.get("", response=schemas.list_of(FindingOut), summary="List findings")
def list_findings(request: HttpRequest, wanted: Query[FindingFilters]) -> dict[str, object]:
    """Findings, newest first; without `state` the open ones."""
    before = schemas.read_number(wanted.cursor, "findings")
    rows = finding_queries.findings_before(before, wanted, limit=wanted.limit + 1)
    page, following = schemas.cut_page("findings", rows, wanted.limit)
    return schemas.list_answer(_with_offers(page), following, wanted.cluster, EVERYTHING)


@findings_router.get("/{int:number}", response=FindingOut, summary="One finding")
def get_finding(request: HttpRequest, number: int) -> FindingRecord:
    """Return a finding by its id, open or closed."""
    row = schemas.known(finding_queries.finding_by_number(number), f"No finding {number} is known.")
    return _with_offers([row])[0]


def _with_offers(rows: Sequence[FindingRecord]) -> Sequence[FindingRecord]:
    """Return rows with their offers and owners, read for all rows at once."""
    may, whose = offers.of_findings(rows, now_ms=loop.now_ms()), owners.of_findings(rows)
    for row in rows:
        schemas.add_fields(row, offers=OfferOut.from_offers(may[row.pk]), owner=whose[row.pk])
    return rows
