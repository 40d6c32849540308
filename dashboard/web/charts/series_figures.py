"""One subject over time as Plotly figures, with table and holes: offsets of a partition, lag of a group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import plotly.graph_objects as go
from django.http import HttpRequest
from django.urls import reverse

from dashboard.evaluation import finding_queries
from dashboard.evaluation.finding_queries import FindingCriteria
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.series import queries as series_queries
from dashboard.series.queries import SubjectReading, explained_holes
from dashboard.web import page_context
from dashboard.web.charts.figures import LEGEND, Figure, count_axis, plotly_figure, time_axis
from dashboard.web.per_request import now_ms
from fenceline.formatting import format_duration
from fenceline.series.points import GROUP, PARTITION, Extent, SeriesBucket, SeriesKind
from fenceline.series.reading import HoleReason, SeriesReading, SeriesRun

#: The share of the height of the lower panel, and of the gap above it.
_LOWER, _BETWEEN = 0.42, 0.1


#: Units of time: the length in ms and the name of each.
_SCALES = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))
#: Minimum number of units for which a unit is used.
_FROM = 2


def partition_figure(reading: SeriesReading) -> Figure:
    """Return the LSO and the high watermark above, the uncommitted offsets below."""
    lso = step_line(reading, lambda step: step.extents[0].last)
    high = Curve("high watermark", "info", "%{y:,}", "dot")
    uncommitted = Curve("uncommitted", "warning", "%{y:,}")
    traces = [
        curve_trace(high, step_line(reading, _high_watermark), yaxis="y2"),
        curve_trace(Curve("LSO", "ok", "%{y:,}"), lso, yaxis="y2"),
        curve_trace(uncommitted, peak_line(reading, 1), fill="tozeroy"),
    ]
    offsets = go.layout.YAxis(nticks=4, tickformat=",d", fixedrange=True, automargin=True)
    return _figure(reading, traces, below=count_axis(3), above=offsets)


def group_figure(reading: SeriesReading) -> Figure:
    """Return the lag in records above, and the age of the oldest unread one below."""
    unit_ms, unit = scale_of(reading, 2)
    xs, ys = ramp_line(reading, 2)
    behind = xs, [None if y is None else y / unit_ms for y in ys]
    traces = [
        curve_trace(Curve("lag to end", "info", "%{y:,}", "dot"), peak_line(reading, 1), yaxis="y2"),
        curve_trace(Curve("lag to LSO", "ok", "%{y:,}"), peak_line(reading, 0), yaxis="y2"),
        curve_trace(Curve("behind", "warning", f"%{{y:.1f}} {unit}"), behind, shape="linear", fill="tozeroy"),
    ]
    below = count_axis(3).update(tickformat="~f", ticksuffix=f" {unit}", automargin=True)
    return _figure(reading, traces, below=below, above=count_axis().update(automargin=True))


def scale_of(reading: SeriesReading, column: int) -> tuple[int, str]:
    """Return the unit of time for the largest figure of a column."""
    greatest = max((step.extents[column].high or 0 for step in reading.steps), default=0)
    return next((scale for scale in _SCALES if greatest >= _FROM * scale[0]), _SCALES[-1])


class Curve(NamedTuple):
    """The name and style of a line: its tone, the format of its figures, and its dashes."""

    name: str
    tone: str
    value: str
    dash: str = "solid"


#: The points of a line: instants and figures, None where it breaks.
Line = tuple[list[int], list[float | None]]


def step_line(reading: SeriesReading, value: Callable[[SeriesBucket], float | None]) -> Line:
    xs: list[int] = []
    ys: list[float | None] = []
    for run in reading.runs:
        for step in run.steps:
            xs.append(step.at_ms)
            ys.append(value(step))
        xs += [run.until_ms, run.until_ms]
        ys += [ys[-1], None]
    return xs, ys


def peak_line(reading: SeriesReading, column: int) -> Line:
    """Return the points of a line of maxima: between two steps the last figure holds."""
    xs: list[int] = []
    ys: list[float | None] = []
    for run in reading.runs:
        for at_ms, extent in _peaks_of(run, column, reading.plan.step_ms):
            xs.append(at_ms)
            ys.append(extent)
        xs += [run.until_ms, run.until_ms]
        ys += [run.steps[-1].extents[column].last, None]
    return xs, ys


def ramp_line(reading: SeriesReading, column: int) -> Line:
    """Return a line of figures that grow steadily: straight from step to step."""
    xs: list[int] = []
    ys: list[float | None] = []
    for run in reading.runs:
        xs.append(run.steps[0].at_ms)
        ys.append(run.steps[0].extents[column].low)
        for step in run.steps:
            xs.append(min(step.at_ms + reading.plan.step_ms, run.until_ms))
            ys.append(step.extents[column].last)
        xs.append(run.until_ms)
        ys.append(None)
    return xs, ys


def _peaks_of(run: SeriesRun, column: int, step_ms: int) -> Iterator[tuple[int, int | None]]:
    following = [*(step.at_ms for step in run.steps[1:]), run.until_ms]
    for step, next_ms in zip(run.steps, following, strict=True):
        extent = step.extents[column]
        yield step.at_ms, extent.high
        if extent.high != extent.last and step.at_ms + step_ms < next_ms:
            yield step.at_ms + step_ms, extent.last


def _high_watermark(step: SeriesBucket) -> int | None:
    lso, uncommitted = (extent.last for extent in step.extents)
    return None if lso is None or uncommitted is None else lso + uncommitted


def curve_trace(
    curve: Curve, line: Line, *, yaxis: str = "y", shape: str = "hv", fill: str | None = None
) -> go.Scatter:
    """Return a line that breaks at None."""
    return go.Scatter(
        mode="lines",
        name=curve.name,
        x=line[0],
        y=line[1],
        yaxis=yaxis,
        line={"shape": shape, "width": 1.5, "dash": curve.dash},
        fill=fill,
        marker={"size": 4, "line": {"width": 0}},
        hovertemplate=f"{curve.value} {curve.name}<extra></extra>",
        meta={"tone": curve.tone, "times": ["x"]},
    )


def hole_trace(reading: SeriesReading, yaxis: str) -> go.Scatter:
    """Return the holes as areas on an axis from 0 to 1."""
    xs: list[int | None] = []
    ys: list[int | None] = []
    for hole in reading.holes:
        xs += [hole.from_ms, hole.from_ms, hole.to_ms, hole.to_ms, hole.from_ms, hole.to_ms]
        ys += [0, 1, 1, 0, 0, None]
    return go.Scatter(
        mode="lines",
        name="not known",
        x=xs,
        y=ys,
        yaxis=yaxis,
        fill="toself",
        hoverinfo="skip",
        opacity=0.4,
        line={"width": 0},
        marker={"size": 4, "line": {"width": 0}},
        meta={"tone": "muted", "times": ["x"]},
    )


def hole_axis(over: str) -> go.layout.YAxis:
    """Return the axis of holes, which overlays that of a panel."""
    return go.layout.YAxis(overlaying=over, range=[0, 1], visible=False, fixedrange=True)


def _figure(
    reading: SeriesReading,
    traces: Sequence[go.Scatter],
    *,
    below: go.layout.YAxis,
    above: go.layout.YAxis,
) -> Figure:
    holes = [hole_trace(reading, "y3"), hole_trace(reading, "y4").update(showlegend=False)]
    layout = go.Layout(
        hovermode="x unified",
        margin={"l": 8, "r": 8, "t": 26, "b": 22},
        showlegend=True,
        legend=LEGEND,
        xaxis=time_axis(reading.from_ms, reading.to_ms).update(anchor="y"),
        yaxis=go.layout.YAxis(below, domain=[0, _LOWER], automargin=True),
        yaxis2=go.layout.YAxis(above, domain=[_LOWER + _BETWEEN, 1], anchor="x"),
        yaxis3=hole_axis("y"),
        yaxis4=hole_axis("y2"),
    )
    return plotly_figure([*(holes if reading.holes else ()), *traces], layout)


def extent_words(extent: Extent) -> str:
    """Return `5`, `3 to 9` for a figure that changed, or a dash for an unknown one."""
    if extent.low is None or extent.high is None:
        return "—"
    return f"{extent.high:,}" if extent.low == extent.high else f"{extent.low:,} to {extent.high:,}"


#: Maximum rows of a chart's table, and maximum named holes.
_ROWS, _HOLES = 60, 5
#: Gaps that the page itself explains; the list of gaps omits them.
_BEGINS = (HoleReason.NOT_RECORDED, HoleReason.NOT_KEPT)


@dataclass(frozen=True, slots=True)
class _Look:
    figure: Callable[[SeriesReading], Figure]
    headings: Sequence[str]
    cells: Callable[[SeriesBucket], Sequence[str]]
    words: Callable[[SeriesReading], str]


def series_context(request: HttpRequest, cluster_id: int, kind: SeriesKind, name: str) -> Mapping[str, Any]:
    shown = page_context.chrome_of(request).time_range.window()
    subject = series_queries.read_series(cluster_id, kind, name, shown, now_ms=now_ms(request))
    return {"series": _view(cluster_id, subject), "shown": shown}


def _view(cluster_id: int, subject: SubjectReading) -> Mapping[str, Any]:
    reading, look = subject.reading, _LOOKS[subject.kind]
    steps = reading.steps
    rows = [(step.at_ms, look.cells(step)) for step in reversed(reading.rows(_ROWS))]
    holes = explained_holes(cluster_id, subject, without=_BEGINS)
    begins = [hole for hole in reading.holes if hole.reason in _BEGINS]
    return {
        "figure": look.figure(reading) if steps else None,
        "words": look.words(reading) if steps else "",
        "headings": look.headings,
        "rows": rows,
        "step": format_duration(reading.plan.step_ms),
        "kept_since_ms": begins[-1].to_ms if begins and subject.kept_since_ms is not None else None,
        "holes": holes[-_HOLES:],
        "more_holes": max(0, len(holes) - _HOLES),
    }


def _partition_cells(step: SeriesBucket) -> Sequence[str]:
    lso, uncommitted = step.extents
    known = lso.last is not None and uncommitted.last is not None
    high = f"{(lso.last or 0) + (uncommitted.last or 0):,}" if known else "—"
    return "—" if lso.last is None else f"{lso.last:,}", high, extent_words(uncommitted)


def _partition_words(reading: SeriesReading) -> str:
    highs = [step.extents[1].high or 0 for step in reading.steps]
    return f"LSO, high watermark and uncommitted backlog, which is at most {max(highs):,} offsets."


def _group_cells(step: SeriesBucket) -> Sequence[str]:
    lag_lso, lag_hw, lag_ms, blocked = step.extents
    behind = "—" if lag_ms.high is None else format_duration(lag_ms.high)
    return (
        *map(extent_words, (lag_lso, lag_hw)),
        behind,
        extent_words(blocked),
    )


def _group_words(reading: SeriesReading) -> str:
    highs = [step.extents[1].high or 0 for step in reading.steps]
    return f"Lag to the LSO and to the end, which is at most {max(highs):,} records, and how far behind."


_LOOKS: Mapping[SeriesKind, _Look] = {
    PARTITION: _Look(
        partition_figure,
        ("LSO", "High watermark", "Uncommitted"),
        _partition_cells,
        _partition_words,
    ),
    GROUP: _Look(
        group_figure,
        ("Lag to LSO", "Lag to end", "Behind", "BLOCKED partitions"),
        _group_cells,
        _group_words,
    ),
}


#: Maximum findings on a page.
_SHOWN = 10


def subject_history(request: HttpRequest, cluster: str, subject: str) -> Mapping[str, Any]:
    """Return the findings about `kind:name` in the range of the page; on a Live page, the newest ones."""
    asked = page_context.chrome_of(request).time_range
    wanted = FindingCriteria.between(
        asked.start_ms, asked.end_ms, cluster=cluster, state="all", subject=subject
    )
    findings = finding_queries.findings_before(None, wanted, limit=_SHOWN + 1)
    return {
        "findings": findings[:_SHOWN],
        "has_more": len(findings) > _SHOWN,
        "events_url": events_url(cluster, subject.partition(":")[2]),
    }


def events_url(cluster: str, name: str) -> str:
    """Return the address of the events whose subject contains a name."""
    return reverse("events", query={"cluster": cluster, "q": name[:LONGEST_SEARCH]})
