"""An incident as a file: Markdown, one HTML file that needs no network, and the offsets that it affects."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from dashboard.incidents.affected_offsets import AffectedOffsets, affected_offsets
from dashboard.models import Delivery, Incident, IncidentFinding
from dashboard.web.charts.incident_figure import standalone_html
from dashboard.web.incidents import cards
from dashboard.web.incidents.detail import MOST, IncidentStory, event_words, read_story, story_figure
from dashboard.web.server.bundles import bundle_of
from fenceline.incidents.evidence import EvidenceLine
from fenceline.incidents.markdown import IncidentReport, ReportLine, utc_text
from fenceline.incidents.sentences import incident_explanation
from fenceline.sentences import plain_text


def report_of(row: Incident, *, now_ms: int) -> IncidentReport:
    """Return what there is to show of an incident."""
    return _report(read_story(row, now_ms=now_ms), now_ms)


def report_html(row: Incident, *, now_ms: int) -> str:
    """Return an incident as one HTML file that needs no network: its style, script and chart are in it."""
    story = read_story(row, now_ms=now_ms)
    report = _report(story, now_ms)
    figure, _ = story_figure(story, now_ms=now_ms)
    return render_to_string(
        "incidents/report.html",
        {
            "report": report,
            "made": utc_text(now_ms),
            "sections": [(title, _with_times(lines)) for title, lines in report.sections if lines],
            # Files of ours, and JSON in which Plotly has escaped every bracket.
            "style": _inline("report.css"),
            "plotly": _inline("plotly.js"),
            "chart": mark_safe(standalone_html(figure)),  # noqa: S308
        },
    )


def offsets_csv(row: Incident) -> str:
    """Return the offsets that an incident affects for a program, a line for each range."""
    out = StringIO()
    lines = csv.writer(out, lineterminator="\r\n")
    lines.writerow(AffectedOffsets._fields)
    for each in affected_offsets(row):
        lines.writerow([_cell(value) for value in each])
    return out.getvalue()


def _report(story: IncidentStory, now_ms: int) -> IncidentReport:
    history = story.history
    effects = [each for each in history.members if each.role == IncidentFinding.Role.EFFECT]
    whole = max(len(history.members), len(history.events)) < MOST
    return IncidentReport(
        history.row.pk,
        plain_text(story.headline, now_ms=now_ms),
        _facts(story, now_ms, whole=whole),
        [
            ("Cause and evidence", [ReportLine(each.at_ms, _read_from(each)) for each in story.evidence]),
            ("Effects", [ReportLine(each.since_ms, _summary(story, each)) for each in effects]),
            ("History, oldest first", [ReportLine(each.at_ms, event_words(each)) for each in history.events]),
            (
                "Notifications",
                [ReportLine(each.made_ms, _sent(each)) for each in reversed(history.deliveries)],
            ),
        ],
    )


def _read_from(each: EvidenceLine) -> str:
    return f"{each.words} (read from: {each.where})"


def _summary(story: IncidentStory, each: IncidentFinding) -> str:
    return story.history.kept.get(each.finding, each).summary


def _sent(row: Delivery) -> str:
    return f"{row.channel.name}: {row.state}, {row.reason.replace('_', ' ')}"


def _facts(story: IncidentStory, now_ms: int, *, whole: bool) -> Sequence[tuple[str, str]]:
    row = story.history.row
    kept = story.history.kept.get(story.cause.finding) if story.cause else None
    explanation = incident_explanation(story.facts, now_ms=now_ms) if story.facts else ()
    facts = {
        "What it means": plain_text(explanation, now_ms=now_ms),
        "Cluster": row.cluster.name,
        "Severity": row.severity,
        "Owner": row.owner,
        "Opened": utc_text(row.opened_ms),
        "Reopened": "" if row.reopened_ms is None else utc_text(row.reopened_ms),
        "Deadline": "" if row.deadline_ms is None else utc_text(row.deadline_ms),
        "Closed": "" if row.closed_ms is None else utc_text(row.closed_ms),
        "Acknowledged by": row.acknowledged_by,
        "Evidence": "" if kept is None else kept.evidence,
        "Next step": "" if kept is None else kept.next_step,
        "Left out": "" if whole else f"findings and events beyond {MOST}",
    }
    impact = [(words, f"{number:,}") for words, number in cards.impact_words(row)]
    return [*((name, text) for name, text in facts.items() if text), *impact]


def _with_times(lines: Sequence[ReportLine]) -> Sequence[tuple[str, str]]:
    return [(utc_text(line.at_ms), line.text) for line in lines]


def _cell(value: object) -> object:
    """Return a cell of a CSV that no spreadsheet takes for a formula (OWASP, CSV injection)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def _inline(bundle: str) -> str:
    # The end of a script would end it even in a text; there a backslash changes nothing.
    return mark_safe(bundle_of(bundle).content.decode().replace("</script", "<\\/script"))  # noqa: S308
