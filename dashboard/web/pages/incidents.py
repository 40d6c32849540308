"""Incidents over time, one with its cause, effects and history; acknowledging one, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from pydantic import Field

from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.models import Incident
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.errors import error_note, flash_refusal, forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.incidents import detail, lines, report
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import action_view, render_page, signed_in
from fenceline.incidents.markdown import incident_markdown

_ROWS = 50
#: The timeline of an open incident moves with the clock, in such steps.
_STEP_MS = 5_000


class IncidentListQuery(list_forms.ListByRow, incident_queries.IncidentCriteria):
    """The query string of the list."""

    #: Of a range those that were open in it are asked for, most of which are closed by now.
    state: Literal["open", "closed", "all"] = Field(
        default_factory=lambda data: "open" if data["from_ms"] is None and data["to_ms"] is None else "all"
    )


@signed_in
def incident_list(request: HttpRequest) -> HttpResponse:
    """Show the incidents that the query string asks for, the newest first."""
    wanted = list_forms.read_request(request, IncidentListQuery)
    return render_page(request, "incidents/list", lambda: _list(request, wanted))


@signed_in
def incident_detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show one incident, open or closed."""
    row, note = _found(number), error_note(request)
    moved = note if row.closed_ms is not None else (note, now_ms(request) // _STEP_MS)
    return render_page(
        request, "incidents/detail", lambda: detail.incident_context(request, row, note), depends_on=moved
    )


@signed_in
def incident_markdown_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as a Markdown file."""
    text = incident_markdown(report.report_of(_found(number), now_ms=now_ms(request)))
    return _file(text, "text/markdown", f"incident-{number}.md")


@signed_in
def incident_html_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as one HTML file that needs no network."""
    text = report.report_html(_found(number), now_ms=now_ms(request))
    return _file(text, "text/html", f"incident-{number}.html")


@signed_in
def incident_offsets_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with the offsets that an incident affects, as CSV."""
    text = report.offsets_csv(_found(number))
    return _file(text, "text/csv", f"incident-{number}-offsets.csv")


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
    return {
        "wanted": wanted,
        "lines": lines.incident_lines(rows),
        "next": rows[-1].pk if len(found) > _ROWS else None,
        "states": parameter_choices(IncidentListQuery, "state"),
        "severities": parameter_choices(IncidentListQuery, "severity"),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if rows else why_empty(frame, narrowed=bool(wanted.severity)),
    }
