"""The lanes of a range of time: events by source, incidents and transactions as bars, figures below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import plotly.graph_objects as go

from dashboard.history.buckets import Bucket
from dashboard.labels.transition import TRANSITION_STYLES
from dashboard.models import Batch
from dashboard.web.charts.figures import (
    Figure,
    bar_marker,
    count_axis,
    lane_axis,
    plain_label,
    plotly_figure,
    time_axis,
)
from dashboard.web.charts.query_figures import phase_ms, phases_of
from dashboard.web.charts.series_figures import Curve, curve_trace, peak_line
from fenceline.facts import TransitionKind
from fenceline.series.points import APPLICATION, GROUP
from fenceline.series.reading import SeriesReading

#: Lanes of bars, from the top.
INCIDENTS, OPEN = "incidents", "open too long"
#: Lanes of events, below the bars, and the mark of each.
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
Item = TypeVar("Item")
Key = TypeVar("Key")
#: The height of a panel of figures in lanes, and the gap between two as a share of the height.
_PANEL, _BETWEEN = 2.4, 0.03
#: The minimum width of a visible bar, as a share of the axis.
_NARROWEST = 1 / 400
_LAG_CURVES = (("critical", "solid"), ("warning", "dash"), ("info", "dot"))


class LaneMark(NamedTuple):
    """An event in a lane; `url` is the page of its evidence."""

    at_ms: int
    lane: str
    tone: str
    words: str
    url: str


class LaneSpan(NamedTuple):
    """An incident, or a transaction, while it was open within the range."""

    from_ms: int
    to_ms: int
    tone: str
    words: str
    url: str
    lane: str = INCIDENTS


class BatchBar(NamedTuple):
    """A micro-batch, its label, and the address of its chain."""

    batch: Batch
    words: str
    url: str


class Panel(NamedTuple):
    """Figures over time: their axis, and what is drawn on it."""

    axis: go.layout.YAxis
    traces: Sequence[go.Bar | go.Scatter]


class EventFigure(NamedTuple):
    """The figure and its height in lanes."""

    figure: Figure
    height: float


def event_figure(
    panels: Sequence[Panel],
    spans: Sequence[LaneSpan],
    marks: Sequence[LaneMark],
    *,
    from_ms: int,
    to_ms: int,
) -> EventFigure:
    """Return the figure without empty lanes."""
    used = {*(mark.lane for mark in marks), *(span.lane for span in spans)}
    lanes = [lane for lane in (INCIDENTS, OPEN, *LANES) if lane in used]
    height = len(lanes) + _PANEL * len(panels)
    domains = _domains([len(lanes), *[_PANEL] * len(panels)])
    last = f"y{len(panels) + 1}" if panels else "y"
    layout = go.Layout(
        barmode="overlay",
        hovermode="closest",
        showlegend=False,
        uirevision="kept",
        margin={"l": 8, "r": 8, "t": 8, "b": 22},
        xaxis=time_axis(from_ms, to_ms).update(anchor=last),
        yaxis=lane_axis(lanes[::-1]).update(domain=domains[0], automargin=True),
    )
    for number, panel in enumerate(panels, 2):
        layout[f"yaxis{number}"] = go.layout.YAxis(panel.axis, domain=domains[number - 1], automargin=True)
    below = [
        type(trace)(trace, yaxis=f"y{number}")
        for number, panel in enumerate(panels, 2)
        for trace in panel.traces
    ]
    narrowest_ms = round((to_ms - from_ms) * _NARROWEST)
    return EventFigure(plotly_figure([*_spans(spans, narrowest_ms), *_marks(marks), *below], layout), height)


def commit_panel(buckets: Sequence[Bucket]) -> Panel:
    """Return the number of commits in each step."""
    style = TRANSITION_STYLES[TransitionKind.COMMIT]
    bar = go.Bar(
        name=style.plural,
        x=[bucket.start_ms + bucket.span_ms // 2 for bucket in buckets],
        y=[bucket.counts.get(TransitionKind.COMMIT, 0) for bucket in buckets],
        width=buckets[0].span_ms * 0.84 if buckets else None,
        marker=bar_marker(style.pattern),
        hovertemplate="%{y:,} commits<extra></extra>",
        meta={"tone": style.tone, "times": ["x"]},
    )
    return Panel(count_axis(2).update(title="commits"), [bar])


def backlog_panel(readings: Sequence[tuple[str, SeriesReading]]) -> Panel:
    """Return the offsets behind blocked LSOs by cluster."""
    traces = [
        curve_trace(
            Curve(plain_label(f"blocked {name}".strip()), "warning", "%{x}<br>%{y:,} offsets"),
            peak_line(reading, APPLICATION.lead),
            fill="tozeroy",
        )
        for name, reading in readings
    ]
    return Panel(count_axis(2).update(title="backlog"), traces)


def lag_panel(readings: Sequence[tuple[str, SeriesReading]]) -> Panel:
    """Return the lag to the end of the log of the worst groups, the worst first."""
    traces = [
        curve_trace(
            Curve(plain_label(name), tone, "%{x}<br>%{y:,} records:", dash), peak_line(reading, GROUP.lead)
        )
        for (name, reading), (tone, dash) in zip(readings, _LAG_CURVES, strict=False)
    ]
    return Panel(count_axis(2).update(title="lag"), traces)


def batch_panel(bars: Sequence[BatchBar], *, from_ms: int, to_ms: int) -> Panel:
    """Return bars of micro-batches at their start; the height is the duration by phase."""
    batches = [bar.batch for bar in bars]
    phases = phases_of(batches)
    ends = [list(accumulate((phase_ms(batch, phase) for phase in phases), initial=0)) for batch in batches]
    width_ms = max((to_ms - from_ms) // 200, 1)
    traces = [
        go.Bar(
            name=phase.name,
            x=[(batch.started_ms or 0) + width_ms // 2 for batch in batches],
            base=[bounds[number] / 1_000 for bounds in ends],
            y=[phase_ms(batch, phase) / 1_000 for batch in batches],
            width=width_ms * 0.84,
            marker=bar_marker(phase.pattern),
            customdata=[[plain_label(bar.words), bar.url] for bar in bars],
            hovertemplate=f"%{{customdata[0]}}<br>%{{y:.1f}} s {phase.name}<extra></extra>",
            meta={"tone": phase.tone, "times": ["x"]},
        )
        for number, phase in enumerate(phases)
    ]
    return Panel(count_axis(2).update(title="batch time", ticksuffix=" s"), traces)


def _domains(weights: Sequence[float]) -> Sequence[tuple[float, float]]:
    """Return the domain of each row on the vertical axis, from the top; rows without weight get none."""
    rows = [weight for weight in weights if weight]
    whole, room = sum(rows) or 1, 1 - _BETWEEN * (len(rows) - 1)
    domains, top = [], 1.0
    for weight in weights:
        share = room * weight / whole
        domains.append((max(top - share, 0), top))
        top -= share + (_BETWEEN if weight else 0)
    return domains


def _spans(spans: Sequence[LaneSpan], narrowest_ms: int) -> Sequence[go.Bar]:
    return [
        go.Bar(
            orientation="h",
            name=tone,
            y=[span.lane for span in shown],
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


def _grouped(items: Iterable[Item], *, key: Callable[[Item], Key]) -> Mapping[Key, Sequence[Item]]:
    """Return items by key, in their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
