"""`/api/v1/events`: the events of every source in a range of time."""

import time
from typing import Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import cursors, schemas
from dashboard.history import events as event_queries
from dashboard.runtime import visibility
from fenceline.facts import Confidence
from fenceline.history.timeline import EventPlace, EventSource, TimelineEvent

router = Router(tags=["events"])


class EventOut(Schema):
    """An event.

    `what` is a term of its source, such as a transition's kind or a finding's `opened`. `subject` is
    `kind:name`. `number` is that of the incident, alert, delivery, action or recovery, else null. `count` is
    set for routine transitions: the number of one kind in an application in the minute that starts at `at`.
    """

    at: schemas.Instant | None = Field(validation_alias="at_ms")
    source: EventSource
    what: str
    cluster: str
    subject: str
    application: str
    severity: str
    confidence: Confidence | Literal[""]
    text: str
    number: int | None
    count: int | None

    @staticmethod
    def resolve_number(event: TimelineEvent) -> int | None:
        return event.number or None

    @staticmethod
    def resolve_count(event: TimelineEvent) -> int | None:
        return event.count or None


class EventList(schemas.Listing):
    """Events of `from` ≤ t < `to`, newest first.

    `gaps` are the gaps in the range. `kept_since` names each source whose older events are deleted.
    """

    items: list[EventOut]
    range_from: str | None = Field(serialization_alias="from")
    range_to: str | None = Field(serialization_alias="to")
    kept_since: dict[EventSource, str | None]


class EventFilters(schemas.ListFilters, event_queries.EventCriteria, schemas.RangeFilters):
    """The query string of the list; without `from` the range is the duration `last` up to now."""


@router.get("", response=EventList, by_alias=True, summary="List events of a range of time")
def list_events(request: HttpRequest, wanted: Query[EventFilters]) -> dict[str, object]:
    """Events in a range, newest first. Routine transitions are folded unless `unfolded`.

    Give `from` and `to` with a cursor, because the range of `last` moves. A page with a `next` may have fewer
    than `limit` items.
    """
    now_ms = time.time_ns() // 1_000_000
    shown = wanted.time_range(now_ms)
    place = cursors.decode_cursor(wanted.cursor, "events", (int, int, int))
    before = None if place is None else EventPlace(*map(int, place))
    page = event_queries.newest_events(wanted, shown, before=before, limit=wanted.limit)
    cut = event_queries.sources_cut(shown, settings.FENCELINE.retention, now_ms=now_ms)
    return {
        "items": page.items,
        "next": None if page.next is None else cursors.encode_cursor("events", *page.next),
        "range_from": schemas.format_iso(shown.from_ms),
        "range_to": schemas.format_iso(shown.to_ms),
        "kept_since": {source: schemas.format_iso(since_ms) for source, since_ms in cut.items()},
        "as_of": schemas.format_iso(visibility.noun_visibility(wanted.cluster).as_of_ms),
        "gaps": event_queries.gaps_within(wanted.cluster, shown),
    }
