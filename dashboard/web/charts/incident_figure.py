"""An incident as lanes on one time axis: the same figure for its page and for its file.

Tones are the same as in every chart (`dashboard.web.charts.figures`). The page applies its light or dark
colours; a file has its own light colours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import plotly.graph_objects as go
import plotly.io

from dashboard.web.charts.figures import Figure, bar_marker, lane_axis, plain_label, plotly_figure, time_axis
from fenceline.formatting import shorten

#: The height of a lane, and of axis and margins together.
_LANE_PX, _REST_PX = 28, 44
#: Maximum characters of names of lanes and of labels; the tooltip has the whole text.
_LONGEST_LANE, _LONGEST_LABEL = 28, 44
#: The minimum width of a visible bar and the room of a label, as shares of the axis.
_NARROWEST, _LABEL_ROOM = 1 / 400, 0.16
#: The light colours of base.css.
_COLOURS: Mapping[str, str] = MappingProxyType(
    {"ok": "#1c6e41", "info": "#2452c4", "warning": "#854c00", "critical": "#b02318", "unknown": "#63635c"}
)
_INK = "#1b1b19"
#: The file must load nothing from the network.
_CONFIG = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True}


class LaneBar(NamedTuple):
    """A bar of a lane; `label` is in the bar, `words` in the tooltip."""

    from_ms: int
    to_ms: int
    tone: str
    label: str
    words: str


class LanePoint(NamedTuple):
    """A mark of a lane with its label beside it."""

    at_ms: int
    tone: str
    label: str


@dataclass(frozen=True, slots=True)
class IncidentLane:
    """One lane, from the top."""

    name: str
    bars: Sequence[LaneBar] = ()
    points: Sequence[LanePoint] = ()


def incident_figure(lanes: Sequence[IncidentLane], *, from_ms: int, to_ms: int) -> Figure:
    """Return the figure; `height` in its layout grows with the lanes."""
    names = _distinct_names([lane.name for lane in lanes])
    traces = [
        trace
        for lane, name in zip(lanes, names, strict=True)
        for trace in (*_bars(lane.bars, name, to_ms - from_ms), *_points(lane.points, name, from_ms, to_ms))
    ]
    layout = go.Layout(
        barmode="overlay",
        bargap=0.3,
        hovermode="closest",
        showlegend=False,
        height=_REST_PX + _LANE_PX * max(1, len(lanes)),
        margin={"l": 8, "r": 8, "t": 6, "b": 24},
        xaxis=time_axis(from_ms, to_ms),
        yaxis=lane_axis(names[::-1]).update(automargin=True),
    )
    return plotly_figure(traces, layout)


def standalone_html(figure: Figure) -> str:
    """Return a figure as HTML for a file; Plotly's script must precede it there."""
    drawn = go.Figure([_coloured(trace) for trace in figure["data"]], figure["layout"])
    drawn.update_layout(template="plotly_white", xaxis_title="UTC")
    html: str = plotly.io.to_html(drawn, config=_CONFIG, include_plotlyjs=False, full_html=False)
    return html


def _coloured(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace in the colours of its tone, as `charts.js` colours it on a page."""
    colour = _COLOURS.get(trace["meta"]["tone"], _COLOURS["unknown"])
    marker = dict(trace["marker"]) | {"color": colour}
    return dict(trace) | {"marker": marker, "textfont": {"color": _INK}}


def _bars(bars: Sequence[LaneBar], lane: str, span_ms: int) -> Iterator[go.Bar]:
    for tone in dict.fromkeys(bar.tone for bar in bars):
        shown = [bar for bar in bars if bar.tone == tone]
        yield go.Bar(
            orientation="h",
            name=tone,
            y=[lane] * len(shown),
            base=[bar.from_ms for bar in shown],
            x=[max(bar.to_ms - bar.from_ms, round(span_ms * _NARROWEST), 1) for bar in shown],
            text=[
                _label(bar.label) if bar.to_ms - bar.from_ms > span_ms * _LABEL_ROOM else "" for bar in shown
            ],
            textposition="inside",
            insidetextanchor="start",
            constraintext="none",
            marker=bar_marker("") | {"opacity": 0.5},
            customdata=[plain_label(bar.words) for bar in shown],
            hovertemplate="%{customdata}<extra></extra>",
            meta={"tone": tone, "times": ["base"]},
        )


def _points(points: Sequence[LanePoint], lane: str, from_ms: int, to_ms: int) -> Iterator[go.Scatter]:
    labels = _room_for_labels(points, from_ms, to_ms)
    for tone in dict.fromkeys(point.tone for point in points):
        shown = [(point, label) for point, label in zip(points, labels, strict=True) if point.tone == tone]
        yield go.Scatter(
            mode="markers+text",
            name=tone,
            x=[point.at_ms for point, _ in shown],
            y=[lane] * len(shown),
            text=[label for _, label in shown],
            textposition="middle right",
            marker={"size": 10, "symbol": "diamond", "line": {"width": 1}},
            customdata=[plain_label(point.label) for point, _ in shown],
            hovertemplate="%{x}<br>%{customdata}<extra></extra>",
            meta={"tone": tone, "times": ["x"]},
        )


def _room_for_labels(points: Sequence[LanePoint], from_ms: int, to_ms: int) -> Sequence[str]:
    """Return the label of each point, "" without room before the next point or the end."""
    room = (to_ms - from_ms) * _LABEL_ROOM
    starts = sorted({point.at_ms for point in points})
    following = dict(zip(starts, [*starts[1:], to_ms], strict=False))
    return [_label(point.label) if following[point.at_ms] - point.at_ms >= room else "" for point in points]


def _label(words: str) -> str:
    return plain_label(shorten(words, _LONGEST_LABEL))


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Return shortened names that stay distinct: Plotly joins lanes with the same name."""
    shortened: list[str] = []
    for name in names:
        short = plain_label(shorten(name, _LONGEST_LANE))
        while short in shortened:
            short += "\u200b"
        shortened.append(short)
    return shortened
