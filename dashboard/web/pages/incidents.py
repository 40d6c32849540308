"""Incidents over time, one with its cause, effects and history; acknowledging one, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard.evaluation import finding_queries
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.runtime.criteria import choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import addresses, incident_cards, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.errors import error_note, flash_refusal, forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.rendering import action_view, render_page, signed_in
from dashboard.web.request_time import now_ms
from fenceline.incidents.markdown import IncidentReport, ReportLine, incident_markdown, utc_text

_ROWS = 50
#: Findings and events that the page of one incident shows.
_MOST = 200


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding of an incident; `kept` is None once only its summary is kept."""

    of: IncidentFinding
    kept: FindingRecord | None
    url: str
    #: Numbers of the other incidents that it is in now.
    others: Sequence[int]

    @property
    def summary(self) -> str:
        """Return its newest summary."""
        return (self.kept or self.of).summary


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident of the list."""

    row: Incident
    summary: str


class IncidentListQuery(list_forms.ListByRow, incident_queries.IncidentCriteria):
    """The query string of the list."""

    state: Literal["open", "closed", "all"] = "open"


@signed_in
def incident_list(request: HttpRequest) -> HttpResponse:
    """Show the incidents that the query string asks for, the newest first."""
    wanted = list_forms.read(request, IncidentListQuery)
    return render_page(request, "incidents/list", lambda: _list(request, wanted))


@signed_in
def incident_detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show one incident, open or closed."""
    row, note = _found(number), error_note(request)
    return render_page(request, "incidents/detail", lambda: _detail(request, row, note), depends_on=note)


@signed_in
def incident_report(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as a Markdown file."""
    row = _found(number)
    response = HttpResponse(incident_markdown(_report(row)), content_type="text/markdown; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="incident-{number}.md"'
    response.headers["Cache-Control"] = "no-store"
    return response


@action_view
def acknowledge(request: HttpRequest, number: int) -> HttpResponse:
    """Note that whoever asks takes care of it; one that is closed needs nobody."""
    actor, row = actor_of(request, "page"), _found(number)
    if refused := access.permission_refusal(actor, access.INCIDENTS):
        return forbidden_page(request, refused)
    try:
        operators.acknowledge_incident(row.pk, by=actor.name, now_ms=now_ms(request))
    except operators.IncidentClosed as error:
        flash_refusal(request, reverse("incident", args=[number]), str(error))
    return HttpResponseRedirect(reverse("incident", args=[number]), status=303)


@action_view
def add_note(request: HttpRequest, number: int) -> HttpResponse:
    """Add a note to the history of an incident."""
    actor, row = actor_of(request, "page"), _found(number)
    if refused := access.permission_refusal(actor, access.INCIDENTS):
        return forbidden_page(request, refused)
    try:
        text = operators.usable_note(request.POST.get("text", ""))
        operators.add_incident_note(row.pk, text, by=actor.name, now_ms=now_ms(request))
    except operators.UnfitNote as error:
        flash_refusal(request, reverse("incident", args=[number]), f"The note was not added: {error}.")
    return HttpResponseRedirect(reverse("incident", args=[number]), status=303)


def _found(number: int) -> Incident:
    found = incident_queries.incident_by_number(number) if number < 2**63 else None
    if found is None:
        raise Http404("Unknown incident.")
    return found


def _list(request: HttpRequest, wanted: IncidentListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    found = incident_queries.incidents_before(wanted.before, wanted, limit=_ROWS + 1)
    rows = found[:_ROWS]
    causes = incident_queries.causes_of(rows)
    kept = incident_queries.finding_rows(each.finding for each in causes.values())
    return {
        "wanted": wanted,
        "lines": [IncidentLine(row, _summary(row, causes, kept)) for row in rows],
        "next": rows[-1].pk if len(found) > _ROWS else None,
        "states": choices(IncidentListQuery, "state"),
        "severities": choices(IncidentListQuery, "severity"),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if rows else why_empty(frame, narrowed=bool(wanted.severity)),
    }


def _summary(row: Incident, causes: Mapping[int, IncidentFinding], kept: Mapping[int, FindingRecord]) -> str:
    cause = causes.get(row.pk)
    return kept.get(cause.finding, cause).summary if cause else f"{row.rule} of {row.subject}"


def _detail(request: HttpRequest, row: Incident, note: str) -> Mapping[str, Any]:
    lines = _finding_lines(row)
    now = [line for line in lines if line.of.until_ms is None]
    causes = [line for line in lines if line.of.role == IncidentFinding.Role.CAUSE]
    findings = incident_queries.open_findings_of([row], finding_queries.open_findings(row.cluster.name)).get(
        row.pk, ()
    )
    return {
        "row": row,
        "cluster": row.cluster.name,
        # Once the cause is over the last one that was.
        "cause": max(causes, key=lambda line: (line.of.until_ms is None, line.of.pk), default=None),
        "subject_url": addresses.incident_url(row),
        "subject_label": addresses.subject_label(row.subject),
        "effects": [line for line in now if line.of.role == IncidentFinding.Role.EFFECT],
        "past": [line for line in lines if line.of.until_ms is not None],
        "others": sorted({number for line in now for number in line.others}),
        "figures": incident_cards.impact_words(row),
        "deadline_ms": incident_queries.deadlines_of({row.pk: findings}).get(row.pk),
        "offers": incident_cards.primary_button(request, findings),
        "events": list(reversed(incident_queries.incident_events(row, _MOST))),
        "cannot_write": access.permission_refusal(actor_of(request, "page"), access.INCIDENTS),
        "longest_note": operators.LONGEST_NOTE,
        "note": note,
    }


def _report(row: Incident) -> IncidentReport:
    lines = _finding_lines(row)
    effects = [line for line in lines if line.of.role == IncidentFinding.Role.EFFECT]
    events = incident_queries.incident_events(row, _MOST)
    return IncidentReport(
        row.pk,
        _summary(
            row,
            incident_queries.causes_of([row]),
            {line.of.finding: line.kept for line in lines if line.kept},
        ),
        _facts(row),
        [ReportLine(line.of.since_ms, line.summary) for line in effects],
        [ReportLine(each.at_ms, _event_words(each)) for each in events],
    )


def _facts(row: Incident) -> Sequence[tuple[str, str]]:
    facts = {
        "Cluster": row.cluster.name,
        "Severity": row.severity,
        "Owner": row.owner,
        "Opened": utc_text(row.opened_ms),
        "Closed": "" if row.closed_ms is None else utc_text(row.closed_ms),
        "Acknowledged by": row.acknowledged_by,
    }
    impact = [(words, f"{number:,}") for words, number in incident_cards.impact_words(row)]
    return [*((name, text) for name, text in facts.items() if text), *impact]


def _event_words(each: IncidentEvent) -> str:
    about = f"{each.rule.replace('_', ' ')} of {each.subject}" if each.rule else ""
    by = f"by {each.actor}" if each.actor else ""
    return ": ".join(
        part for part in (f"{each.kind.replace('_', ' ')} {by}".strip(), about, each.text) if part
    )


def _finding_lines(row: Incident) -> Sequence[FindingLine]:
    members = incident_queries.incident_findings(row, _MOST)
    kept = incident_queries.finding_rows({each.finding for each in members})
    others = incident_queries.also_blocked_by(row, members)
    return [
        FindingLine(
            each,
            kept.get(each.finding),
            addresses.subject_url(row.cluster.name, each.subject),
            others.get(each.finding, ()),
        )
        for each in members
    ]
