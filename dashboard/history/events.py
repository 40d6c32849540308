"""Events of a time range from all sources, newest first, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from typing import Literal

from django.db.models import Count, Q

from dashboard.history import queries as history_queries
from dashboard.history.event_streams import MINUTE_MS, STREAMS, EventWindow, routine_counts
from dashboard.models import Alert, Delivery, FindingRecord, GapRecord, IncidentFinding, TransitionRecord
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Criteria, Name, Search
from fenceline.facts import EVERYDAY, Confidence, TransitionKind
from fenceline.history.time_range import TimeRange
from fenceline.history.timeline import (
    ROUTINE,
    EventPlace,
    EventSource,
    TimelineEvent,
    fold_routine,
    minute_of,
)
from fenceline.limits import Retention
from fenceline.losses.recoveries import RecoveryCause

#: Numbers of the streams of transitions in places; the numbers of `STREAMS` follow.
_TRANSITIONS, _ROUTINE, _FIRST = 0, 1, 2
_KINDS = tuple(kind for kind in TransitionKind if kind not in EVERYDAY)
#: Transitions with their own marks, grouped by their common limit.
_RARE_LANES = (
    (TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE),
    (TransitionKind.TIMEOUT,),
    tuple(
        kind
        for kind in _KINDS
        if kind not in ROUTINE
        and kind not in (TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE, TransitionKind.TIMEOUT)
    ),
)
#: Sources that the lanes show as bars.
_BARS = (EventSource.INCIDENT, EventSource.FINDING)
_DAY_MS = 86_400_000
_MOST_GAPS = 20
#: The retention of a source's events in days: a field of `Retention`.
_KEPT: Mapping[EventSource, str] = {
    EventSource.TRANSITION: "transitions_d",
    EventSource.RECOVERY: "transitions_d",
    EventSource.COORDINATOR: "transitions_d",
    EventSource.FINDING: "closed_d",
    EventSource.ALERT: "closed_d",
    EventSource.DELIVERY: "closed_d",
    EventSource.INCIDENT: "incidents_d",
}


class EventCriteria(Criteria):
    cluster: Name = ""
    source: EventSource | Literal[""] = ""
    #: Filters of transitions; each of them excludes all other sources.
    kind: Literal["", RecoveryCause, "empty_abort", "reinit", "rotation", "expiry"] = ""
    confidence: Confidence | Literal[""] = ""
    application: Name = ""
    #: A part of the name of an event's subject.
    q: Search = ""
    #: Whether routine transitions are listed one by one instead of by minute, application and kind.
    unfolded: bool = False

    def wants(self, source: EventSource) -> bool:
        """Return whether a source may have events that match."""
        if source is not EventSource.TRANSITION and (self.kind or self.confidence):
            return False
        return self.source in ("", source)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, the newest first; `next` is the place where the list continues, None at its end.

    `searched_to_ms` is set if one search ended there because of its length, though older ones may follow.
    """

    items: Sequence[TimelineEvent]
    next: EventPlace | None
    searched_to_ms: int | None = None

    def first(self, number: int) -> EventPage:
        """Return the first `limit` events, as if only these had been requested."""
        if len(self.items) <= number:
            return self
        return EventPage(self.items[:number], self.items[number - 1].place)


#: Events of one stream, and the instant before which more may follow, in µs; None if all are read.
_StreamPart = tuple[Sequence[TimelineEvent], int | None]


def newest_events(
    wanted: EventCriteria, time_range: TimeRange, *, before: EventPlace | None, limit: int
) -> EventPage:
    """Return the newest matching events of a range, after a given place."""
    clusters = visibility.clusters_named(wanted.cluster)
    start = before or EventPlace(time_range.to_ms * 1_000, 0, 0)
    window = EventWindow(clusters, time_range, start, limit + 1, wanted.q, wanted.application)
    reads: list[_StreamPart] = [
        (stream.read(number, window), None)
        for number, stream in enumerate(STREAMS, _FIRST)
        if wanted.wants(stream.source)
    ]
    if wanted.wants(EventSource.TRANSITION):
        reads += _transitions(window, wanted)
    return _page(reads, limit)


def newest_marks(
    wanted: EventCriteria, time_range: TimeRange, *, limit: int
) -> tuple[Sequence[TimelineEvent], int | None]:
    """Return the newest single events of a range that match, up to a limit for each source and rare kind.

    Also return since when they are complete; None if all are read.

    With a common limit, findings and deliveries could crowd out the fences of a few minutes ago.
    """
    clusters = visibility.clusters_named(wanted.cluster)
    start = EventPlace(time_range.to_ms * 1_000, 0, 0)
    window = EventWindow(clusters, time_range, start, limit, wanted.q, wanted.application)
    reads = [
        stream.read(number, window)
        for number, stream in enumerate(STREAMS, _FIRST)
        if wanted.wants(stream.source) and stream.source not in _BARS
    ]
    for kinds in _RARE_LANES if wanted.wants(EventSource.TRANSITION) else ():
        asked = [kind for kind in kinds if wanted.kind in ("", kind)]
        reads += [_told(window, asked, wanted.confidence)[0]] if asked else []
    full = [events[-1].at_ms for events in reads if len(events) >= limit]
    return [event for events in reads for event in events], max(full, default=None)


def gaps_within(cluster: str, time_range: TimeRange) -> Sequence[GapRecord]:
    """Return the gaps of visibility in a range, newest first, at most 20."""
    rows = visibility.rows_in(GapRecord, cluster).filter(since_ms__lt=time_range.to_ms)
    rows = rows.exclude(until_ms__lt=time_range.from_ms)
    return list(rows.select_related("cluster").order_by("-since_ms")[:_MOST_GAPS])


def sources_cut(time_range: TimeRange, retention: Retention, *, now_ms: int) -> Mapping[EventSource, int]:
    """Return the sources whose early events in a range are deleted, with the start of the stored ones."""
    days = asdict(retention)
    kept = {source: now_ms - round(days[field] * _DAY_MS) for source, field in _KEPT.items()}
    return {source: since_ms for source, since_ms in kept.items() if since_ms > time_range.from_ms}


def _page(reads: Sequence[_StreamPart], limit: int) -> EventPage:
    # If one stream was not read to its end, older events of the other streams are omitted too.
    floor = max((floor_us for _, floor_us in reads if floor_us is not None), default=None)
    merged = merge(*(events for events, _ in reads), key=lambda event: event.place, reverse=True)
    events = [event for event in merged if floor is None or event.place.at_us >= floor]
    if floor is None:
        return EventPage(events, None).first(limit)
    return EventPage(events, EventPlace(floor, 0, 0), floor // 1_000).first(limit)


def _transitions(window: EventWindow, wanted: EventCriteria) -> Iterator[_StreamPart]:
    kinds = (TransitionKind(wanted.kind),) if wanted.kind else _KINDS
    # A searched name is an id's, which a folded row lacks.
    folded = () if wanted.unfolded or window.q else [kind for kind in kinds if kind in ROUTINE]
    if single := [kind for kind in kinds if kind not in folded]:
        yield _told(window, single, wanted.confidence)
    if folded:
        yield _folded(window, folded, wanted.confidence)


def _told(window: EventWindow, kinds: Sequence[TransitionKind], confidence: str) -> _StreamPart:
    at_us, row = window.rows_below(_TRANSITIONS)
    criteria = history_queries.HistoryCriteria(
        cluster=window.clusters[0].name if len(window.clusters) == 1 else "",
        kinds=kinds,
        confidence=confidence,
        application=window.application,
        q=window.q,
        since_ms=window.range.from_ms,
    )
    before = -(-at_us // 1_000), row
    page = history_queries.newest_transitions(criteria, limit=window.limit, before=before)
    floor = None if page.searched_to_ms is None else page.searched_to_ms * 1_000
    return [_event(row) for row in page.items], floor


def _folded(window: EventWindow, kinds: Sequence[TransitionKind], confidence: str) -> _StreamPart:
    """Return routine transitions by the minute: whole minutes, without those already shown."""
    at_us, row = window.rows_below(_ROUTINE)
    last_ms = at_us // 1_000 if row else -(-at_us // 1_000) - 1
    until_ms = min(minute_of(last_ms) + MINUTE_MS, window.range.to_ms)
    counts, floor_ms = routine_counts(window, kinds, confidence, until_ms=until_ms)
    events = fold_routine(counts, from_ms=window.range.from_ms, stream=_ROUTINE)
    below = EventPlace(at_us, _ROUTINE, row)
    shown = [event for event in events if event.place < below][: window.limit]
    return shown, None if floor_ms is None else floor_ms * 1_000


def _event(row: TransitionRecord) -> TimelineEvent:
    return TimelineEvent(
        EventPlace(row.at_ms * 1_000, _TRANSITIONS, row.pk),
        EventSource.TRANSITION,
        row.kind,
        row.cluster.name,
        f"transaction:{row.transactional_id}",
        history_queries.verdict_evidence(row),
        application=row.application,
        confidence=row.confidence,
    )


def incidents_of(events: Sequence[TimelineEvent]) -> Mapping[EventPlace, int]:
    """Return the number of the incident of each event that has one; of several, the newest."""
    findings = {event.place: event.place.row for event in events if event.source is EventSource.FINDING}
    findings |= _begun(_findings_of_alerts(events) | _findings_of_deliveries(events))
    members = IncidentFinding.objects.filter(finding__in=set(findings.values())).order_by("pk")
    incidents = dict(members.values_list("finding", "incident_id"))
    of_findings = {place: incidents[pk] for place, pk in findings.items() if pk in incidents}
    return of_findings | {
        event.place: event.number for event in events if event.source is EventSource.INCIDENT
    }


def _begun(findings: Mapping[EventPlace, int]) -> dict[EventPlace, int]:
    """Return the findings that had begun at their events: an older alert may follow another one by now."""
    rows = FindingRecord.objects.filter(pk__in=set(findings.values())).values_list("pk", "since_ms")
    since_ms = dict(rows)
    return {
        place: pk for place, pk in findings.items() if pk in since_ms and since_ms[pk] <= place.at_us // 1_000
    }


def _findings_of_alerts(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    alerts = {event.place: event.number for event in events if event.source is EventSource.ALERT}
    findings = dict(Alert.objects.filter(pk__in=set(alerts.values())).values_list("pk", "finding"))
    return {place: findings[pk] for place, pk in alerts.items() if pk in findings}


def _findings_of_deliveries(events: Sequence[TimelineEvent]) -> dict[EventPlace, int]:
    """Return the finding of the first alert that each delivery reported."""
    places = {event.number: event.place for event in events if event.source is EventSource.DELIVERY}
    rows = Delivery.objects.filter(pk__in=places).values_list("pk", "held__firing", "held__resolved")
    first = {
        places[pk]: bytes.fromhex(held[0])
        for pk, firing, resolved in rows
        if (held := [*(firing or ()), *(resolved or ())])
    }
    alerts = Alert.objects.filter(fingerprint__in=set(first.values())).order_by("pk")
    findings = {bytes(alert.fingerprint): alert.finding for alert in alerts.only("fingerprint", "finding")}
    return {place: findings[mark] for place, mark in first.items() if mark in findings}


#: Kinds of interruptions, worst first.
_INTERRUPTIONS = (TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE, TransitionKind.TIMEOUT)


def recent_interruptions(cluster: str, *, since_ms: int) -> Sequence[tuple[TransitionKind, int, int]]:
    """Return the takeovers, outside fences and timeouts since an instant, without our own actions.

    Each is a kind, its number, and the number of certain or probable ones.
    """
    rows = TransitionRecord.objects.filter(
        cluster__in=visibility.cluster_keys(cluster),
        kind__in=[kind.value for kind in _INTERRUPTIONS],
        at_ms__gte=since_ms,
        action=None,
    )
    sure = Count("pk", filter=~Q(confidence=Confidence.AMBIGUOUS.value))
    counted = {
        kind: counts for kind, *counts in rows.values_list("kind").annotate(number=Count("pk"), sure=sure)
    }
    return [(kind, *counted[kind.value]) for kind in _INTERRUPTIONS if kind.value in counted]
