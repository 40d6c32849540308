"""The lanes of a range of time: bars for durations, marks for events, and a strip of figures below. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import plotly.graph_objects as go

from dashboard.history.queries import Bucket
from dashboard.web.charts.figures import (
    LEGEND,
    Figure,
    bar_marker,
    bucket_bars,
    count_axis,
    lane_axis,
    plain_label,
    plotly_figure,
    time_axis,
)
from dashboard.web.charts.series_figures import Curve, curve_trace, peak_line
from fenceline.facts import ABORTS, TransitionKind
from fenceline.formatting import format_duration
from fenceline.grouping import grouped
from fenceline.series.histograms import Histogram, bucket_bounds, quantile
from fenceline.series.points import APPLICATION, GROUP
from fenceline.series.reading import SeriesReading

#: The lanes, from the top. All lanes are always shown, so that none moves when another gets its first mark.
INCIDENTS, TRANSACTIONS, FENCES = "incidents", "transactions", "fences, timeouts"
ALERTS, ACTIONS, BATCHES = "alerts", "actions", "batches"
LANES = (INCIDENTS, TRANSACTIONS, FENCES, ALERTS, ACTIONS, BATCHES)
#: The kinds of marks, each with its lane and its symbol.
MARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "fence": (FENCES, "x"),
        "timeout": (FENCES, "triangle-up"),
        "transition": (TRANSACTIONS, "circle"),
        "recovery": (TRANSACTIONS, "cross"),
        "alert": (ALERTS, "star"),
        "delivery": (ALERTS, "triangle-right"),
        "action": (ACTIONS, "square"),
    }
)
#: The share of the height below the lanes: room for the instants and titles, then the strip.
_STRIP, _TITLES = 0.26, 0.2
#: The gap between two panels of the strip, as a share of the width.
_BETWEEN = 0.04
#: Maximum marks of a rare lane, whose last mark is labelled, and maximum letters of the label.
_RARE, _LABEL = 3, 40
#: The minimum width of a visible bar, as a share of the axis.
_NARROWEST = 1 / 400
_LAG_CURVES = (("critical", "solid"), ("warning", "dash"), ("info", "dot"))


class LaneMark(NamedTuple):
    """An event of one of MARKS; `url` is the page of its evidence."""

    at_ms: int
    kind: str
    tone: str
    words: str
    url: str

    @property
    def lane(self) -> str:
        return MARKS[self.kind][0]


class LaneSpan(NamedTuple):
    """An incident, a transaction while it was open, or a batch, within the range."""

    from_ms: int
    to_ms: int
    tone: str
    words: str
    url: str
    lane: str = INCIDENTS


#: Figures over time: a title and the traces.
Panel = tuple[str, Sequence[go.Bar | go.Scatter]]


def event_figure(
    panels: Sequence[Panel],
    spans: Sequence[LaneSpan],
    marks: Sequence[LaneMark],
    *,
    from_ms: int,
    to_ms: int,
) -> Figure:
    """Return the lanes, and below them the panels side by side on axes of the same range."""
    bottom = _STRIP + _TITLES if panels else 0
    layout = go.Layout(
        barmode="overlay",
        hovermode="closest",
        showlegend=False,
        margin={"l": 8, "r": 8, "t": 4, "b": 4 if panels else 22},
        xaxis=time_axis(from_ms, to_ms).update(anchor="y"),
        yaxis=lane_axis(LANES[::-1]).update(domain=[bottom, 1], automargin=True),
    )
    below = _strip(layout, panels)
    narrowest_ms = round((to_ms - from_ms) * _NARROWEST)
    middle_ms = (from_ms + to_ms) // 2
    return plotly_figure([*_spans(spans, narrowest_ms), *_marks(marks, middle_ms), *below], layout)


def _strip(layout: go.Layout, panels: Sequence[Panel]) -> Sequence[go.Bar | go.Scatter]:
    """Add the axes and titles of the panels to a layout, and return their traces."""
    share = (1 - _BETWEEN * (len(panels) - 1)) / max(1, len(panels))
    traces: list[go.Bar | go.Scatter] = []
    for number, (_, panel_traces) in enumerate(panels, 2):
        left = (number - 2) * (share + _BETWEEN)
        layout[f"xaxis{number}"] = {
            "type": "date",
            "matches": "x",
            "domain": [left, left + share],
            "anchor": f"y{number}",
            "showticklabels": False,
            "showgrid": False,
            "hoverformat": layout.xaxis.hoverformat,
        }
        layout[f"yaxis{number}"] = count_axis(2).update(
            domain=[0, _STRIP], anchor=f"x{number}", side="right", ticklabelposition="inside bottom"
        )
        traces += [type(trace)(trace, xaxis=f"x{number}", yaxis=f"y{number}") for trace in panel_traces]
    layout.annotations = [_title(number, title) for number, (title, _) in enumerate(panels, 2)]
    return traces


def _title(number: int, title: str) -> Mapping[str, object]:
    place = {"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0, "y": 1}
    return {**place, "text": title, "xanchor": "left", "yanchor": "bottom", "showarrow": False}


def commit_panel(buckets: Sequence[Bucket]) -> Panel:
    return "commits", [bucket_bars("commits", [TransitionKind.COMMIT], TransitionKind.COMMIT, buckets)]


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
    return "blocked", traces


def lag_panel(readings: Sequence[tuple[str, SeriesReading]]) -> Panel:
    """Return the lag to the end of the log of the worst groups, the worst first."""
    traces = [
        curve_trace(
            Curve(plain_label(name), tone, "%{x}<br>%{y:,} records:", dash), peak_line(reading, GROUP.lead)
        )
        for (name, reading), (tone, dash) in zip(readings, _LAG_CURVES, strict=False)
    ]
    return "lag", traces


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
        for tone, shown in grouped((span.tone, span) for span in spans).items()
    ]


def _marks(marks: Sequence[LaneMark], middle_ms: int) -> Sequence[go.Scatter]:
    labelled = _last_of_rare(marks)
    return [
        go.Scatter(
            mode="markers+text",
            name=kind,
            x=[mark.at_ms for mark in shown],
            y=[MARKS[kind][0]] * len(shown),
            marker={"size": 10, "symbol": MARKS[kind][1], "line": {"width": 1}},
            text=[plain_label(mark.words[:_LABEL]) if mark in labelled else "" for mark in shown],
            textposition=[f"middle {'left' if mark.at_ms > middle_ms else 'right'}" for mark in shown],
            customdata=[[plain_label(mark.words), mark.url] for mark in shown],
            hovertemplate="%{x}<br>%{customdata[0]}<extra></extra>",
            meta={"tone": tone, "times": ["x"]},
        )
        for (kind, tone), shown in grouped(((mark.kind, mark.tone), mark) for mark in marks).items()
    ]


def _last_of_rare(marks: Sequence[LaneMark]) -> Sequence[LaneMark]:
    lanes = grouped((mark.lane, mark) for mark in marks).values()
    return [max(shown, key=lambda mark: mark.at_ms) for shown in lanes if len(shown) <= _RARE]


#: The quantiles of durations: share, name, tone, dashes.
_QUANTILES = ((0.5, "p50", "ok", "solid"), (0.95, "p95", "info", "dash"), (0.99, "p99", "warning", "dot"))
#: The share of the height of the lower panel, and of the gap above it.
_LOWER, _GAP = 0.45, 0.12


def ends_figure(buckets: Sequence[Bucket], durations: Sequence[Histogram]) -> Figure:
    """Return commits and aborts by step above, and quantiles of the durations of commits in seconds below."""
    last = buckets[-1]
    layout = go.Layout(
        barmode="stack",
        hovermode="x unified",
        legend=LEGEND,
        margin={"l": 44, "r": 8, "t": 26, "b": 22},
        xaxis=time_axis(buckets[0].start_ms, last.start_ms + last.span_ms).update(anchor="y"),
        yaxis=count_axis(3).update(domain=[0, _LOWER], tickformat="~f", ticksuffix=" s"),
        yaxis2=count_axis(3).update(domain=[_LOWER + _GAP, 1], anchor="x"),
    )
    commit = TransitionKind.COMMIT
    ends = [
        bucket_bars("commits", [commit], commit, buckets).update(yaxis="y2"),
        bucket_bars("aborts", ABORTS, TransitionKind.TIMEOUT, buckets).update(yaxis="y2"),
    ]
    lines = [_line(buckets, durations, *style) for style in _QUANTILES]
    return plotly_figure([*ends, *lines], layout)


def duration_histogram(durations: Histogram) -> Figure:
    """Return the number of commits by their durations; the axis is logarithmic."""
    bounds = [bucket_bounds(bucket) for bucket in durations]
    bars = go.Bar(
        name="commits",
        x=[max(low, 1) for low, _ in bounds],
        y=list(durations.values()),
        width=[max(high - max(low, 1), 1) for low, high in bounds],
        offset=0,
        marker=bar_marker(""),
        customdata=[f"{format_duration(low)} to {format_duration(high)}" for low, high in bounds],
        hovertemplate="%{y:,} commits took %{customdata}<extra></extra>",
        meta={"tone": "ok", "times": []},
    )
    layout = go.Layout(
        hovermode="closest",
        showlegend=False,
        margin={"l": 44, "r": 8, "t": 8, "b": 22},
        xaxis=go.layout.XAxis(type="log", ticksuffix=" ms", tickformat="~s", showgrid=False, nticks=6),
        yaxis=count_axis(3),
    )
    return plotly_figure([bars], layout)


def _line(
    buckets: Sequence[Bucket], durations: Sequence[Histogram], share: float, name: str, tone: str, dash: str
) -> go.Scatter:
    values = [quantile(histogram, share) for histogram in durations]
    return go.Scatter(
        mode="lines+markers",
        name=name,
        x=[bucket.start_ms + bucket.span_ms // 2 for bucket in buckets],
        y=[None if value is None else value / 1_000 for value in values],
        line={"dash": dash, "width": 1.5},
        marker={"size": 4, "line": {"width": 0}},
        hovertemplate=f"{name} %{{y:.2f}} s<extra></extra>",
        meta={"tone": tone, "times": ["x"]},
    )
