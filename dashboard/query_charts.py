"""A query's last batches as Plotly figures: how long each phase took, how many rows, how fast. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dashboard.charts import Figure
from dashboard.models import Batch


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
    return {"data": data, "layout": _layout(batches) | {"yaxis": _axis(" ms")}}


def rows(batches: Sequence[Batch]) -> Figure:
    """Return bars of the rows that each batch read, and above them the rows per second that it processed."""
    x = [batch.batch_id for batch in batches]
    read: Figure = {
        "type": "bar",
        "name": "rows",
        "x": x,
        "y": [batch.input_rows for batch in batches],
        "marker": {"line": {"width": 0}},
        "hovertemplate": "%{y:,} rows<extra></extra>",
        "meta": {"tone": "info", "times": []},
    }
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
        "yaxis": _axis("") | {"domain": [0, 0.5], "nticks": 3},
        "yaxis2": _axis("/s") | {"domain": [0.6, 1], "nticks": 3, "anchor": "x"},
    }
    return {"data": [read, rate], "layout": layout}


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
    pattern = {"shape": phase.pattern, "size": 5, "solidity": 0.4, "fillmode": "replace"}
    return {
        "type": "bar",
        "name": phase.name,
        "x": [batch.batch_id for batch in batches],
        "y": [phase_ms(batch, phase) for batch in batches],
        "marker": {
            "line": {"width": 1 if phase.pattern else 0},
            **({"pattern": pattern} if phase.pattern else {}),
        },
        "hovertemplate": "%{y:,} ms " + phase.name + "<extra></extra>",
        "meta": {"tone": phase.tone, "times": []},
    }


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
            "nticks": 6,
            "tickformat": ",d",
            "hoverformat": ",d",
            "fixedrange": True,
        },
    }


def _axis(unit: str) -> Figure:
    return {
        "rangemode": "tozero",
        "nticks": 4,
        "tickformat": "~s" if unit != " ms" else ",d",
        "ticksuffix": unit,
        # A batch of many seconds has a wider label than the margin.
        "automargin": True,
        "fixedrange": True,
    }
