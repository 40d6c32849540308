"""An application as Plotly figures: the ends of its transactions, and their durations."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.history.buckets import Bucket
from dashboard.labels.transition import TRANSITION_STYLES
from dashboard.web.charts.figures import LEGEND, Figure, bar_marker, count_axis, plotly_figure, time_axis
from fenceline.facts import ABORTS, TransitionKind
from fenceline.formatting import format_duration
from fenceline.series.histograms import Histogram, bucket_bounds, quantile

#: The quantiles of durations: share, name, tone, dashes.
_QUANTILES = ((0.5, "p50", "ok", "solid"), (0.95, "p95", "info", "dash"), (0.99, "p99", "warning", "dot"))
#: The share of the height of the lower panel, and of the gap above it.
_LOWER, _BETWEEN = 0.45, 0.12


def ends_figure(buckets: Sequence[Bucket], durations: Sequence[Histogram]) -> Figure:
    """Return commits and aborts by step above, and quantiles of the durations of commits in seconds below."""
    last = buckets[-1]
    layout = go.Layout(
        barmode="stack",
        hovermode="x unified",
        uirevision="kept",
        legend=LEGEND,
        margin={"l": 44, "r": 8, "t": 26, "b": 22},
        xaxis=time_axis(buckets[0].start_ms, last.start_ms + last.span_ms).update(anchor="y"),
        yaxis=count_axis(3).update(domain=[0, _LOWER], tickformat="~f", ticksuffix=" s"),
        yaxis2=count_axis(3).update(domain=[_LOWER + _BETWEEN, 1], anchor="x"),
    )
    aborts = _bars("aborts", buckets, [bucket.count_of(ABORTS) for bucket in buckets], TransitionKind.TIMEOUT)
    commits = [bucket.count_of([TransitionKind.COMMIT]) for bucket in buckets]
    lines = [_line(buckets, durations, *style) for style in _QUANTILES]
    return plotly_figure([_bars("commits", buckets, commits, TransitionKind.COMMIT), aborts, *lines], layout)


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
        uirevision="kept",
        margin={"l": 44, "r": 8, "t": 8, "b": 22},
        xaxis=go.layout.XAxis(type="log", ticksuffix=" ms", tickformat="~s", showgrid=False, nticks=6),
        yaxis=count_axis(3),
    )
    return plotly_figure([bars], layout)


def _bars(name: str, buckets: Sequence[Bucket], counts: Sequence[int], like: TransitionKind) -> go.Bar:
    style = TRANSITION_STYLES[like]
    return go.Bar(
        name=name,
        x=[bucket.start_ms + bucket.span_ms // 2 for bucket in buckets],
        y=counts,
        yaxis="y2",
        width=buckets[0].span_ms * 0.84,
        marker=bar_marker(style.pattern),
        hovertemplate=f"%{{y:,}} {name}<extra></extra>",
        meta={"tone": style.tone, "times": ["x"]},
    )


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
