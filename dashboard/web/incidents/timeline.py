"""The lanes of one incident: its queries' batches, findings by subject, deliveries, what operators did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dashboard.labels.action import ACTS
from dashboard.labels.rule import rule_label
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
from fenceline.formatting import count_noun
from fenceline.incidents.findings import IncidentEventKind
from fenceline.severity import worst_severity
from fenceline.spark.drivers import Driver

#: Subjects of one kind that have a lane each; more share one.
_LANES_EACH = 2
#: Batches of a query, and actions, that are drawn.
_BATCHES, _ACTIONS = 60, 20
#: What is shown before the incident, at least and as a share of its length; and after it.
_BEFORE_MS, _BEFORE, _AFTER = 60_000, 0.5, 0.04
#: From cause to effect.
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
#: What a bar is called, where the rule's own name is of a limit.
_BAR_LABELS = {
    "open_too_long": "open",
    "coordinator_overdue": "overdue at its coordinator",
    "stuck_in_prepare": "markers not written",
    "lso_pinned": "LSO blocked",
    "group_stalled": "blocked at the LSO",
    "query_blocked": "blocked at the LSO",
    "offsets_unstable": "commits pending",
    "batch_prepared": "prepared, not committed",
    "batch_lost": "lost in part",
    "flink_commit_pending": "decided, not committed",
    "flink_commit_lost": "aborted after the decision",
    "query_failed": "failed",
}
_BY_PEOPLE = {IncidentEventKind.ACKNOWLEDGED: "acknowledged", IncidentEventKind.NOTE: "note"}
_DELIVERY_TONES = {Delivery.State.DELIVERED: "info", Delivery.State.FAILED: "critical"}


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """What an incident's timeline shows, in ms since 1970."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class IncidentHistory:
    """What is drawn of an incident: its findings, with those of their rows that are kept, and events."""

    row: Incident
    members: Sequence[IncidentFinding]
    kept: Mapping[int, FindingRecord]
    events: Sequence[IncidentEvent]
    deliveries: Sequence[Delivery]
    #: Its streaming queries, with what is known of their drivers.
    queries: Sequence[tuple[Query, Driver]]

    def since_ms(self, member: IncidentFinding) -> int:
        """Return since when a finding holds: it may have begun before it was found."""
        found = self.kept.get(member.finding)
        return member.since_ms if found is None else min(found.since_ms, member.since_ms)


def span_of(history: IncidentHistory, *, now_ms: int) -> TimelineSpan:
    """Return the range of the timeline: from a while before the first fact to now, or to the end."""
    end_ms = now_ms if history.row.closed_ms is None else history.row.closed_ms
    first_ms = min([history.row.opened_ms, *map(history.since_ms, history.members)])
    length_ms = max(1, end_ms - first_ms)
    before_ms = max(_BEFORE_MS, min(600_000, round(length_ms * _BEFORE)))
    return TimelineSpan(first_ms - before_ms, end_ms + max(1_000, round(length_ms * _AFTER)))


def lanes_of(history: IncidentHistory, *, now_ms: int) -> tuple[TimelineSpan, Sequence[IncidentLane]]:
    """Return the range and the lanes, from cause to effect; those without anything are left out."""
    span = span_of(history, now_ms=now_ms)
    end_ms = now_ms if history.row.closed_ms is None else history.row.closed_ms
    lanes = [
        *(_batch_lane(query, driver, span) for query, driver in history.queries),
        *_finding_lanes(history, end_ms),
        _delivery_lane(history.deliveries),
        _operator_lane(history, span),
    ]
    return span, [lane for lane in lanes if lane.bars or lane.points]


def _batch_lane(query: Query, driver: Driver, span: TimelineSpan) -> IncidentLane:
    rows = Batch.objects.filter(query=query, planned_ms__gte=span.from_ms, planned_ms__lt=span.to_ms)
    bars = [_batch_bar(row) for row in rows.order_by("-batch_id")[:_BATCHES]]
    gone_ms = driver.ended_ms or driver.silent_since_ms
    points = [LanePoint(gone_ms, "critical", "driver stopped reporting")] if gone_ms else []
    return IncidentLane(
        str(query), bars, [each for each in points if span.from_ms <= each.at_ms < span.to_ms]
    )


def _batch_bar(row: Batch) -> LaneBar:
    begin_ms = row.planned_ms or 0
    end_ms = row.committed_ms or (row.started_ms or begin_ms) + (row.duration_ms or 0)
    state = "checkpointed" if row.committed_ms else "not checkpointed"
    tone = "ok" if row.committed_ms else "warning"
    return LaneBar(begin_ms, max(end_ms, begin_ms), tone, "", f"batch {row.batch_id:,}: {state}")


def _finding_lanes(history: IncidentHistory, end_ms: int) -> Iterator[IncidentLane]:
    members = sorted(history.members, key=lambda each: _kind_order(each.subject))
    for kind, group in groupby(members, key=lambda each: each.subject.partition(":")[0]):
        by_subject: dict[str, list[IncidentFinding]] = {}
        for each in group:
            by_subject.setdefault(each.subject, []).append(each)
        if len(by_subject) <= _LANES_EACH:
            for subject, found in by_subject.items():
                yield IncidentLane(
                    _lane_name(subject, history), _merged(_finding_bars(history, found, end_ms))
                )
        else:
            noun = f"{len(by_subject):,} {_PLURALS.get(kind, f'{kind}s')}"
            found = [each for some in by_subject.values() for each in some]
            yield IncidentLane(noun, _merged(_finding_bars(history, found, end_ms)))


def _lane_name(subject: str, history: IncidentHistory) -> str:
    kind, _, name = subject.partition(":")
    if kind == "query":
        # Its batches have a lane of that name already.
        names = {query.ident: str(query) for query, _ in history.queries}
        return f"{names.get(name, name)}: findings"
    return name or kind


def _finding_bars(
    history: IncidentHistory, members: Iterable[IncidentFinding], end_ms: int
) -> Sequence[LaneBar]:
    found = []
    for each in members:
        row = history.kept.get(each.finding)
        words = row.summary if row else each.summary
        until_ms = end_ms if each.until_ms is None else each.until_ms
        tone = row.severity if row else each.severity
        since_ms = history.since_ms(each)
        label = _BAR_LABELS.get(each.rule, rule_label(each.rule))
        found.append(LaneBar(since_ms, max(until_ms, since_ms), tone, label, words))
    return sorted(found, key=lambda bar: (bar.from_ms, bar.to_ms))


def _merged(bars: Sequence[LaneBar]) -> Sequence[LaneBar]:
    """Return bars of many subjects as one wherever they overlap: as bad as the worst of them."""
    found: list[LaneBar] = []
    for bar in bars:
        last = found[-1] if found else None
        if last is None or bar.from_ms > last.to_ms:
            found.append(bar)
        else:
            tone = worst_severity([Severity(last.tone), Severity(bar.tone)])
            found[-1] = last._replace(to_ms=max(last.to_ms, bar.to_ms), tone=tone)
    return found


def _delivery_lane(deliveries: Sequence[Delivery]) -> IncidentLane:
    points = [
        LanePoint(
            row.made_ms, _DELIVERY_TONES.get(Delivery.State(row.state), "warning"), f"→ {row.channel.name}"
        )
        for row in reversed(deliveries)
    ]
    return IncidentLane("notifications", points=points)


def _operator_lane(history: IncidentHistory, span: TimelineSpan) -> IncidentLane:
    points = [
        LanePoint(each.at_ms, "info", f"{_BY_PEOPLE[IncidentEventKind(each.kind)]} by {each.actor}")
        for each in history.events
        if each.kind in _BY_PEOPLE
    ]
    points += [
        LanePoint(row.started_ms or 0, "info", f"{ACTS[row.act].noun} by {row.executed_by}")
        for row in actions_of(history, span)
    ]
    return IncidentLane("operators", points=sorted(points))


def actions_of(history: IncidentHistory, span: TimelineSpan) -> Sequence[Action]:
    """Return what operators did to an incident's subjects in its time, the newest first."""
    subjects = {each.subject for each in history.members}
    rows = Action.objects.filter(
        cluster=history.row.cluster_id, started_ms__gte=span.from_ms, started_ms__lt=span.to_ms
    )
    found = rows.select_related("cluster").order_by("-started_ms")[:_ACTIONS]
    return [row for row in found if not subjects.isdisjoint(row.subjects.splitlines())]


def _kind_order(subject: str) -> tuple[int, str]:
    kind = subject.partition(":")[0]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


def timeline_words(lanes: Sequence[IncidentLane]) -> str:
    """Return what a timeline shows, for who does not see it."""
    bars, points = sum(len(lane.bars) for lane in lanes), sum(len(lane.points) for lane in lanes)
    counts = (count_noun(len(lanes), "lane"), count_noun(bars, "span"), count_noun(points, "event"))
    return f"Timeline: {', '.join(counts)}."
