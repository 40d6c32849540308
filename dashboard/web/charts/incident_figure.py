"""An incident's findings as bars on one time axis, with its events, for a file that has no server. Pure.

Its colours are its own: the file is light, as paper is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
import plotly.io

from dashboard.web.charts.figures import LEGEND, plain_label

_COLOURS = {"cause": "#b42318", "effect": "#d98200"}
_EVENTS = "events"
_EVENT_COLOUR = "#344054"
#: A lane, and what is around all of them: legend, axis, margins.
_LANE_PX, _REST_PX = 26, 130
#: A longer name of a lane is cut in its middle; the whole is in the label that a pointer shows.
_LONGEST_LANE = 48
#: A bar narrower than this share of the axis could not be seen.
_NARROWEST = 1 / 400
#: Nothing may leave the machine of who reads it.
_CONFIG = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True}


class FindingSpan(NamedTuple):
    """A finding in one role; `until_ms` is None while it lasts."""

    label: str
    role: str
    since_ms: int
    until_ms: int | None
    words: str


class EventMark(NamedTuple):
    """A line of the history."""

    at_ms: int
    words: str


def incident_figure(spans: Sequence[FindingSpan], marks: Sequence[EventMark], *, now_ms: int) -> go.Figure:
    """Return the figure: a lane for each subject, the first to suffer at the top, and one for events."""
    lanes = {span.label: _lane_name(span.label) for span in sorted(spans, key=lambda span: span.since_ms)}
    starts = [*(span.since_ms for span in spans), *(mark.at_ms for mark in marks)]
    narrowest_ms = max(1, round((now_ms - min(starts, default=now_ms)) * _NARROWEST))
    bars = [
        _bars([span for span in spans if span.role == role], role, lanes, now_ms, narrowest_ms)
        for role in _COLOURS
    ]
    return go.Figure(
        [*bars, _marks(marks)],
        go.Layout(
            template="plotly_white",
            barmode="overlay",
            legend=LEGEND,
            height=_REST_PX + _LANE_PX * (len(lanes) + 1),
            margin={"l": 10, "r": 10, "t": 40, "b": 40},
            xaxis={"type": "date", "title": "UTC", "nticks": 6, "tickangle": 0},
            yaxis={
                "automargin": True,
                "categoryorder": "array",
                "categoryarray": [*reversed(lanes.values()), _EVENTS],
                "type": "category",
            },
        ),
    )


def figure_html(figure: go.Figure) -> str:
    """Return a figure as HTML; the page must have Plotly's script before it."""
    html: str = plotly.io.to_html(figure, config=_CONFIG, include_plotlyjs=False, full_html=False)
    return html


def _bars(
    spans: Sequence[FindingSpan], role: str, lanes: dict[str, str], now_ms: int, narrowest_ms: int
) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=role,
        y=[lanes[span.label] for span in spans],
        base=[span.since_ms for span in spans],
        x=[
            max((now_ms if span.until_ms is None else span.until_ms) - span.since_ms, narrowest_ms)
            for span in spans
        ],
        marker={"color": _COLOURS[role]},
        customdata=[plain_label(f"{span.label}: {span.words}") for span in spans],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _marks(marks: Sequence[EventMark]) -> go.Scatter:
    return go.Scatter(
        mode="markers",
        name=_EVENTS,
        x=[mark.at_ms for mark in marks],
        y=[_EVENTS] * len(marks),
        marker={"size": 10, "symbol": "diamond", "color": _EVENT_COLOUR},
        customdata=[plain_label(mark.words) for mark in marks],
        hovertemplate="%{x}<br>%{customdata}<extra></extra>",
    )


def _lane_name(label: str) -> str:
    half = _LONGEST_LANE // 2
    return plain_label(label if len(label) <= _LONGEST_LANE else f"{label[:half]}…{label[-half:]}")
