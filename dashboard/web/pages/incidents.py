"""Incidents over time, each with its cause, effects and history; acknowledging one, and notes."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from pydantic import Field

from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.labels.alert import rule_label
from dashboard.models import Incident
from dashboard.runtime import visibility
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import addresses
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.chips import Filters, marked_labels
from dashboard.web.incidents import cards, detail, report
from dashboard.web.list_pages import list_view
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number
from fenceline.incidents.markdown import incident_markdown

_ROWS = 50
#: The timeline of an open incident moves with the clock in steps of this length.
_STEP_MS = 5_000


class IncidentListQuery(list_forms.ListByRow, incident_queries.IncidentCriteria):
    #: A range defaults to "all": most incidents of a past range are closed by now.
    state: Literal["open", "closed", "all"] = Field(
        default_factory=lambda data: "open" if data["from_ms"] is None and data["to_ms"] is None else "all"
    )


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
    """Mark an open incident as acknowledged by this user; refuse a closed one."""
    actor, row = actor_of(request, "page"), _found(number)
    if refused := access.permission_refusal(actor, access.INCIDENTS, row.cluster.name):
        return forbidden_page(request, refused)
    try:
        operators.acknowledge_incident(row.pk, by=actor.name, now_ms=now_ms(request))
    except operators.IncidentClosed as error:
        flash_refusal(request, reverse("incident", args=[number]), str(error))
    return HttpResponseRedirect(reverse("incident", args=[number]), status=303)


@action_view
def add_note(request: HttpRequest, number: int) -> HttpResponse:
    actor, row = actor_of(request, "page"), _found(number)
    if refused := access.permission_refusal(actor, access.INCIDENTS, row.cluster.name):
        return forbidden_page(request, refused)
    try:
        text = operators.usable_note(request.POST.get("text", ""))
        operators.add_incident_note(row.pk, text, by=actor.name, now_ms=now_ms(request))
    except operators.UnfitNote as error:
        flash_refusal(request, reverse("incident", args=[number]), f"The note was not added: {error}.")
    return HttpResponseRedirect(f"{reverse('incident', args=[number])}?tab=notes", status=303)


def _found(number: int) -> Incident:
    row = incident_queries.incident_by_number(number) if number < 2**63 else None
    return or_404(row, "Unknown incident.")


def _file(text: str, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@list_view("incidents/list", IncidentListQuery)
def incident_list(request: HttpRequest, wanted: IncidentListQuery) -> Mapping[str, Any]:
    """Show the incidents that match the query string, newest first."""
    incidents = incident_queries.incidents_before(wanted.before, wanted, limit=_ROWS + 1)
    rows, filters = incidents[:_ROWS], Filters(request.GET, wanted)
    severities = parameter_choices(IncidentListQuery, "severity")
    return {
        "narrowed": bool(wanted.severity),
        "rows": cards.incident_lines(rows, wanted.to_ms),
        "next": rows[-1].pk if len(incidents) > _ROWS else None,
        "filters": [
            filters.row("state", parameter_choices(IncidentListQuery, "state"), every=""),
            filters.row("severity", severities, marked_labels(severities), every="any severity"),
        ],
    }


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    rows = Incident.objects.filter(cluster__configured=True).select_related("cluster")
    wanted = Q(subject__icontains=asked) | Q(rule__icontains=asked.replace(" ", "_"))
    if (number := asked_number(asked)) is not None:
        wanted |= Q(pk=number)
    newest = visibility.rows_of_cluster(rows, cluster).filter(wanted).order_by("-pk")[:MOST_HITS]
    return [
        Hit(
            f"#{row.pk}",
            addresses.incident_url(row),
            f"{'open' if row.closed_ms is None else 'closed'} · {rule_label(row.rule)} · {row.subject}",
        )
        for row in newest
    ]


ROUTES = (
    PageRoute(
        "incidents",
        "incidents",
        incident_list,
        search=_search,
        parent="overview",
        has_files=True,
        is_ranged=True,
        lists_open=True,
        plural="incidents",
    ),
    PageRoute("incident", "incidents/<int:number>", incident_detail, parent="overview"),
    PageRoute("incident-markdown", "incidents/<int:number>.md", incident_markdown_file),
    PageRoute("incident-html", "incidents/<int:number>.html", incident_html_file),
    PageRoute("incident-offsets", "incidents/<int:number>.csv", incident_offsets_file),
    PageRoute("incident-acknowledge", "incidents/<int:number>/acknowledge", acknowledge),
    PageRoute("incident-note", "incidents/<int:number>/notes", add_note),
)
