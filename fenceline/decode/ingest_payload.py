"""Decode a listener's post (`spark_listener.emit`) to events of queries.

    {"v": 1, "cluster": "prod" or null, "sent_ms": …, "report": {…}, "events": [
        {"seq": 1, "at_ms": …, "kind": "started", "id": …, "runId": …, "name": …, "timestamp": …},
        {"seq": 2, "at_ms": …, "kind": "progress", "progress": {Spark's own}},
        {"seq": 3, "at_ms": …, "kind": "idle", "id": …, "runId": …, "timestamp": …},
        {"seq": 4, "at_ms": …, "kind": "terminated", "id": …, "runId": …, "exception": …, "errorClass": …}]}

Every event may describe its run: "asynchronous", whether it tracks its progress asynchronously, and
"isolation", "read_committed" or "read_uncommitted", the weakest of its Kafka sources; null means unknown.
An unusable event is refused by its number, without affecting other events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fenceline.decode import progress
from fenceline.decode.progress import UnusableEvent, clean_text, event_identity, parse_instant
from fenceline.facts import Isolation
from fenceline.spark.records import BatchProgress

VERSION = 1
_LARGEST = 2**63 - 1
_MOST_ALIVE = 1_000
_LONGEST_INTERVAL_MS = 3_600_000
_LONGEST_NAME, _LONGEST_EXCEPTION = 1_000, 20_000


class EventKind(StrEnum):
    """The kind of a listener's event."""

    STARTED = "started"
    PROGRESS = "progress"
    IDLE = "idle"
    TERMINATED = "terminated"


class ListenerEvent(NamedTuple):
    """One event of one run of a query. Times are by the driver's clock."""

    kind: EventKind
    query_id: str
    run_id: str
    name: str
    #: When the listener received it.
    at_ms: int
    #: When the run began or was found idle, by Spark's event.
    since_ms: int | None = None
    #: Why the run ended; "" without a failure.
    exception: str = ""
    progress: BatchProgress | None = None
    #: Whether the run tracks its progress asynchronously; None if the listener cannot know.
    asynchronous: bool | None = None
    #: The isolation level of the run's Kafka reads; UNKNOWN if the listener cannot know.
    isolation: Isolation = Isolation.UNKNOWN


class Report(NamedTuple):
    """A listener's own status."""

    #: Events waiting in its spool, events lost for ever, and the age of this post's oldest event.
    spooled: int = 0
    dropped: int = 0
    oldest_age_ms: int | None = None
    #: Spark's version.
    spark: str = ""
    #: Query id and run id of the runs active in its driver.
    alive: tuple[tuple[str, str], ...] = ()
    #: Its longest interval between posts; None if not reported.
    heartbeat_every_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """A listener's document: its usable events in order, and the refused events with their reasons."""

    #: The Kafka cluster's name; "" if the listener names none.
    cluster: str
    #: When it was sent, by the driver's clock; None if not reported.
    sent_ms: int | None
    report: Report
    events: tuple[ListenerEvent, ...]
    refused: tuple[tuple[int | None, str], ...]
    #: Number of unreadable values in usable events, by reason.
    strange: Mapping[str, int]


def decode_post(document: object) -> Post:
    """Read a post, parsed by `json.loads`. Raises `UnusableEvent` if it is no post at all."""
    if not isinstance(document, Mapping) or not isinstance(document.get("events"), list):
        raise UnusableEvent('it is no JSON object with a list "events"')
    events: list[ListenerEvent] = []
    refused: list[tuple[int | None, str]] = []
    strange: Counter[str] = Counter()
    for event in document["events"]:
        try:
            events.append(_decode_event(event, strange))
        except UnusableEvent as error:
            refused.append((_whole(event, "seq") if isinstance(event, Mapping) else None, str(error)))
    return Post(
        cluster=clean_text(document.get("cluster")),
        sent_ms=_whole(document, "sent_ms"),
        report=_report(document.get("report")),
        events=tuple(events),
        refused=tuple(refused),
        strange=dict(strange),
    )


def _decode_event(event: object, strange: Counter[str]) -> ListenerEvent:
    if not isinstance(event, Mapping):
        raise UnusableEvent("the event is no JSON object")
    at_ms = _whole(event, "at_ms")
    if at_ms is None:
        raise UnusableEvent("at_ms is no time")
    kind = event.get("kind")
    if kind == EventKind.PROGRESS.value:
        found = progress.decode_progress(event.get("progress"), received_ms=at_ms)
        strange.update(found.strange)
        if found.progress is None:
            raise UnusableEvent(found.why)
        done = found.progress
        names = done.query_id, done.run_id, done.name
        return ListenerEvent(
            EventKind.PROGRESS, *names, at_ms, progress=done, asynchronous=_asynchronous(event),
            isolation=_isolation(event),
        )  # fmt: skip
    if not isinstance(kind, str) or kind not in set(EventKind):
        raise UnusableEvent("nobody knows this kind of event")
    query_id, run_id, name = event_identity(event)
    since_ms = parse_instant(event.get("timestamp"))
    return ListenerEvent(
        EventKind(kind),
        query_id,
        run_id,
        name[:_LONGEST_NAME],
        at_ms,
        since_ms,
        _exception(event),
        asynchronous=_asynchronous(event),
        isolation=_isolation(event),
    )


def _asynchronous(event: Mapping[str, Any]) -> bool | None:
    value = event.get("asynchronous")
    return value if isinstance(value, bool) else None


def _isolation(event: Mapping[str, Any]) -> Isolation:
    value = event.get("isolation")
    return Isolation(value) if isinstance(value, str) and value in set(Isolation) else Isolation.UNKNOWN


def _exception(event: Mapping[str, Any]) -> str:
    """Return an exception's text, or its class without a text; "" without either."""
    text = clean_text(event.get("exception"), _LONGEST_EXCEPTION) or clean_text(event.get("errorClass"))
    if text or event.get("exception") is None:
        return text
    return "it failed, and gives no reason"


def _report(report: object) -> Report:
    if not isinstance(report, Mapping):
        return Report()
    return Report(
        spooled=_whole(report, "spooled") or 0,
        dropped=_whole(report, "dropped") or 0,
        oldest_age_ms=_whole(report, "oldest_age_ms"),
        spark=clean_text(report.get("spark"), 32),
        alive=tuple(_alive(report.get("alive"))),
        heartbeat_every_ms=_interval(report),
    )


def _interval(report: Mapping[str, Any]) -> int | None:
    """Return the heartbeat interval in ms; None if it is missing or implausible."""
    heartbeat_ms = _whole(report, "heartbeat_every_ms")
    return heartbeat_ms if heartbeat_ms is not None and 0 < heartbeat_ms <= _LONGEST_INTERVAL_MS else None


def _alive(pairs: object) -> list[tuple[str, str]]:
    alive = []
    for pair in pairs[:_MOST_ALIVE] if isinstance(pairs, list) else []:
        try:
            query, run = pair
            alive.append(event_identity({"id": query, "runId": run})[:2])
        except (TypeError, ValueError):
            continue
    return alive


def _whole(document: Mapping[str, Any], key: str) -> int | None:
    """Return a non-negative integer; None for any other value."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        return None
    return value
