"""Incidents over time, one with its cause, effects and history; acknowledging one, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from pydantic import Field

from dashboard.evaluation import finding_queries
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, IncidentFinding
from dashboard.runtime.criteria import choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import addresses, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.errors import error_note, flash_refusal, forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.incidents import cards, report
from dashboard.web.rendering import action_view, render_page, signed_in
from dashboard.web.request_time import now_ms
from fenceline.incidents.markdown import incident_markdown

_ROWS = 50
#: Events before an incident was opened, and after it was closed, are shown with it.
_AROUND_MS = 300_000


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

    #: Of a range those that were open in it are asked for, most of which are closed by now.
    state: Literal["open", "closed", "all"] = Field(
        default_factory=lambda data: "open" if data["from_ms"] is None and data["to_ms"] is None else "all"
    )


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
def incident_markdown_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as a Markdown file."""
    text = incident_markdown(report.report_of(_found(number)))
    return _file(text, "text/markdown", f"incident-{number}.md")


@signed_in
def incident_html_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as one HTML file that needs no network."""
    text = report.report_html(_found(number), now_ms=now_ms(request))
    return _file(text, "text/html", f"incident-{number}.html")


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


def _file(text: str, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _list(request: HttpRequest, wanted: IncidentListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    found = incident_queries.incidents_before(wanted.before, wanted, limit=_ROWS + 1)
    rows = found[:_ROWS]
    causes = incident_queries.causes_of(rows)
    kept = incident_queries.finding_rows(each.finding for each in causes.values())
    return {
        "wanted": wanted,
        "lines": [IncidentLine(row, report.summary_of(row, causes, kept)) for row in rows],
        "next": rows[-1].pk if len(found) > _ROWS else None,
        "states": choices(IncidentListQuery, "state"),
        "severities": choices(IncidentListQuery, "severity"),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if rows else why_empty(frame, narrowed=bool(wanted.severity)),
    }


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
        "subject_url": addresses.subject_url(row.cluster.name, row.subject),
        "subject_label": addresses.subject_label(row.subject),
        "events_url": addresses.events_url(
            row.cluster.name,
            row.opened_ms - _AROUND_MS,
            None if row.closed_ms is None else row.closed_ms + _AROUND_MS,
        ),
        "effects": [line for line in now if line.of.role == IncidentFinding.Role.EFFECT],
        "past": [line for line in lines if line.of.until_ms is not None],
        "others": sorted({number for line in now for number in line.others}),
        "figures": cards.impact_words(row),
        "deadline_ms": row.deadline_ms if row.closed_ms is None else None,
        "offers": cards.primary_button(request, findings),
        "events": list(reversed(incident_queries.incident_events(row, report.MOST))),
        "cannot_write": access.permission_refusal(actor_of(request, "page"), access.INCIDENTS),
        "longest_note": operators.LONGEST_NOTE,
        "note": note,
    }


def _finding_lines(row: Incident) -> Sequence[FindingLine]:
    members = incident_queries.incident_findings(row, report.MOST)
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
