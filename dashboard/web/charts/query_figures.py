"""A query's last batches as Plotly figures: duration of phases, rows, rows per second."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from dashboard.models import Batch
from dashboard.web.charts.figures import LEGEND, Figure, bar_marker, count_axis, plotly_figure, time_axis
from fenceline.history.time_range import TimeRange


class Phase(NamedTuple):
    """A phase of a batch in Spark's terms, with its tone and pattern: no colour stands alone."""

    name: str
    tone: str
    pattern: str
    means: str


#: From below, in the usual order of size.
PHASES = (
    Phase("addBatch", "info", "", "tasks and the sink's commit"),
    Phase("walCommit", "ok", "", "offsets/N is written"),
    Phase("commitOffsets", "ok", "/", "commits/N is written"),
    Phase("latestOffset", "warning", "", "sources are asked how far they go"),
    Phase("getOffset", "warning", "/", "sources are asked how far they go"),
    Phase("getBatch", "warning", ".", "sources hand the batch over"),
    Phase("queryPlanning", "muted", "", "the plan is made"),
)
#: The part of a batch's duration that belongs to no phase.
OTHER = Phase("other", "muted", "/", "the rest of its trigger")
_WHOLE = "triggerExecution"


def duration_figure(batches: Sequence[Batch], within: TimeRange | None = None) -> Figure:
    """Return stacked bars of milliseconds by phase for each batch, without phases that no batch had.

    The axis has batch numbers, or with `within` the instants of that range.
    """
    places = _Places(batches, within)
    bars = [
        _bars(
            phase.name,
            places,
            [phase_ms(batch, phase) for batch in batches],
            phase.tone,
            phase.pattern,
            "ms ",
        )
        for phase in phases_of(batches)
    ]
    # Milliseconds in full: "12,000 ms" and not "12k ms".
    axis = count_axis().update(tickformat=",d", ticksuffix=" ms", automargin=True)
    return plotly_figure(bars, _layout(places).update(yaxis=axis))


def row_figure(
    batches: Sequence[Batch], written: Mapping[int, int | None], within: TimeRange | None = None
) -> Figure:
    """Return bars of the rows that each batch read and wrote, and above them the rows per second.

    `written` is by batch id, None if the rows were not counted.
    """
    places = _Places(batches, within)
    traces = [_bars("rows read", places, [batch.input_rows for batch in batches], "info", "")]
    if any(rows is not None for rows in written.values()):
        counts = [written.get(batch.batch_id) for batch in batches]
        traces.append(_bars("rows written", places, counts, "ok", "/"))
    rate = go.Scatter(
        mode="lines+markers",
        name="rows/s",
        x=places.x,
        y=[batch.processed_rate for batch in batches],
        yaxis="y2",
        line_width=1.5,
        marker={"size": 4, "symbol": "square", "line": {"width": 0}},
        hovertemplate="%{y:,.0f} rows/s<extra></extra>",
        meta={"tone": "ok", "times": places.times},
    )
    layout = _layout(places).update(
        # Rows written are beside rows read, not a part of them.
        barmode="group",
        yaxis=count_axis(3).update(domain=[0, 0.5], automargin=True),
        yaxis2=_rate_axis(),
    )
    return plotly_figure([*traces, rate], layout)


def phase_ms(batch: Batch, phase: Phase) -> int:
    if phase is not OTHER:
        return int(batch.durations.get(phase.name) or 0)
    whole = int(batch.durations.get(_WHOLE) or batch.duration_ms or 0)
    return max(0, whole - sum(phase_ms(batch, phase) for phase in PHASES))


def phases_of(batches: Sequence[Batch]) -> Sequence[Phase]:
    return [phase for phase in (*PHASES, OTHER) if any(phase_ms(batch, phase) for batch in batches)]


class _Places:
    """Positions of batches on their axis: batch numbers, or within a range the instants of their start."""

    def __init__(self, batches: Sequence[Batch], within: TimeRange | None) -> None:
        self._numbers = [batch.batch_id for batch in batches]
        self._within = within
        self.x: list[int] = self._numbers if within is None else [batch.started_ms or 0 for batch in batches]
        #: The fields of a trace that hold instants.
        self.times = [] if within is None else ["x"]
        #: The width of a bar; None for Plotly's own.
        self.width = None if within is None else within.length_ms / 100

    def axis(self) -> Figure | go.layout.XAxis:
        if self._within is not None:
            return time_axis(self._within.from_ms, self._within.to_ms)
        first, last = (self._numbers[0], self._numbers[-1]) if self._numbers else (0, 0)
        return {
            "range": [first - 0.6, last + 0.6],
            "showgrid": False,
            **_whole_steps(last - first),
            "tickformat": ",d",
            "hoverformat": ",d",
            "fixedrange": True,
        }


def _bars(
    name: str, places: _Places, y: Sequence[int | None], tone: str, pattern: str, unit: str = ""
) -> go.Bar:
    return go.Bar(
        name=name,
        x=places.x,
        y=y,
        width=places.width,
        marker=bar_marker(pattern),
        hovertemplate="%{y:,} " + unit + name + "<extra></extra>",
        meta={"tone": tone, "times": places.times},
    )


def _whole_steps(span: int) -> Figure:
    """Return at most six ticks at whole numbers."""
    powers = (step * 10**power for power in range(18) for step in (1, 2, 5))
    return {"tick0": 0, "dtick": next(step for step in powers if step * 6 >= span)}


def _layout(places: _Places) -> go.Layout:
    return go.Layout(
        barmode="stack",
        bargap=0.2,
        hovermode="x unified",
        dragmode=False,
        margin={"l": 46, "r": 8, "t": 26, "b": 24},
        showlegend=True,
        legend=LEGEND,
        xaxis=places.axis(),
    )


def _rate_axis() -> go.layout.YAxis:
    """Return the axis of rows per second: "0.5/s", not "500m/s"."""
    return go.layout.YAxis(
        rangemode="tozero",
        nticks=3,
        tickformatstops=[
            {"dtickrange": [None, 0.999], "value": "~f"},
            {"dtickrange": [1, None], "value": "~s"},
        ],
        ticksuffix="/s",
        fixedrange=True,
        automargin=True,
        domain=[0.6, 1],
        anchor="x",
    )
