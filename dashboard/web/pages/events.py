"""What happened in a range of time: lanes on one axis, sums by kind and application, and every event with
the link to its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from pydantic import BeforeValidator

from dashboard.history import events as event_queries
from dashboard.history import queries as history_queries
from dashboard.history.buckets import Bucket
from dashboard.history.queries import ByApplication
from dashboard.labels.event import event_label
from dashboard.labels.status import StatusLabel
from dashboard.labels.transition import NOTABLE
from dashboard.web import addresses, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import RowNumber, split_place
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.series.timeline import step_seconds, timeline_context
from fenceline.facts import ABORTS, Confidence, TransitionKind
from fenceline.time_range import TimeRange
from fenceline.timeline import EventPlace, EventSource, TimelineEvent

_ROWS = 50
#: Events that the lanes show at most.
_MARKS = 200
#: A range that ends now moves with the clock, in such steps.
_STEP_MS = 5_000
#: How many applications the page adds up, those with the most first, and of how long a range also their
#: commits: of a month of hours that takes longer than the rest of the page.
_APPLICATIONS, _LONGEST_SHARE_MS = 10, 7 * 86_400_000
#: Steps of an application's bars.
_APPLICATION_STEPS = 60


class EventListQuery(list_forms.ListQuery, event_queries.EventCriteria):
    """The query string of the page."""

    before: Annotated[tuple[RowNumber, RowNumber, RowNumber], BeforeValidator(split_place)] | None = None


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


@dataclass(frozen=True, slots=True)
class ApplicationLine:
    """What happened to an application: how often each notable kind, the worst first, and its commits."""

    name: str
    counts: Sequence[tuple[TransitionKind, int]]
    #: How many notable transitions in each step of the range.
    steps: Sequence[int]
    commits: int
    #: How many of its transactions ended without their records, in percent; None where none ended.
    aborted: float | None


@signed_in
def event_list(request: HttpRequest) -> HttpResponse:
    """Show what happened in the range that the query string names, the newest first."""
    wanted = list_forms.read_request(request, EventListQuery)
    shown = page_context.chrome_of(request).time_range.window()
    return render_page(
        request, "events/list", lambda: _read(request, wanted, shown), depends_on=_moved(request, shown)
    )


@signed_in
def event_timeline(request: HttpRequest) -> HttpResponse:
    """Show the lanes of a range, as a part of a page: nobody waits for it to read what is open."""
    wanted = list_forms.read_request(request, EventListQuery)
    frame = page_context.chrome_of(request)
    shown = frame.time_range.window()

    def read() -> Mapping[str, Any]:
        found = event_queries.newest_events(wanted, shown, limit=_MARKS)
        return timeline_context(frame.cluster, wanted.application, shown, found, now_ms(request))

    return render_page(request, "events/timeline", read, depends_on=_moved(request, shown))


def _moved(request: HttpRequest, shown: TimeRange) -> int:
    """Return what a range that ends now moves with."""
    return now_ms(request) // _STEP_MS if shown.live else 0


def _read(request: HttpRequest, wanted: EventListQuery, shown: TimeRange) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    place = None if wanted.before is None else EventPlace(*wanted.before)
    found = event_queries.newest_events(wanted, shown, before=place, limit=_ROWS)
    lines = [EventLine(event, event_label(event), addresses.event_url(event)) for event in found.items]
    return {
        "wanted": wanted,
        "shown": shown,
        "lines": lines,
        "next": "" if found.next is None else "-".join(map(str, found.next)),
        "searched_to_ms": found.searched_to_ms,
        "sources": list(EventSource),
        "confidences": list(Confidence),
        **_sums(wanted, shown),
        "headline": _headline(frame, len(lines), more=found.next is not None),
        "gaps": event_queries.gaps_within(frame.cluster, shown),
        "cut": _cut(shown, now_ms(request)),
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "empty": "" if lines else ("past" if place else why_empty(frame, narrowed=wanted.narrowed)),
    }


def _cut(shown: TimeRange, at_ms: int) -> Sequence[tuple[int, Sequence[str]]]:
    """Return since when events are kept that the range wants more of, and of which sources."""
    found: dict[int, list[str]] = {}
    for source, since_ms in event_queries.sources_cut(
        shown, settings.FENCELINE.retention, now_ms=at_ms
    ).items():
        found.setdefault(since_ms, []).append(source.value)
    return list(found.items())


def _headline(frame: page_context.Chrome, number: int, *, more: bool) -> str:
    if not frame.clusters:
        return "No cluster is configured."
    return time_ranges.range_headline(number, "event", frame.time_range, more=more)


def _sums(wanted: EventListQuery, shown: TimeRange) -> Mapping[str, Any]:
    """Return how many transitions of a range are of each kind, and of the applications that have most."""
    if not wanted.wants(EventSource.TRANSITION):
        return {"kinds": (), "applications": ()}
    criteria = history_queries.HistoryCriteria(
        cluster=wanted.cluster,
        confidence=wanted.confidence,
        application=wanted.application,
        q=wanted.q,
        since_ms=shown.from_ms,
    )
    found = history_queries.by_application(
        criteria,
        until_ms=shown.to_ms,
        step_s=step_seconds(shown, _APPLICATION_STEPS),
        most=_APPLICATIONS,
    )
    counted = [kind for kind in NOTABLE if found.kinds.get(kind) or kind == wanted.kind]
    kinds = [(kind, found.kinds.get(kind, 0)) for kind in counted]
    return {"kinds": kinds, **_applications(criteria.cluster, found, shown)}


def _applications(cluster: str, found: ByApplication, shown: TimeRange) -> Mapping[str, Any]:
    shares = shown.length_ms <= _LONGEST_SHARE_MS
    ended = history_queries.transition_counts(
        cluster,
        since_ms=shown.from_ms,
        until_ms=shown.to_ms,
        applications=list(found.each) if shares else [],
    )
    return {
        "applications": [_application(name, each, ended.get(name, {})) for name, each in found.each.items()],
        "more_applications": found.number - len(found.each),
        "sums_since_ms": found.searched_to_ms,
        "shares": shares,
    }


def _application(name: str, steps: Sequence[Bucket], ended: Mapping[TransitionKind, int]) -> ApplicationLine:
    sums = [(kind, sum(step.counts.get(kind, 0) for step in steps)) for kind in NOTABLE]
    commits, aborts = ended.get(TransitionKind.COMMIT, 0), sum(ended.get(kind, 0) for kind in ABORTS)
    return ApplicationLine(
        name,
        [(kind, number) for kind, number in sums if number > 0],
        [step.count_of(NOTABLE) for step in steps],
        commits,
        100 * aborts / (commits + aborts) if commits + aborts > 0 else None,
    )
