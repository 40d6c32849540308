"""The lanes of one incident: batches of its queries, findings by subject, deliveries, operators' acts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dashboard.labels.action import ACTS
from dashboard.labels.alert import rule_label
from dashboard.models import (
    Action,
    Batch,
    Delivery,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    Query,
)
from dashboard.web.charts.incident_figure import IncidentLane, LaneBar, LanePoint
from fenceline.facts import Severity
from fenceline.findings import worst_severity
from fenceline.formatting import count_noun
from fenceline.grouping import grouped
from fenceline.history.time_range import TimeRange
from fenceline.incidents.findings import IncidentEventKind
from fenceline.spark.drivers import Driver

#: Subjects of one kind have a lane each up to this number; more share one.
_LANES_EACH = 2
#: Maximum drawn batches of a query, and maximum drawn actions.
_BATCHES, _ACTIONS = 60, 20
#: The time shown before the incident, at least and as a share of its length; and after it.
_BEFORE_MS, _BEFORE, _AFTER = 60_000, 0.5, 0.04
#: The order of lanes: from cause to effect.
_KINDS = (
    "query",
    "flink_job",
    "application",
    "transaction",
    "coordinators",
    "collector",
    "partition",
    "group",
    "pipeline",
)
_PLURALS = {"query": "queries", "coordinators": "coordinators"}
#: The labels of bars of rules whose names are the names of limits.
_BAR_LABELS = {
    "open_too_long": "open",
    "coordinator_overdue": "overdue at its coordinator",
    "stuck_in_prepare": "markers not written",
    "lso_pinned": "LSO blocked",
    "group_stalled": "blocked at the LSO",
    "query_blocked": "blocked at the LSO",
    "offsets_unstable": "commits pending",
    "aborted_under_commit": "committed, records lost",
    "batch_prepared": "prepared, not committed",
    "batch_lost": "lost in part",
    "flink_commit_pending": "decided, not committed",
    "flink_commit_lost": "aborted after the decision",
    "query_failed": "failed",
}
_BY_PEOPLE = {IncidentEventKind.ACKNOWLEDGED: "acknowledged", IncidentEventKind.NOTE: "note"}
_DELIVERY_TONES = {Delivery.State.DELIVERED: "info", Delivery.State.FAILED: "critical"}


@dataclass(frozen=True, slots=True)
class IncidentHistory:
    """The drawn parts of an incident: its findings, with their stored rows, and its events."""

    row: Incident
    members: Sequence[IncidentFinding]
    kept: Mapping[int, FindingRecord]
    events: Sequence[IncidentEvent]
    deliveries: Sequence[Delivery]
    #: Its streaming queries with their drivers.
    queries: Sequence[tuple[Query, Driver]]

    def since_ms(self, member: IncidentFinding) -> int:
        """Return since when a finding holds: possibly before it was seen, but not before the incident."""
        finding = self.kept.get(member.finding)
        since_ms = member.since_ms if finding is None else min(finding.since_ms, member.since_ms)
        return max(since_ms, self.row.since_ms)


def span_of(history: IncidentHistory, *, now_ms: int) -> TimeRange:
    """Return the range of the timeline: from a while before the first fact to now, or to the end."""
    end_ms = now_ms if history.row.closed_ms is None else history.row.closed_ms
    first_ms = min([history.row.opened_ms, *map(history.since_ms, history.members)])
    length_ms = max(1, end_ms - first_ms)
    before_ms = max(_BEFORE_MS, min(600_000, round(length_ms * _BEFORE)))
    return TimeRange(first_ms - before_ms, end_ms + max(1_000, round(length_ms * _AFTER)))


def lanes_of(history: IncidentHistory, *, now_ms: int) -> tuple[TimeRange, Sequence[IncidentLane]]:
    """Return the range and the lanes, from cause to effect, without empty lanes."""
    span = span_of(history, now_ms=now_ms)
    end_ms = now_ms if history.row.closed_ms is None else history.row.closed_ms
    lanes = [
        *(_batch_lane(query, driver, span) for query, driver in history.queries),
        *_finding_lanes(history, end_ms),
        _delivery_lane(history.deliveries),
        _operator_lane(history, span),
    ]
    return span, [lane for lane in lanes if lane.bars or lane.points]


def _batch_lane(query: Query, driver: Driver, span: TimeRange) -> IncidentLane:
    rows = Batch.objects.filter(query=query, planned_ms__gte=span.from_ms, planned_ms__lt=span.to_ms)
    bars = [_batch_bar(row) for row in rows.order_by("-batch_id")[:_BATCHES]]
    gone_ms = driver.ended_ms or driver.silent_since_ms
    points = [LanePoint(gone_ms, "critical", "driver stopped reporting")] if gone_ms else []
    return IncidentLane(
        str(query), bars, [point for point in points if span.from_ms <= point.at_ms < span.to_ms]
    )


def _batch_bar(row: Batch) -> LaneBar:
    begin_ms = row.planned_ms or 0
    end_ms = row.committed_ms or (row.started_ms or begin_ms) + (row.duration_ms or 0)
    state = "checkpointed" if row.committed_ms else "not checkpointed"
    tone = "ok" if row.committed_ms else "warning"
    return LaneBar(begin_ms, max(end_ms, begin_ms), tone, "", f"batch {row.batch_id:,}: {state}")


def _finding_lanes(history: IncidentHistory, end_ms: int) -> Iterator[IncidentLane]:
    members = sorted(history.members, key=lambda member: _kind_order(member.subject))
    for kind, group in groupby(members, key=lambda member: member.subject.partition(":")[0]):
        by_subject = grouped((member.subject, member) for member in group)
        if len(by_subject) <= _LANES_EACH:
            for subject, lane_members in by_subject.items():
                yield IncidentLane(
                    _lane_name(subject, history), _merged(_finding_bars(history, lane_members, end_ms))
                )
        else:
            noun = f"{len(by_subject):,} {_PLURALS.get(kind, f'{kind}s')}"
            lane_members = [member for subject_members in by_subject.values() for member in subject_members]
            yield IncidentLane(noun, _merged(_finding_bars(history, lane_members, end_ms)))


def _lane_name(subject: str, history: IncidentHistory) -> str:
    kind, _, name = subject.partition(":")
    if kind == "query":
        # Its batches already have a lane of that name.
        names = {query.ident: str(query) for query, _ in history.queries}
        return f"{names.get(name, name)}: findings"
    return name or kind


def _finding_bars(
    history: IncidentHistory, members: Iterable[IncidentFinding], end_ms: int
) -> Sequence[LaneBar]:
    bars = []
    for member in members:
        row = history.kept.get(member.finding)
        words = row.summary if row else member.summary
        until_ms = end_ms if member.until_ms is None else member.until_ms
        tone = row.severity if row else member.severity
        since_ms = history.since_ms(member)
        label = _BAR_LABELS.get(member.rule, rule_label(member.rule))
        bars.append(LaneBar(since_ms, max(until_ms, since_ms), tone, label, words))
    return sorted(bars, key=lambda bar: (bar.from_ms, bar.to_ms))


def _merged(bars: Sequence[LaneBar]) -> Sequence[LaneBar]:
    """Merge overlapping bars of many subjects into one with the worst severity."""
    merged: list[LaneBar] = []
    for bar in bars:
        last = merged[-1] if merged else None
        if last is None or bar.from_ms > last.to_ms:
            merged.append(bar)
        else:
            tone = worst_severity([Severity(last.tone), Severity(bar.tone)])
            merged[-1] = last._replace(to_ms=max(last.to_ms, bar.to_ms), tone=tone)
    return merged


def _delivery_lane(deliveries: Sequence[Delivery]) -> IncidentLane:
    points = [
        LanePoint(
            row.made_ms, _DELIVERY_TONES.get(Delivery.State(row.state), "warning"), f"→ {row.channel.name}"
        )
        for row in reversed(deliveries)
    ]
    return IncidentLane("notifications", points=points)


def _operator_lane(history: IncidentHistory, span: TimeRange) -> IncidentLane:
    points = [
        LanePoint(event.at_ms, "info", f"{_BY_PEOPLE[IncidentEventKind(event.kind)]} by {event.actor}")
        for event in history.events
        if event.kind in _BY_PEOPLE
    ]
    points += [
        LanePoint(row.started_ms or 0, "info", f"{ACTS[row.act].noun} by {row.executed_by}")
        for row in actions_of(history, span)
    ]
    return IncidentLane("operators", points=sorted(points))


def actions_of(history: IncidentHistory, span: TimeRange) -> Sequence[Action]:
    """Return operators' actions on an incident's subjects in its time, newest first."""
    subjects = {member.subject for member in history.members}
    rows = Action.objects.filter(
        cluster=history.row.cluster_id, started_ms__gte=span.from_ms, started_ms__lt=span.to_ms
    )
    actions = rows.select_related("cluster").order_by("-started_ms")[:_ACTIONS]
    return [row for row in actions if not subjects.isdisjoint(row.subjects.splitlines())]


def _kind_order(subject: str) -> tuple[int, str]:
    kind = subject.partition(":")[0]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


def timeline_words(lanes: Sequence[IncidentLane]) -> str:
    """Return a timeline as text, for readers who cannot see it."""
    bars, points = sum(len(lane.bars) for lane in lanes), sum(len(lane.points) for lane in lanes)
    counts = (count_noun(len(lanes), "lane"), count_noun(bars, "span"), count_noun(points, "event"))
    return f"Timeline: {', '.join(counts)}."
