"""An incident as a file: what Markdown and HTML say of it, from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
from dashboard.web.charts.incident_figure import EventMark, FindingSpan, figure_html, incident_figure
from dashboard.web.incidents import cards
from dashboard.web.server.bundles import bundle_of
from fenceline.incidents.markdown import IncidentReport, ReportLine, utc_text

#: Findings and events of an incident that are read at once.
MOST = 200


def report_of(row: Incident) -> IncidentReport:
    """Return what there is to say of an incident."""
    members, kept = _members(row)
    effects = [each for each in members if each.role == IncidentFinding.Role.EFFECT]
    events = incident_queries.incident_events(row, MOST)
    return IncidentReport(
        row.pk,
        summary_of(row, incident_queries.causes_of([row]), kept),
        _facts(row, members, kept, whole=max(len(members), len(events)) < MOST),
        [ReportLine(each.since_ms, kept.get(each.finding, each).summary) for each in effects],
        [ReportLine(each.at_ms, _event_words(each)) for each in events],
    )


def report_html(row: Incident, *, now_ms: int) -> str:
    """Return an incident as one HTML file that needs no network: its style, script and chart are in it."""
    members, kept = _members(row)
    spans = [
        FindingSpan(
            f"{each.rule.replace('_', ' ')} of {each.subject}",
            each.role,
            each.since_ms,
            each.until_ms,
            kept.get(each.finding, each).summary,
        )
        for each in members
    ]
    report = report_of(row)
    marks = [EventMark(line.at_ms, line.text) for line in report.history]
    until_ms = now_ms if row.closed_ms is None else row.closed_ms
    chart = figure_html(incident_figure(spans, marks, now_ms=until_ms))
    return render_to_string(
        "incidents/report.html",
        {
            "report": report,
            "made": utc_text(now_ms),
            "sections": [
                ("Effects", _with_times(report.effects)),
                ("History, oldest first", _with_times(report.history)),
            ],
            # Files of ours, and JSON in which Plotly has escaped every bracket.
            "style": _inline("report.css"),
            "plotly": _inline("plotly.js"),
            "chart": mark_safe(chart),  # noqa: S308
        },
    )


def summary_of(
    row: Incident, causes: Mapping[int, IncidentFinding], kept: Mapping[int, FindingRecord]
) -> str:
    """Return the newest summary of an incident's cause, by the causes and kept findings of several."""
    cause = causes.get(row.pk)
    return kept.get(cause.finding, cause).summary if cause else f"{row.rule} of {row.subject}"


def _members(row: Incident) -> tuple[Sequence[IncidentFinding], Mapping[int, FindingRecord]]:
    members = incident_queries.incident_findings(row, MOST)
    return members, incident_queries.finding_rows({each.finding for each in members})


def _facts(
    row: Incident,
    members: Sequence[IncidentFinding],
    kept: Mapping[int, FindingRecord],
    *,
    whole: bool,
) -> Sequence[tuple[str, str]]:
    causes = [kept.get(each.finding) for each in members if each.role == IncidentFinding.Role.CAUSE]
    cause = next((each for each in reversed(causes) if each is not None), None)
    facts = {
        "Cluster": row.cluster.name,
        "Severity": row.severity,
        "Owner": row.owner,
        "Opened": utc_text(row.opened_ms),
        "Closed": "" if row.closed_ms is None else utc_text(row.closed_ms),
        "Acknowledged by": row.acknowledged_by,
        "Evidence": "" if cause is None else cause.evidence,
        "Next step": "" if cause is None else cause.next_step,
        "Left out": "" if whole else f"findings and events beyond {MOST}",
    }
    impact = [(words, f"{number:,}") for words, number in cards.impact_words(row)]
    return [*((name, text) for name, text in facts.items() if text), *impact]


def _event_words(each: IncidentEvent) -> str:
    about = f"{each.rule.replace('_', ' ')} of {each.subject}" if each.rule else ""
    by = f"by {each.actor}" if each.actor else ""
    return ": ".join(
        part for part in (f"{each.kind.replace('_', ' ')} {by}".strip(), about, each.text) if part
    )


def _with_times(lines: Sequence[ReportLine]) -> Sequence[tuple[str, str]]:
    return [(utc_text(line.at_ms), line.text) for line in lines]


def _inline(bundle: str) -> str:
    # The end of a script would end it even in a text; there a backslash changes nothing.
    return mark_safe(bundle_of(bundle).content.decode().replace("</script", "<\\/script"))  # noqa: S308
