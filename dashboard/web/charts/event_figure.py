"""A range of time as lanes on one axis: commits, open incidents, and events by source. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import plotly.graph_objects as go

from dashboard.history.buckets import Bucket
from dashboard.labels.transition import LOOKS
from dashboard.web.charts.figures import (
    Figure,
    bar_marker,
    count_axis,
    lane_axis,
    plain_label,
    plotly_figure,
    time_axis,
)
from fenceline.facts import TransitionKind

#: Lanes of events, from the top, and how each is drawn.
LANES: Mapping[str, str] = MappingProxyType(
    {
        "fences": "x",
        "timeouts": "triangle-up",
        "other transitions": "circle",
        "findings": "diamond",
        "alerts": "star",
        "deliveries": "triangle-right",
        "actions": "square",
        "recoveries": "cross",
    }
)
_INCIDENTS = "incidents"
Item = TypeVar("Item")
Key = TypeVar("Key")
#: The part of the height that commits have, below the lanes.
_COMMITS = 0.25
#: A bar narrower than this share of the axis could not be seen.
_NARROWEST = 1 / 400


class LaneMark(NamedTuple):
    """An event in a lane; `url` is where its evidence is."""

    at_ms: int
    lane: str
    tone: str
    words: str
    url: str


class LaneSpan(NamedTuple):
    """An incident while it was open, within the range."""

    from_ms: int
    to_ms: int
    tone: str
    words: str
    url: str


def event_figure(
    commits: Sequence[Bucket],
    spans: Sequence[LaneSpan],
    marks: Sequence[LaneMark],
    *,
    from_ms: int,
    to_ms: int,
) -> Figure:
    """Return the figure; lanes in which nothing happened are left out, that of commits never."""
    used = {mark.lane for mark in marks}
    lanes = [*([_INCIDENTS] if spans else []), *(lane for lane in LANES if lane in used)]
    share = _COMMITS if lanes else 1.0
    traces = [
        *_spans(spans, round((to_ms - from_ms) * _NARROWEST)),
        *_marks(marks),
        _commits(commits),
    ]
    layout = go.Layout(
        barmode="overlay",
        hovermode="closest",
        showlegend=False,
        uirevision="kept",
        margin={"l": 8, "r": 8, "t": 8, "b": 22},
        xaxis=time_axis(from_ms, to_ms).update(anchor="y2"),
        yaxis=lane_axis(lanes[::-1]).update(domain=[min(share + 0.05, 1), 1], automargin=True),
        yaxis2=count_axis(2).update(domain=[0, share], title="commits", automargin=True),
    )
    return plotly_figure(traces, layout)


def _spans(spans: Sequence[LaneSpan], narrowest_ms: int) -> Sequence[go.Bar]:
    return [
        go.Bar(
            orientation="h",
            name=tone,
            y=[_INCIDENTS] * len(shown),
            base=[span.from_ms for span in shown],
            x=[max(span.to_ms - span.from_ms, narrowest_ms) for span in shown],
            marker=bar_marker("") | {"opacity": 0.55},
            customdata=[[plain_label(span.words), span.url] for span in shown],
            hovertemplate="%{customdata[0]}<extra></extra>",
            meta={"tone": tone, "times": ["base"]},
        )
        for tone, shown in _grouped(spans, key=lambda span: span.tone).items()
    ]


def _marks(marks: Sequence[LaneMark]) -> Sequence[go.Scatter]:
    return [
        go.Scatter(
            mode="markers",
            name=lane,
            x=[mark.at_ms for mark in shown],
            y=[lane] * len(shown),
            marker={"size": 10, "symbol": LANES[lane], "line": {"width": 1}},
            customdata=[[plain_label(mark.words), mark.url] for mark in shown],
            hovertemplate="%{x}<br>%{customdata[0]}<extra></extra>",
            meta={"tone": tone, "times": ["x"]},
        )
        for (lane, tone), shown in _grouped(marks, key=lambda mark: (mark.lane, mark.tone)).items()
    ]


def _commits(buckets: Sequence[Bucket]) -> go.Bar:
    look = LOOKS[TransitionKind.COMMIT]
    return go.Bar(
        name=look.plural,
        x=[bucket.start_ms + bucket.span_ms // 2 for bucket in buckets],
        y=[bucket.counts.get(TransitionKind.COMMIT, 0) for bucket in buckets],
        width=buckets[0].span_ms * 0.84 if buckets else None,
        marker=bar_marker(look.pattern),
        hovertemplate="%{y:,} commits<extra></extra>",
        yaxis="y2",
        meta={"tone": look.tone, "times": ["x"]},
    )


def _grouped(items: Iterable[Item], *, key: Callable[[Item], Key]) -> Mapping[Key, Sequence[Item]]:
    """Return items by a key, each in its order."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
