"""What happened in a range of time: lanes on one axis, and every event with the link to its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from pydantic import BeforeValidator, Field

from dashboard.labels.event import event_label
from dashboard.labels.status import StatusLabel
from dashboard.timeline import queries as timeline_queries
from dashboard.web import addresses, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.request_time import now_ms
from dashboard.web.series.timeline import timeline_context
from fenceline.formatting import count_noun
from fenceline.time_range import TimeRange
from fenceline.timeline import EventPlace, EventSource, TimelineEvent

_ROWS = 100
#: Events that the lanes show at most.
_MARKS = 200
_LARGEST = 10**18


def _place(value: object) -> object:
    return tuple(value.split("-")) if isinstance(value, str) else value


_Number = Annotated[int, Field(ge=0, lt=_LARGEST)]


class EventListQuery(time_ranges.RangedList, timeline_queries.EventCriteria):
    """The query string of the page."""

    before: Annotated[tuple[_Number, _Number, _Number], BeforeValidator(_place)] | None = None


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event of the list."""

    event: TimelineEvent
    look: StatusLabel
    url: str

    @property
    def subject(self) -> str:
        """Return the name of what it is about, without its kind."""
        return self.event.subject.partition(":")[2]


@signed_in
def event_list(request: HttpRequest) -> HttpResponse:
    """Show what happened in the range that the query string names, the newest first."""
    wanted = list_forms.read(request, EventListQuery)
    shown, problem = time_ranges.time_range_of(wanted, now_ms=now_ms(request))
    moved = now_ms(request) // 5_000 if shown.live else 0
    return render_page(
        request, "events/list", lambda: _read(request, wanted, shown, problem), depends_on=moved
    )


def _read(request: HttpRequest, wanted: EventListQuery, shown: TimeRange, problem: str) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    place = None if wanted.before is None else EventPlace(*wanted.before)
    drawn = timeline_queries.newest_events(wanted, shown, limit=_MARKS)
    found = (
        timeline_queries.newest_events(wanted, shown, before=place, limit=_ROWS)
        if place
        else drawn.first(_ROWS)
    )
    lines = [EventLine(event, event_label(event), addresses.event_url(event)) for event in found.items]
    return {
        "wanted": wanted,
        "problems": [*wanted.ignored, *([problem] if problem else [])],
        "picker": time_ranges.picker(request, shown, wanted),
        "lines": lines,
        "next": "" if found.next is None else "-".join(map(str, found.next)),
        "searched_to_ms": found.searched_to_ms,
        "sources": list(EventSource),
        "headline": _headline(frame, wanted, len(lines), more=found.next is not None),
        "gaps": timeline_queries.gaps_within(frame.cluster, shown),
        "cut": _cut(shown, now_ms(request)),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if lines else ("past" if place else why_empty(frame, narrowed=wanted.narrowed)),
        **timeline_context(frame.cluster, wanted.application, shown, drawn, now_ms(request)),
    }


def _cut(shown: TimeRange, at_ms: int) -> Sequence[tuple[int, Sequence[str]]]:
    """Return since when events are kept that the range wants more of, and of which sources."""
    found: dict[int, list[str]] = {}
    for source, since_ms in timeline_queries.sources_cut(
        shown, settings.FENCELINE.retention, now_ms=at_ms
    ).items():
        found.setdefault(since_ms, []).append(source.value)
    return list(found.items())


def _headline(frame: page_context.Chrome, wanted: EventListQuery, number: int, *, more: bool) -> str:
    if not frame.clusters:
        return "No cluster is configured."
    when = "in this range" if wanted.start else f"in the last {time_ranges.last_words(wanted)}"
    if not number:
        return f"Nothing was recorded {when}."
    return f"{'More than ' if more else ''}{count_noun(number, 'event')} {when}."
