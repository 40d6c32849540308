"""Events of a time range: lanes on one axis, sums by kind and application, and a list with links to
evidence."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from pydantic import BeforeValidator

from dashboard.history import events as event_queries
from dashboard.history import queries as history_queries
from dashboard.history.events import incidents_of
from dashboard.history.queries import Bucket, ByApplication
from dashboard.incidents.queries import incidents_by_number
from dashboard.labels.transition import KIND_LABELS, NOTABLE, event_label, kind_words
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.system.scenes import SceneBoard, read_board
from dashboard.web import addresses, page_context
from dashboard.web.charts import event_figure
from dashboard.web.event_timeline import step_seconds, timeline_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import ChipRow, Filters, RowNumber, marked_labels, plain_labels, split_place
from dashboard.web.incidents.cards import incident_lines
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import list_view, read_query, render_page, signed_in
from dashboard.web.routes import PageRoute
from fenceline.facts import ABORTS, Confidence, TransitionKind
from fenceline.formatting import count_noun, list_names
from fenceline.grouping import grouped
from fenceline.history.time_range import TimeRange
from fenceline.history.timeline import EventPlace, EventSource, TimelineEvent
from fenceline.series.histograms import merge_histograms, quantile
from fenceline.text import Instant, Sentence

_ROWS = 50
#: Maximum events in the lanes.
_MARKS = 60
#: Maximum steps of an application's charts.
_CHART_STEPS = 90
#: Maximum kinds of transitions in the headline.
_KINDS_NAMED = 4
#: A Live range moves with the clock in steps of this length.
_STEP_MS = 5_000
#: Maximum applications in the sums, those with the most notable transitions first. Commits are summed only
#: for ranges up to `_LONGEST_SHARE_MS`: longer ones take too long.
_APPLICATIONS, _LONGEST_SHARE_MS = 10, 7 * 86_400_000
#: Maximum bars of an application.
_APPLICATION_STEPS = 60


class EventListQuery(list_forms.ListQuery, event_queries.EventCriteria):
    before: Annotated[tuple[RowNumber, RowNumber, RowNumber], BeforeValidator(split_place)] | None = None


@signed_in
def event_timeline(request: HttpRequest) -> HttpResponse:
    """Show the lanes of a range as a fragment, so that the page loads without waiting for them."""
    wanted = read_query(request, EventListQuery)
    frame = page_context.chrome_of(request)
    shown = frame.timeline_range

    def read() -> Mapping[str, Any]:
        marks = event_queries.newest_marks(wanted, shown, limit=_MARKS)
        return timeline_context(frame.cluster, wanted.application, shown, *marks, now_ms(request))

    return render_page(request, "events/timeline", read, depends_on=_moved(request))


def _moved(request: HttpRequest, *_: object) -> int:
    """Return the clock's step for a range that ends now, 0 for a past range."""
    shown = page_context.chrome_of(request).timeline_range
    return now_ms(request) // _STEP_MS if shown.live else 0


@list_view("events/list", EventListQuery, depends_on=_moved)
def event_list(request: HttpRequest, wanted: EventListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    shown = frame.timeline_range
    place = None if wanted.before is None else EventPlace(*wanted.before)
    events = event_queries.newest_events(wanted, shown, before=place, limit=_ROWS)
    sums = _sums(wanted, shown)
    board = read_board()
    lines = [_line(event, board) for event in events.items]
    return {
        "shown": shown,
        "rows": _groups(lines),
        "next": "" if events.next is None else "-".join(map(str, events.next)),
        "searched_to_ms": events.searched_to_ms,
        **sums,
        "filters": _filters(request, wanted, sums["kinds"]),
        "headline": _headline(frame, sums["kinds"], len(lines), more=events.next is not None),
        "gaps": event_queries.gaps_within(frame.cluster, shown),
        "cut": _cut(shown, now_ms(request)),
        **(_charts(wanted, shown) if wanted.application else {}),
    }


def _line(event: TimelineEvent, board: SceneBoard | None) -> Mapping[str, Any]:
    kind, _, name = event.subject.partition(":")
    return {
        "event": event,
        "look": event_label(event),
        "url": addresses.event_url(event),
        "subject": f"broker {name}" if kind == "broker" else name,
        # The sandbox's scene that caused it; None for other events.
        "scene": board.played_about(name, event.at_ms) if board else None,
    }


def _charts(wanted: EventListQuery, shown: TimeRange) -> Mapping[str, Any]:
    """Return charts of the ends of one application's transactions, and of the durations of its commits."""
    steps: Mapping[str, Any] = {
        "since_ms": shown.from_ms,
        "until_ms": shown.to_ms,
        "step_s": step_seconds(shown, _CHART_STEPS),
        "application": wanted.application,
    }
    buckets = history_queries.transition_buckets(wanted.cluster, **steps)
    durations = history_queries.duration_buckets(wanted.cluster, **steps)
    whole = merge_histograms(durations)
    ends = [sum(bucket.count_of(kinds) for bucket in buckets) for kinds in ([TransitionKind.COMMIT], ABORTS)]
    if not sum(ends):
        return {}
    return {
        "ends": event_figure.ends_figure(buckets, durations),
        "ends_words": f"{count_noun(ends[0], 'commit')}, {count_noun(ends[1], 'abort')}.",
        "histogram": event_figure.duration_histogram(whole) if whole else None,
        "quantiles": [(f"p{share}", quantile(whole, share / 100)) for share in (50, 95, 99)],
    }


def _filters(request: HttpRequest, wanted: EventListQuery, kinds: Mapping[str, int]) -> Sequence[ChipRow]:
    """Return the chips of sources, kinds of transitions, confidences and routine events."""
    filters = Filters(request.GET, wanted)
    rows = [filters.row("source", list(EventSource), drops=("kind", "confidence"))]
    if kinds:
        rows.append(filters.row("kind", kinds, KIND_LABELS, every="", words="kind"))
    if wanted.source == EventSource.TRANSITION or wanted.kind or wanted.confidence:
        marks = marked_labels(Confidence)
        rows.append(filters.row("confidence", list(Confidence), marks, every="any confidence"))
    words = plain_labels({"true": "routine events one by one"})
    return [*rows, filters.row("unfolded", ["true"], words, every="")]


def _cut(shown: TimeRange, at_ms: int) -> Sequence[tuple[int, Sequence[str]]]:
    """Return the start of stored events if the range begins earlier, with the sources concerned."""
    cut = event_queries.sources_cut(shown, settings.FENCELINE.retention, now_ms=at_ms)
    return list(grouped((since_ms, source.value) for source, since_ms in cut.items()).items())


def _groups(lines: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return events in their order; those of one incident together, at the place of the newest."""
    numbers = incidents_of([line["event"] for line in lines])
    keys = [numbers.get(line["event"].place) or line["event"].place for line in lines]
    rows = {line["row"].pk: line for line in incident_lines(incidents_by_number(numbers.values()))}
    return [
        {"lines": group, "incident": rows.get(key) if isinstance(key, int) else None}
        for key, group in grouped(zip(keys, lines, strict=True)).items()
    ]


def _headline(frame: page_context.Chrome, kinds: Mapping[str, int], number: int, *, more: bool) -> Sentence:
    """Return the transitions of the range by kind, worst first; without any, the number of events."""
    if not frame.clusters:
        return ("No cluster is configured.",)
    counts = [f"{n:,} {kind_words(TransitionKind(kind), n)}" for kind, n in kinds.items() if n]
    if frame.time_range.is_live:
        words = list_names(counts, _KINDS_NAMED) or ("More than " if more else "") + count_noun(
            number, "event"
        )
        return (f"{words} since ", Instant(frame.timeline_range.from_ms), ".")
    if not counts:
        return (time_ranges.range_headline(number, "event", frame.time_range, more=more),)
    return (f"{list_names(counts, _KINDS_NAMED)} {frame.time_range.words()}.",)


def _sums(wanted: EventListQuery, shown: TimeRange) -> Mapping[str, Any]:
    """Return the number of transitions by kind, and the sums of the applications with most transitions."""
    if not wanted.wants(EventSource.TRANSITION):
        return {"kinds": {}, "applications": ()}
    criteria = history_queries.HistoryCriteria(
        cluster=wanted.cluster,
        confidence=wanted.confidence,
        application=wanted.application,
        q=wanted.q,
        since_ms=shown.from_ms,
    )
    transitions = history_queries.by_application(
        criteria,
        until_ms=shown.to_ms,
        step_s=step_seconds(shown, _APPLICATION_STEPS),
        most=_APPLICATIONS,
    )
    counted = [kind for kind in NOTABLE if transitions.kinds.get(kind) or kind == wanted.kind]
    kinds = {kind.value: transitions.kinds.get(kind, 0) for kind in counted}
    return {"kinds": kinds, **_applications(criteria.cluster, transitions, shown)}


def _applications(cluster: str, transitions: ByApplication, shown: TimeRange) -> Mapping[str, Any]:
    shares = shown.length_ms <= _LONGEST_SHARE_MS
    ended = history_queries.transition_counts(
        cluster,
        since_ms=shown.from_ms,
        until_ms=shown.to_ms,
        applications=list(transitions.steps) if shares else [],
    )
    return {
        "applications": [
            _application(name, steps, ended.get(name, {})) for name, steps in transitions.steps.items()
        ],
        "more_applications": transitions.number - len(transitions.steps),
        "sums_since_ms": transitions.searched_to_ms,
        "shares": shares,
    }


def _application(
    name: str, steps: Sequence[Bucket], ended: Mapping[TransitionKind, int]
) -> Mapping[str, Any]:
    sums = [(kind, sum(step.counts.get(kind, 0) for step in steps)) for kind in NOTABLE]
    commits, aborts = ended.get(TransitionKind.COMMIT, 0), sum(ended.get(kind, 0) for kind in ABORTS)
    return {
        "name": name,
        "counts": [(kind, number) for kind, number in sums if number > 0],
        "steps": [step.count_of(NOTABLE) for step in steps],
        "commits": commits,
        "aborted": 100 * aborts / (commits + aborts) if commits + aborts > 0 else None,
    }


ROUTES = (
    PageRoute(
        "events",
        "events",
        event_list,
        key="e",
        heading="Monitor",
        shows=EVERYTHING,
        searched="subjects",
        has_files=True,
    ),
    PageRoute("timeline", "timeline", event_timeline),
)
