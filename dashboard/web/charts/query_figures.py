"""A query's last batches as Plotly figures: how long each phase took, how many rows, how fast. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dashboard.models import Batch
from dashboard.web.charts.figures import Figure, count_axis


class Phase(NamedTuple):
    """A part of a batch in Spark's own word, its tone, and its pattern: no colour stands alone."""

    name: str
    tone: str
    pattern: str
    means: str


#: From below, in the order of size that most queries have.
PHASES = (
    Phase("addBatch", "info", "", "tasks and the sink's commit"),
    Phase("walCommit", "ok", "", "offsets/N is written"),
    Phase("commitOffsets", "ok", "/", "commits/N is written"),
    Phase("latestOffset", "warning", "", "sources are asked how far they go"),
    Phase("getOffset", "warning", "/", "sources are asked how far they go"),
    Phase("getBatch", "warning", ".", "sources hand the batch over"),
    Phase("queryPlanning", "muted", "", "the plan is made"),
)
#: What of a batch's whole no phase tells.
OTHER = Phase("other", "muted", "/", "the rest of its trigger")
_WHOLE = "triggerExecution"
_MARGIN = {"l": 46, "r": 8, "t": 26, "b": 24}


def durations(batches: Sequence[Batch]) -> Figure:
    """Return stacked bars: milliseconds by phase of each batch. Phases that never came have no trace."""
    data = [_bars(phase, batches) for phase in phases_of(batches)]
    return {"data": data, "layout": _layout(batches) | {"yaxis": _duration_axis()}}


def rows(batches: Sequence[Batch], written: Mapping[int, int | None]) -> Figure:
    """Return bars of the rows that each batch read and wrote, and above them the rows per second.

    `written` is by batch id; a batch whose rows nothing has counted has no bar.
    """
    x = [batch.batch_id for batch in batches]
    data = [_row_bars("rows read", x, [batch.input_rows for batch in batches], "info", "")]
    if any(rows is not None for rows in written.values()):
        data.append(_row_bars("rows written", x, [written.get(number) for number in x], "ok", "/"))
    rate: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "rows/s",
        "x": x,
        "y": [batch.processed_rate for batch in batches],
        "yaxis": "y2",
        "line": {"width": 1.5},
        "marker": {"size": 4, "symbol": "square", "line": {"width": 0}},
        "hovertemplate": "%{y:,.0f} rows/s<extra></extra>",
        "meta": {"tone": "ok", "times": []},
    }
    layout = _layout(batches) | {
        # Rows written stand beside rows read, and are no part of them.
        "barmode": "group",
        "yaxis": _WIDE_LABELS | count_axis(3) | {"domain": [0, 0.5]},
        "yaxis2": _rate_axis() | {"domain": [0.6, 1], "anchor": "x"},
    }
    return {"data": [*data, rate], "layout": layout}


def _row_bars(name: str, x: Sequence[int], y: Sequence[int | None], tone: str, pattern: str) -> Figure:
    return {
        "type": "bar",
        "name": name,
        "x": x,
        "y": y,
        "marker": _marker(pattern),
        "hovertemplate": "%{y:,} " + name + "<extra></extra>",
        "meta": {"tone": tone, "times": []},
    }


def phase_ms(batch: Batch, phase: Phase) -> int:
    """Return how long a phase of a batch took."""
    if phase is not OTHER:
        return int(batch.durations.get(phase.name) or 0)
    whole = int(batch.durations.get(_WHOLE) or batch.duration_ms or 0)
    return max(0, whole - sum(phase_ms(batch, each) for each in PHASES))


def phases_of(batches: Sequence[Batch]) -> Sequence[Phase]:
    """Return the phases that any of some batches had."""
    return [phase for phase in (*PHASES, OTHER) if any(phase_ms(batch, phase) for batch in batches)]


def _bars(phase: Phase, batches: Sequence[Batch]) -> Figure:
    return {
        "type": "bar",
        "name": phase.name,
        "x": [batch.batch_id for batch in batches],
        "y": [phase_ms(batch, phase) for batch in batches],
        "marker": _marker(phase.pattern),
        "hovertemplate": "%{y:,} ms " + phase.name + "<extra></extra>",
        "meta": {"tone": phase.tone, "times": []},
    }


def _marker(pattern: str) -> Figure:
    if not pattern:
        return {"line": {"width": 0}}
    shape = {"shape": pattern, "size": 5, "solidity": 0.4, "fillmode": "replace"}
    return {"line": {"width": 1}, "pattern": shape}


def _whole_steps(span: int) -> Figure:
    """Return at most six ticks at whole numbers: there is no batch 41.5."""
    powers = (step * 10**power for power in range(18) for step in (1, 2, 5))
    return {"tick0": 0, "dtick": next(step for step in powers if step * 6 >= span)}


def _layout(batches: Sequence[Batch]) -> Figure:
    first, last = (batches[0].batch_id, batches[-1].batch_id) if batches else (0, 0)
    return {
        "barmode": "stack",
        "bargap": 0.2,
        "hovermode": "x unified",
        "uirevision": "kept",
        "dragmode": False,
        "margin": _MARGIN,
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {
            "range": [first - 0.6, last + 0.6],
            "showgrid": False,
            **_whole_steps(last - first),
            "tickformat": ",d",
            "hoverformat": ",d",
            "fixedrange": True,
        },
    }


#: A batch of many seconds has a wider label than the margin.
_WIDE_LABELS: Figure = {"automargin": True}


def _duration_axis() -> Figure:
    """Milliseconds, in full: "12,000 ms" and not "12k ms"."""
    return _WIDE_LABELS | count_axis() | {"tickformat": ",d", "ticksuffix": " ms"}


def _rate_axis() -> Figure:
    """Rows per second, which may be less than one: "0.5/s" and not "500m/s"."""
    stops = [
        {"dtickrange": [None, 0.999], "value": "~f"},
        {"dtickrange": [1, None], "value": "~s"},
    ]
    return _WIDE_LABELS | {
        "rangemode": "tozero",
        "nticks": 3,
        "tickformatstops": stops,
        "ticksuffix": "/s",
        "fixedrange": True,
    }
