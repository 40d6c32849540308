"""The lanes of a range of time: events, durations, and figures below, with a table of the figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.history import event_lanes
from dashboard.history import queries as history_queries
from dashboard.history.event_lanes import TimelineLanes
from dashboard.history.queries import Bucket
from dashboard.incidents import queries as incident_queries
from dashboard.labels.alert import rule_label
from dashboard.labels.transition import event_label
from dashboard.models import Batch, Tally
from dashboard.series.queries import SubjectReading
from dashboard.web import addresses
from dashboard.web.charts import event_figure
from dashboard.web.charts.event_figure import LaneMark, LaneSpan, Panel
from dashboard.web.forms.lists import clip_value
from fenceline.facts import TransitionKind
from fenceline.formatting import count_noun, format_duration
from fenceline.history.time_range import TimeRange
from fenceline.history.timeline import EventSource, TimelineEvent
from fenceline.series.points import APPLICATION, GROUP
from fenceline.series.reading import HoleReason

_SPANS = 40
#: Lengths of a chart's steps in seconds; the first one with few enough steps in the range is used.
_STEPS_S = (60, 300, 900, 3_600, 7_200, 21_600, 86_400, 604_800)
_MOST_STEPS, _MOST_ROWS = 180, 48
#: Events that are shown as bars.
_BARS = (EventSource.INCIDENT, EventSource.FINDING)
_MARKS = {
    TransitionKind.TAKEOVER: "fence",
    TransitionKind.ADMIN_FENCE: "fence",
    TransitionKind.TIMEOUT: "timeout",
}


#: A column of the table: its heading, its page, and a figure for each row.
_Column = tuple[str, str, Sequence[str]]


def timeline_context(
    cluster: str,
    application: str,
    shown: TimeRange,
    events: Sequence[TimelineEvent],
    complete_since_ms: int | None,
    at_ms: int,
) -> Mapping[str, Any]:
    """Return the lanes of the whole range: marks are the newest of each lane."""
    marks = [mark for event in events if (mark := _mark(event))]
    lanes = event_lanes.read_lanes(cluster, application, shown, now_ms=at_ms)
    spans = [*_incidents(cluster, shown, at_ms), *_open(lanes, shown, at_ms), *_batches(lanes, shown)]
    commits = _commits(cluster, application, shown)
    panels = _panels(lanes, commits)
    if not (marks or spans or panels):
        return {"chart": None}
    return {
        "chart": event_figure.event_figure(panels, spans, marks, from_ms=shown.from_ms, to_ms=shown.to_ms),
        "chart_words": _words(lanes, spans, marks),
        "chart_cut": complete_since_ms,
        "chart_table": _table(lanes, commits, shown),
        "chart_kept_since_ms": _kept_since(lanes),
        "too_many_batches": lanes.batches.number if not lanes.batches.batches else 0,
    }


def _incidents(cluster: str, shown: TimeRange, at_ms: int) -> Sequence[LaneSpan]:
    opened = incident_queries.incidents_within(cluster, shown.from_ms, shown.to_ms, limit=_SPANS)
    return [
        LaneSpan(
            max(row.opened_ms, shown.from_ms),
            min(row.closed_ms or at_ms, shown.to_ms),
            row.severity,
            f"#{row.pk} {rule_label(row.rule)}: {row.subject}",
            addresses.incident_url(row),
        )
        for row in opened
    ]


def _open(lanes: TimelineLanes, shown: TimeRange, at_ms: int) -> Sequence[LaneSpan]:
    return [
        LaneSpan(
            max(row.since_ms, shown.from_ms),
            min(at_ms if row.closed_at is None else round(row.closed_at.timestamp() * 1_000), shown.to_ms),
            row.severity,
            row.summary,
            addresses.subject_url(row.cluster.name, row.subject),
            event_figure.TRANSACTIONS,
        )
        for row in lanes.open_too_long
    ]


def _batches(lanes: TimelineLanes, shown: TimeRange) -> Sequence[LaneSpan]:
    return [
        LaneSpan(
            batch.started_ms or shown.from_ms,
            min((batch.started_ms or shown.from_ms) + (batch.duration_ms or 0), shown.to_ms),
            "ok",
            f"{batch.query} batch {batch.batch_id:,}: {format_duration(batch.duration_ms or 0)}",
            addresses.batch_of(batch.query, batch.batch_id),
            event_figure.BATCHES,
        )
        for batch in lanes.batches.batches
    ]


def _mark(event: TimelineEvent) -> LaneMark | None:
    """Return an event's mark; folded events and events with a bar have none."""
    if event.source in _BARS or event.count:
        return None
    look = event_label(event)
    of_transition = event.source is EventSource.TRANSITION
    kind = _MARKS.get(TransitionKind(event.what), "transition") if of_transition else event.source.value
    words = f"{look.words} {clip_value(event.subject.partition(':')[2])}"
    return LaneMark(event.at_ms, kind, look.tone, words, addresses.event_url(event))


def _commits(cluster: str, application: str, shown: TimeRange) -> Sequence[Bucket]:
    return history_queries.transition_buckets(
        cluster,
        since_ms=shown.from_ms,
        until_ms=shown.to_ms,
        step_s=step_seconds(shown, _MOST_STEPS),
        application=application or Tally.EVERY,
    )


def step_seconds(shown: TimeRange, most: int) -> int:
    """Return the length in seconds of a range's steps, up to a maximum of steps."""
    length_s = shown.length_ms // 1_000
    return next((step for step in _STEPS_S if length_s <= step * most), _STEPS_S[-1])


def _panels(lanes: TimelineLanes, commits: Sequence[Bucket]) -> Sequence[Panel]:
    several = len(lanes.backlog) > 1
    panels = []
    if any(subject.reading.runs for _, subject in lanes.backlog):
        named = [(cluster if several else "", subject.reading) for cluster, subject in lanes.backlog]
        panels.append(event_figure.backlog_panel(named))
    if lanes.lag:
        panels.append(
            event_figure.lag_panel([(clip_value(subject.name), subject.reading) for _, subject in lanes.lag])
        )
    if any(bucket.counts for bucket in commits):
        panels.append(event_figure.commit_panel(commits))
    return panels


def _words(lanes: TimelineLanes, spans: Sequence[LaneSpan], marks: Sequence[LaneMark]) -> str:
    """Return a sentence on the lanes, for readers who cannot see them."""
    opened, batches = len(lanes.open_too_long), len(lanes.batches.batches)
    incidents = len(spans) - opened - batches
    numbers = {"incident": incidents, "long transaction": opened, "event": len(marks)}
    words = [count_noun(number, noun) for noun, number in numbers.items() if number]
    if worst := max((subject.worst for _, subject in lanes.backlog), default=0):
        words.append(f"at most {worst:,} blocked offsets")
    words += [f"{clip_value(subject.name)} at most {subject.worst:,} behind" for _, subject in lanes.lag]
    if lanes.batches.batches:
        slowest = max(batch.duration_ms or 0 for batch in lanes.batches.batches)
        words.append(f"the slowest batch took {format_duration(slowest)}")
    return f"Lanes: {', '.join(words)}."


def _kept_since(lanes: TimelineLanes) -> int | None:
    """Return the start of the stored figures if the range begins earlier."""
    begins = [
        hole.to_ms
        for _, subject in lanes.backlog
        if subject.kept_since_ms is not None
        for hole in subject.reading.holes
        if hole.reason in (HoleReason.NOT_RECORDED, HoleReason.NOT_KEPT)
    ]
    return max(begins, default=None)


def _table(lanes: TimelineLanes, commits: Sequence[Bucket], shown: TimeRange) -> Mapping[str, Any]:
    """Return the figures by time, in whole steps of the commits."""
    span_ms = commits[0].span_ms
    step_ms = span_ms * -(-len(commits) // _MOST_ROWS)
    starts = range(commits[0].start_ms, shown.to_ms, step_ms)
    columns = [
        *(
            _series_column("Blocked backlog", "", subject, APPLICATION.lead, starts)
            for _, subject in lanes.backlog
        ),
        *(
            _series_column(
                f"Lag of {clip_value(subject.name)}",
                addresses.group_url(cluster, subject.name),
                subject,
                GROUP.lead,
                starts,
            )
            for cluster, subject in lanes.lag
        ),
        ("Slowest batch", "", _slowest(lanes.batches.batches, starts)),
        ("Commits", "", _commit_counts(commits, starts)),
    ]
    rows = [(at_ms, [cells[n] for *_, cells in columns]) for n, at_ms in enumerate(starts)]
    return {"columns": columns, "rows": rows}


def _series_column(heading: str, url: str, subject: SubjectReading, column: int, starts: range) -> _Column:
    highs = subject.reading.highs(column, starts)
    return heading, url, ["—" if high is None else f"{high:,}" for high in highs]


def _slowest(batches: Sequence[Batch], starts: range) -> Sequence[str]:
    longest = [0] * len(starts)
    for batch in batches:
        n = ((batch.started_ms or 0) - starts.start) // starts.step
        if 0 <= n < len(longest):
            longest[n] = max(longest[n], batch.duration_ms or 0)
    return [format_duration(ms) if ms else "—" for ms in longest]


def _commit_counts(commits: Sequence[Bucket], starts: range) -> Sequence[str]:
    counts = [0] * len(starts)
    for bucket in commits:
        n = (bucket.start_ms - starts.start) // starts.step
        if 0 <= n < len(counts):
            counts[n] += bucket.counts.get(TransitionKind.COMMIT, 0)
    return [f"{number:,}" for number in counts]
