"""An incident as a file: Markdown, one HTML file that needs no network, and the offsets that it affects."""

from collections.abc import Sequence

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from dashboard.incidents.affected_offsets import AffectedOffsets, affected_offsets
from dashboard.models import Delivery, Incident, IncidentFinding
from dashboard.runtime.csv_text import csv_text
from dashboard.web.charts.incident_figure import standalone_html
from dashboard.web.incidents import cards
from dashboard.web.incidents.detail import MOST, IncidentStory, fold_events, read_story, story_figure
from dashboard.web.server.bundles import bundle_of
from fenceline.incidents.evidence import EvidenceLine
from fenceline.incidents.markdown import IncidentReport, ReportLine, utc_text
from fenceline.incidents.sentences import incident_explanation
from fenceline.text.sentences import plain_text


def report_of(row: Incident, *, now_ms: int) -> IncidentReport:
    return _report(read_story(row, now_ms=now_ms), now_ms)


def report_html(row: Incident, *, now_ms: int) -> str:
    """Return an incident as one HTML file that needs no network: style, script and chart are inside."""
    story = read_story(row, now_ms=now_ms)
    report = _report(story, now_ms)
    figure, _ = story_figure(story, now_ms=now_ms)
    return render_to_string(
        "incidents/report.html",
        {
            "report": report,
            "made": utc_text(now_ms),
            "sections": [
                (title, [(utc_text(line.at_ms), line.text) for line in lines])
                for title, lines in report.sections
                if lines
            ],
            # Our own files, and JSON in which Plotly has escaped every bracket.
            "style": _inline("report.css"),
            "plotly": _inline("plotly.js"),
            "chart": mark_safe(standalone_html(figure)),  # noqa: S308
        },
    )


def offsets_csv(row: Incident) -> str:
    """Return the offsets that an incident affects as CSV, a line for each range."""
    return csv_text([AffectedOffsets._fields, *affected_offsets(row)])


def _report(story: IncidentStory, now_ms: int) -> IncidentReport:
    history = story.history
    effects = [member for member in history.members if member.role == IncidentFinding.Role.EFFECT]
    whole = max(len(history.members), len(history.events)) < MOST
    return IncidentReport(
        history.row.pk,
        plain_text(story.headline, now_ms=now_ms),
        _facts(story, now_ms, whole=whole),
        [
            ("Cause and evidence", [ReportLine(line.at_ms, _read_from(line)) for line in story.evidence]),
            ("Effects", [ReportLine(effect.since_ms, _summary(story, effect)) for effect in effects]),
            (
                "History, oldest first",
                [ReportLine(line.of.at_ms, line.text) for line in fold_events(history.events)],
            ),
            (
                "Notifications",
                [ReportLine(delivery.made_ms, _sent(delivery)) for delivery in reversed(history.deliveries)],
            ),
        ],
    )


def _read_from(line: EvidenceLine) -> str:
    return f"{line.words} (read from: {line.where})"


def _summary(story: IncidentStory, finding: IncidentFinding) -> str:
    return story.history.kept.get(finding.finding, finding).summary


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
