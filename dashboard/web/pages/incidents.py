"""Incidents over time, each with its cause, effects and history, also as files; acknowledgements, notes."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import mark_safe
from pydantic import Field

from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.affected_offsets import AffectedOffsets, affected_offsets
from dashboard.labels.alert import rule_label
from dashboard.models import Incident, IncidentFinding
from dashboard.runtime import visibility
from dashboard.runtime.criteria import parameter_choices
from dashboard.runtime.csv_text import csv_text
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import addresses
from dashboard.web.charts.incident_figure import standalone_html
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters, marked_labels
from dashboard.web.incidents import cards, detail
from dashboard.web.incidents.detail import MOST, IncidentStory, fold_events, read_story, story_figure
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    list_view,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number
from dashboard.web.server.bundles import bundle_of
from fenceline.incidents.markdown import Facts, Sections, incident_markdown, utc_text
from fenceline.incidents.sentences import incident_explanation
from fenceline.text import plain_text

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
    row, note = _found(number), error_note(request)
    moved = note if row.closed_ms is not None else (note, now_ms(request) // _STEP_MS)
    return render_page(
        request, "incidents/detail", lambda: detail.incident_context(request, row, note), depends_on=moved
    )


@signed_in
def incident_markdown_file(request: HttpRequest, number: int) -> HttpResponse:
    at_ms = now_ms(request)
    text = incident_markdown(number, *_report(read_story(_found(number), now_ms=at_ms), at_ms))
    return _file(text, "text/markdown", f"incident-{number}.md")


@signed_in
def incident_html_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with an incident as one HTML file that needs no network."""
    text = report_html(_found(number), now_ms=now_ms(request))
    return _file(text, "text/html", f"incident-{number}.html")


@signed_in
def incident_offsets_file(request: HttpRequest, number: int) -> HttpResponse:
    """Answer with the offsets that an incident affects as CSV, a line for each range."""
    text = csv_text([AffectedOffsets._fields, *affected_offsets(_found(number))])
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
    return or_404(incident_queries.incident_by_number(number), "Unknown incident.")


def _file(text: str, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@list_view("incidents/list", IncidentListQuery)
def incident_list(request: HttpRequest, wanted: IncidentListQuery) -> Mapping[str, Any]:
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
    wanted = Q(subject__icontains=asked) | Q(rule__icontains=asked.replace(" ", "_"))
    if (number := asked_number(asked)) is not None:
        wanted |= Q(pk=number)
    rows = visibility.rows_in(Incident, cluster).filter(wanted).select_related("cluster")
    newest = rows.order_by("-pk")[:MOST_HITS]
    return [
        Hit(
            f"#{row.pk}",
            addresses.incident_url(row),
            f"{'open' if row.closed_ms is None else 'closed'} · {rule_label(row.rule)} · {row.subject}",
        )
        for row in newest
    ]


def report_html(row: Incident, *, now_ms: int) -> str:
    """Return an incident as one HTML file that needs no network: style, script and chart are inside."""
    story = read_story(row, now_ms=now_ms)
    headline, facts, sections = _report(story, now_ms)
    figure, _ = story_figure(story, now_ms=now_ms)
    return render_to_string(
        "incidents/report.html",
        {
            "number": row.pk,
            "headline": headline,
            "facts": facts,
            "made": utc_text(now_ms),
            "sections": [
                (title, [(utc_text(at_ms), text) for at_ms, text in lines])
                for title, lines in sections
                if lines
            ],
            # Our own files, and JSON in which Plotly has escaped every bracket.
            "style": _inline("report.css"),
            "plotly": _inline("plotly.js"),
            "chart": mark_safe(standalone_html(figure)),  # noqa: S308
        },
    )


def _report(story: IncidentStory, now_ms: int) -> tuple[str, Facts, Sections]:
    """Return the headline, the facts and the sections of an incident's report."""
    history = story.history
    effects = [member for member in history.members if member.role == IncidentFinding.Role.EFFECT]
    whole = max(len(history.members), len(history.events)) < MOST
    return (
        plain_text(story.headline, now_ms=now_ms),
        _facts(story, now_ms, whole=whole),
        [
            (
                "Cause and evidence",
                [(line.at_ms, f"{line.words} (read from: {line.where})") for line in story.evidence],
            ),
            (
                "Effects",
                [(effect.since_ms, history.kept.get(effect.finding, effect).summary) for effect in effects],
            ),
            (
                "History, oldest first",
                [(line.of.at_ms, line.text) for line in fold_events(history.events)],
            ),
            (
                "Notifications",
                [
                    (row.made_ms, f"{row.channel.name}: {row.state}, {row.reason.replace('_', ' ')}")
                    for row in reversed(history.deliveries)
                ],
            ),
        ],
    )


def _facts(story: IncidentStory, now_ms: int, *, whole: bool) -> Facts:
    row = story.history.row
    kept = story.history.kept.get(story.cause.finding) if story.cause else None
    explanation = incident_explanation(story.facts, now_ms=now_ms) if story.facts else ()
    facts = {
        "What it means": plain_text(explanation, now_ms=now_ms),
        "Cluster": row.cluster.name,
        "Severity": row.severity,
        "Owner": row.owner,
        "Began": utc_text(row.since_ms),
        "Opened": utc_text(row.opened_ms),
        "Reopened": "" if row.reopened_ms is None else utc_text(row.reopened_ms),
        "Deadline": "" if row.deadline_ms is None else utc_text(row.deadline_ms),
        "Closed": "" if row.closed_ms is None else utc_text(row.closed_ms),
        "Outcome": row.outcome,
        "Acknowledged by": row.acknowledged_by,
        "Evidence": "" if kept is None else kept.evidence,
        "Next step": "" if kept is None or row.closed_ms is not None else kept.next_step,
        "Left out": "" if whole else f"findings and events beyond {MOST}",
    }
    impact = [(words, f"{number:,}") for words, number in cards.impact_words(row)]
    return [*((name, text) for name, text in facts.items() if text), *impact]


def _inline(bundle: str) -> str:
    # The end tag of a script would end it even inside a string; there a backslash changes nothing.
    return mark_safe(bundle_of(bundle).content.decode().replace("</script", "<\\/script"))  # noqa: S308


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
    ),
    PageRoute("incident", "incidents/<int:number>", incident_detail, parent="overview"),
    PageRoute("incident-markdown", "incidents/<int:number>.md", incident_markdown_file),
    PageRoute("incident-html", "incidents/<int:number>.html", incident_html_file),
    PageRoute("incident-offsets", "incidents/<int:number>.csv", incident_offsets_file),
    PageRoute("incident-acknowledge", "incidents/<int:number>/acknowledge", acknowledge),
    PageRoute("incident-note", "incidents/<int:number>/notes", add_note),
)
