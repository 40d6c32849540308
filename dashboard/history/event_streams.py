"""Streams of events: each reads rows of one kind, newest first, by one of their instants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from django.db.models import Count, F, Model, Q, QuerySet

from dashboard.models import (
    Action,
    AlertChange,
    Cluster,
    CoordinatorMoveRecord,
    Delivery,
    FindingRecord,
    IncidentEvent,
    Recovery,
    TransitionRecord,
)
from fenceline.decode.typed import record_of
from fenceline.facts import TransitionKind
from fenceline.history.time_range import TimeRange
from fenceline.history.timeline import EventPlace, EventSource, RoutineCount, TimelineEvent, minute_of
from fenceline.kafka.coordinator import CoordinatorMove

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventWindow:
    """The wanted part of every stream: events of `range` before the place `below`."""

    clusters: Sequence[Cluster]
    range: TimeRange
    before: EventPlace
    limit: int
    #: A part of a subject's name.
    q: str = ""
    #: Only events of this application; "" for all.
    application: str = ""

    def rows_below(self, stream: int) -> tuple[int, int]:
        """Return the instant in µs and the row before which events of a stream are read."""
        at_us, at_stream, row = self.before
        if stream == at_stream:
            return at_us, row
        return (at_us + 1, 0) if stream < at_stream else (at_us, 0)


@dataclass(frozen=True, slots=True)
class EventStream:
    """Rows with an instant: in field `at`, in ms since 1970 or as a datetime."""

    source: EventSource
    model: type[Model]
    at: str
    event: Callable[[Any], Mapping[str, Any]]
    #: The paths to the cluster's key and to the subject; the latter is "" for rows without one.
    cluster: str = "cluster"
    subject: str = "subject"
    #: The field of the application, "" for rows without one.
    application: str = ""
    #: Related rows to read, besides the cluster.
    beside: tuple[str, ...] = ()

    def read(self, number: int, wanted: EventWindow) -> Sequence[TimelineEvent]:
        """Return up to `limit` events, newest first; `number` is the stream's number in places."""
        if (wanted.application and not self.application) or (wanted.q and not self.subject):
            return []
        # Queried now, and not once for all: a manager shows the rows that this caller may see.
        rows = self.model._default_manager.select_related(self.cluster, *self.beside)
        start, end = (_instant(self, ms * 1_000) for ms in (wanted.range.from_ms, wanted.range.to_ms))
        rows = rows.filter(_below(self, *wanted.rows_below(number)))
        rows = rows.filter(**{f"{self.at}__gte": start, f"{self.at}__lt": end})
        rows = rows.filter(**{f"{self.cluster}__in": [cluster.pk for cluster in wanted.clusters]})
        if wanted.q:
            rows = rows.filter(**{f"{self.subject}__icontains": wanted.q})
        if wanted.application:
            rows = rows.filter(**{self.application: wanted.application})
        newest = rows.order_by(f"-{self.at}", "-pk")[: wanted.limit]
        return [self._event(row, number) for row in newest]

    def _event(self, row: Model, number: int) -> TimelineEvent:
        at = getattr(row, self.at)
        at_us = at * 1_000 if isinstance(at, int) else (at - _EPOCH) // timedelta(microseconds=1)
        cluster = attrgetter(f"{self.cluster.replace('__', '.')}.name")(row)
        return TimelineEvent(
            EventPlace(at_us, number, row.pk), self.source, cluster=cluster, **self.event(row)
        )


def _below(stream: EventStream, at_us: int, row: int) -> Q:
    at = _instant(stream, at_us)
    # An integer column of milliseconds holds all places of one millisecond.
    same = Q(**{stream.at: at, "pk__lt": row}) if row else Q(pk__in=())
    return Q(**{f"{stream.at}__lt": at}) | same


def _instant(stream: EventStream, at_us: int) -> int | datetime:
    """Return the value to compare a stream's field with: for a field of ms, the next whole ms."""
    is_ms = stream.at.endswith("_ms")
    return -(-at_us // 1_000) if is_ms else _EPOCH + timedelta(microseconds=at_us)


def _finding(change: str) -> Callable[[FindingRecord], Mapping[str, Any]]:
    return lambda row: {
        "what": change,
        "subject": row.subject,
        "severity": row.severity,
        "text": row.summary,
    }


def _incident(row: IncidentEvent) -> Mapping[str, Any]:
    return {
        "what": row.kind,
        "subject": row.subject or row.incident.subject,
        "severity": row.incident.severity,
        "text": row.text,
        "number": row.incident_id,
    }


def _alert(row: AlertChange) -> Mapping[str, Any]:
    return {
        "what": row.new,
        "subject": row.alert.subject,
        "severity": row.alert.severity,
        "text": str(row.alert.annotations.get("summary", "")),
        "number": row.alert_id,
    }


def _delivery(row: Delivery) -> Mapping[str, Any]:
    return {
        "what": row.state,
        "subject": "",
        "text": " ".join(filter(None, (f"to {row.channel.name}", row.error))),
        "number": row.pk,
    }


def _action(change: str) -> Callable[[Action], Mapping[str, Any]]:
    return lambda row: {
        "what": f"{row.act}_{row.state if change == 'ended' else change}",
        "subject": f"action:{row.pk}",
        "text": " ".join(filter(None, (f"by {row.executed_by}.", row.reason))),
        "number": row.pk,
    }


def _recovery(change: str) -> Callable[[Recovery], Mapping[str, Any]]:
    return lambda row: {
        "what": row.outcome if change == "closed" else change,
        "subject": f"transaction:{row.transactional_id}",
        "application": row.application,
        "text": "",
        "number": row.pk,
    }


def _coordinator(row: CoordinatorMoveRecord) -> Mapping[str, Any]:
    return {
        "what": "moved",
        "subject": f"broker:{row.to_broker}",
        "text": record_of(CoordinatorMove, row).text,
        "number": row.pk,
    }


#: In the order of events at one instant; transitions, which have their own readers, come before these.
STREAMS = (
    EventStream(EventSource.FINDING, FindingRecord, "since_ms", _finding("opened")),
    EventStream(EventSource.FINDING, FindingRecord, "closed_at", _finding("closed")),
    EventStream(EventSource.INCIDENT, IncidentEvent, "at_ms", _incident, cluster="incident__cluster"),
    EventStream(
        EventSource.ALERT, AlertChange, "at_ms", _alert, cluster="alert__cluster", subject="alert__subject"
    ),
    EventStream(
        EventSource.DELIVERY, Delivery, "ended_at", _delivery, subject="channel__name", beside=("channel",)
    ),
    *(
        EventStream(EventSource.ACTION, Action, f"{change}_ms", _action(change), subject="subjects")
        for change in ("started", "ended")
    ),
    *(
        EventStream(
            EventSource.RECOVERY,
            Recovery,
            f"{change}_ms",
            _recovery(change),
            subject="transactional_id",
            application="application",
        )
        for change in ("opened", "closed")
    ),
    EventStream(EventSource.COORDINATOR, CoordinatorMoveRecord, "seen_ms", _coordinator, subject=""),
)


MINUTE_MS = 60_000
#: Maximum transitions that one search counts; it completes its last minute.
_MOST_COUNTED = 2_000


def routine_counts(
    window: EventWindow, kinds: Sequence[TransitionKind], confidence: str, *, until_ms: int
) -> tuple[Sequence[RoutineCount], int | None]:
    """Return the counts of a range's last minutes before `until_ms`, and their start, None if all counted.

    A confidence of "" means any.
    """
    rows = TransitionRecord.objects.filter(
        cluster__in=[cluster.pk for cluster in window.clusters],
        kind__in=[kind.value for kind in kinds],
        at_ms__gte=window.range.from_ms,
        at_ms__lt=until_ms,
    )
    if window.application:
        rows = rows.filter(application=window.application)
    if confidence:
        rows = rows.filter(confidence=confidence)
    instants = rows.order_by("-at_ms").values_list("at_ms", flat=True)
    cut = next(iter(instants[_MOST_COUNTED : _MOST_COUNTED + 1]), None)
    if cut is None:
        return _counts(rows), None
    floor_ms = max(minute_of(cut), window.range.from_ms)
    return _counts(rows.filter(at_ms__gte=floor_ms)), floor_ms


def _counts(rows: QuerySet[TransitionRecord]) -> Sequence[RoutineCount]:
    minutes = rows.order_by().annotate(minute=F("at_ms") / MINUTE_MS)
    groups = minutes.values_list("minute", "cluster__name", "application", "kind").annotate(n=Count("id"))
    return [
        RoutineCount(minute * MINUTE_MS, cluster, application, TransitionKind(kind), n)
        for minute, cluster, application, kind, n in groups
    ]
