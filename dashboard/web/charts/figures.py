"""Facts -> Plotly figures, built by `plotly.graph_objects`.

`static/js/charts.js` draws them. A trace's `meta` names its tone (a colour variable of base.css, so that
light and dark need no second figure) and the fields with instants, which the browser shows in UTC or in local
time. Instants are milliseconds since the epoch. Users' text appears only in hover labels, which Plotly shows
as text after `plain_label`. The template is `charts.js`'s: `go.Figure` would add Plotly's own, 6 kB of
colours, to each figure, so `plotly_figure` joins traces and layout.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.history.queries import Bucket
from dashboard.labels.transition import TRANSITION_STYLES
from fenceline.facts import TransitionKind
from fenceline.history.time_range import TimeRange

Figure = dict[str, Any]

#: The bands of a strip on the first page, from below: words, kinds, and the kind with the band's style.
STRIP = (
    (
        "aborts",
        (
            TransitionKind.CLIENT_ABORT,
            TransitionKind.ABORT,
            TransitionKind.ADMIN_ABORT,
            TransitionKind.SELF_RECOVERY,
            TransitionKind.EMPTY_ABORT,
        ),
        TransitionKind.CLIENT_ABORT,
    ),
    ("timeouts", (TransitionKind.TIMEOUT,), TransitionKind.TIMEOUT),
    ("fences", (TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE), TransitionKind.TAKEOVER),
)
#: A legend above the chart, in the order of its stacks.
LEGEND = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"}
#: The minimum width of a visible bar, as a share of the timeline.
_NARROWEST = 1 / 400


@dataclass(frozen=True, slots=True)
class Bar:
    """A transaction in a timeline; `end` is None while it is open, and `until_ms` is now then."""

    begun_ms: int
    until_ms: int
    end: TransitionKind | None
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of an id between its transactions."""

    at_ms: int
    kind: TransitionKind
    words: str


def activity_strip(buckets: Sequence[Bucket]) -> Figure:
    """Return commits in the lower panel and aborts, timeouts and fences above, each with its own scale.

    On one scale a single takeover beside ten thousand commits would be invisible.
    """
    commits = bucket_bars("commits", [TransitionKind.COMMIT], TransitionKind.COMMIT, buckets)
    rest = [bucket_bars(words, kinds, like, buckets).update(yaxis="y2") for words, kinds, like in STRIP]
    start_ms = buckets[0].start_ms if buckets else 0
    end_ms = buckets[-1].start_ms + buckets[-1].span_ms if buckets else 1
    layout = go.Layout(
        barmode="stack",
        bargap=0.16,
        hovermode="x unified",
        showlegend=False,
        margin={"l": 44, "r": 8, "t": 8, "b": 22},
        xaxis=time_axis(start_ms, end_ms).update(anchor="y"),
        yaxis=count_axis(3).update(domain=[0, 0.56]),
        yaxis2=count_axis(3).update(domain=[0.66, 1], anchor="x"),
    )
    return plotly_figure([commits, *rest], layout)


def timeline_figure(
    bars: Sequence[Bar], marks: Sequence[Mark], *, now_ms: int, shown: TimeRange | None = None
) -> Figure:
    """Return one lane with a bar for each transaction and one lane with all other events.

    Its axis is the range `shown`; None for the range of all bars and marks.
    """
    first = min([*(bar.begun_ms for bar in bars), *(mark.at_ms for mark in marks)], default=now_ms)
    last = max([*(bar.until_ms for bar in bars), *(mark.at_ms for mark in marks)], default=now_ms)
    margin_ms = max(1, (last - first) // 40)
    span_ms = shown.length_ms if shown else last - first + 2 * margin_ms
    ends = list(dict.fromkeys(bar.end for bar in bars))
    lanes = [_lane([bar for bar in bars if bar.end is end], end, span_ms) for end in ends]
    kinds = dict.fromkeys(mark.kind for mark in marks)
    events = [_events([mark for mark in marks if mark.kind is kind], kind) for kind in kinds]
    layout = go.Layout(
        barmode="overlay",
        bargap=0.5,
        hovermode="closest",
        showlegend=True,
        legend=LEGEND,
        margin={"l": 84, "r": 10, "t": 26, "b": 22},
        xaxis=time_axis(shown.from_ms, shown.to_ms)
        if shown
        else time_axis(first - margin_ms, last + margin_ms),
        yaxis=lane_axis([_TRANSACTIONS, _EVENTS] if marks else [_TRANSACTIONS]),
    )
    return plotly_figure([*lanes, *events], layout)


_TRANSACTIONS, _EVENTS = "transactions", "events"
#: Plotly's symbols for kinds that do not end a transaction.
_SYMBOLS = {
    TransitionKind.INIT: "circle-open",
    TransitionKind.REINIT: "triangle-up",
    TransitionKind.ROTATION: "circle-cross",
    TransitionKind.EXPIRY: "line-ew-open",
    TransitionKind.ADMIN_FENCE: "square-x",
    TransitionKind.EMPTY_ABORT: "x",
    TransitionKind.SELF_RECOVERY: "cross",
    TransitionKind.BASELINE: "diamond-open",
}


def plotly_figure(traces: Sequence[go.Bar | go.Scatter], layout: go.Layout) -> Figure:
    """Return a figure for `Plotly.react`, ready for JSON; it keeps the reader's zoom at a refetch."""
    layout.uirevision = "kept"
    return {"data": [trace.to_plotly_json() for trace in traces], "layout": layout.to_plotly_json()}


def bucket_bars(
    words: str, kinds: Iterable[TransitionKind], like: TransitionKind, buckets: Sequence[Bucket]
) -> go.Bar:
    """Return a bar for each bucket with its number of transitions of some kinds, in the style of one."""
    style = TRANSITION_STYLES[like]
    return go.Bar(
        name=words,
        x=[bucket.start_ms + bucket.span_ms // 2 for bucket in buckets],
        y=[bucket.count_of(kinds) for bucket in buckets],
        width=buckets[0].span_ms * 0.84 if buckets else None,
        marker=bar_marker(style.pattern),
        hovertemplate="%{y:,} " + words + "<extra></extra>",
        meta={"tone": style.tone, "times": ["x"]},
    )


def bar_marker(pattern: str) -> dict[str, Any]:
    """Return the marker of bars; `pattern` is "" for a solid fill, which has no outline."""
    if not pattern:
        return {"line": {"width": 0}}
    shape = {"shape": pattern, "size": 5, "solidity": 0.4, "fillmode": "replace"}
    return {"line": {"width": 1}, "pattern": shape}


def _lane(bars: Sequence[Bar], end: TransitionKind | None, span_ms: int) -> go.Bar:
    style = TRANSITION_STYLES[TransitionKind.BEGIN if end is None else end]
    return go.Bar(
        orientation="h",
        name="open" if end is None else style.words,
        y=[_TRANSACTIONS] * len(bars),
        base=[bar.begun_ms for bar in bars],
        x=[max(bar.until_ms - bar.begun_ms, int(span_ms * _NARROWEST)) for bar in bars],
        marker=bar_marker(style.pattern) | {"line": {"width": 1}},
        customdata=[plain_label(bar.words) for bar in bars],
        hovertemplate="%{customdata}<extra></extra>",
        meta={"tone": style.tone, "times": ["base"]},
    )


def _events(marks: Sequence[Mark], kind: TransitionKind) -> go.Scatter:
    style = TRANSITION_STYLES[kind]
    return go.Scatter(
        mode="markers",
        name=style.words,
        x=[mark.at_ms for mark in marks],
        y=[_EVENTS] * len(marks),
        marker={"size": 10, "symbol": _SYMBOLS.get(kind, "diamond"), "line": {"width": 1.5}},
        customdata=[plain_label(mark.words) for mark in marks],
        hovertemplate="%{customdata}<extra></extra>",
        meta={"tone": style.tone, "times": ["x"]},
    )


def time_axis(start_ms: int, end_ms: int) -> go.layout.XAxis:
    """Return an axis of instants, in ms since 1970."""
    return go.layout.XAxis(
        type="date",
        range=[start_ms, end_ms],
        showgrid=False,
        nticks=5,
        tickangle=0,
        tickformatstops=[
            {"dtickrange": [None, 999], "value": "%H:%M:%S.%3f"},
            {"dtickrange": [1_000, 60_000], "value": "%H:%M:%S"},
            {"dtickrange": [60_000, 86_400_000], "value": "%H:%M"},
            {"dtickrange": [86_400_000, None], "value": "%b %d"},
        ],
        hoverformat="%H:%M:%S, %b %d",
    )


def lane_axis(lanes: Sequence[str]) -> go.layout.YAxis:
    """Return an axis of named lanes, from below."""
    return go.layout.YAxis(
        type="category",
        categoryarray=lanes,
        categoryorder="array",
        range=[-0.6, len(lanes) - 0.4],
        fixedrange=True,
        showgrid=False,
    )


def count_axis(ticks: int = 4) -> go.layout.YAxis:
    """Return an axis of counts from 0 with at most `ticks` steps, each a whole number.

    It always ends at a tick: otherwise Plotly would divide one takeover into halves ("500m").
    """
    return go.layout.YAxis(
        rangemode="tozero",
        autorangeoptions={"include": [0, ticks]},
        nticks=ticks,
        tickformat="~s",
        fixedrange=True,
    )


def plain_label(words: str) -> str:
    """Return text without the HTML that Plotly's labels would interpret."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
