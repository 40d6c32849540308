"""Proves the charts: Plotly knows every figure, in the version of the bundle that draws it, and a figure
carries no template."""

import json
from itertools import pairwise
from pathlib import Path

import plotly
import plotly.graph_objects as go
import pytest

from dashboard.history.queries import Bucket
from dashboard.labels.transition import NOTABLE, TRANSITION_STYLES
from dashboard.models import Batch
from dashboard.web.charts import event_figure, figures, query_figures, series_figures
from dashboard.web.charts.event_figure import LaneMark, LaneSpan
from dashboard.web.charts.figures import Bar, Mark
from fenceline.facts import ABORTS, EVERYDAY, TransitionKind
from fenceline.history.time_range import TimeRange
from fenceline.series.histograms import bucket_of
from fenceline.series.points import Extent, Resolution, SeriesBucket
from fenceline.series.reading import (
    HoleReason,
    ReadingPlan,
    SeriesHole,
    SeriesReading,
    SeriesRun,
)
from tests.cases import cases

STATIC = Path(__file__).parents[2] / "dashboard" / "static"
MINUTE_MS = 60_000
NOW_MS = 1_795_000_000_000
SHEETS = "".join(path.read_text() for path in (STATIC / "css").glob("*.css"))


def minutes(*counts: dict[TransitionKind, int]) -> list[Bucket]:
    return [Bucket(NOW_MS + n * MINUTE_MS, MINUTE_MS, each) for n, each in enumerate(counts)]


EVERYTHING = {kind: n + 1 for n, kind in enumerate(TransitionKind)}
BARS = [
    Bar(NOW_MS, NOW_MS + 4, TransitionKind.COMMIT, "commit"),
    *(Bar(NOW_MS + 500, NOW_MS + 900, kind, "<b>a & b</b>") for kind in sorted(ABORTS)),
    Bar(NOW_MS + 5_000, NOW_MS + 60_000, None, "Ongoing"),
]
MARKS = [
    Mark(NOW_MS + 100, kind, f"{kind}") for kind in (*NOTABLE, TransitionKind.INIT, TransitionKind.BASELINE)
]
BATCHES = [
    Batch(
        batch_id=40 + n, input_rows=n, processed_rate=rate, durations={"addBatch": 5, "triggerExecution": 9}
    )
    for n, rate in enumerate([None, 0.5, 12_000.0])
]
RANGE = TimeRange(NOW_MS, NOW_MS + 60 * MINUTE_MS)


def reading(*runs: tuple[int, list[int | None]], columns: int = 2, hole: bool = True) -> SeriesReading:
    """A range in which each run begins after so many minutes, and has a step each minute."""
    steps = [
        [
            SeriesBucket(NOW_MS + (start + n) * MINUTE_MS, (Extent(value, value, value),) * columns)
            for n, value in enumerate(values)
        ]
        for start, values in runs
    ]
    holes = [SeriesHole(NOW_MS + 20 * MINUTE_MS, NOW_MS + 30 * MINUTE_MS, HoleReason.NOT_OBSERVED)]
    return SeriesReading(
        ReadingPlan(Resolution.MINUTE, MINUTE_MS),
        RANGE.from_ms,
        RANGE.to_ms,
        [SeriesRun(each, each[-1].at_ms + MINUTE_MS) for each in steps],
        holes if hole else [],
    )


BROKEN = reading((0, [1, 5, None]), (30, [7, 7]))
LAG = reading((0, [1, 5_000, 90_000]), columns=4, hole=False)
LANES = event_figure.event_figure(
    [
        event_figure.backlog_panel(
            [("", reading((0, [1, 2]), columns=3)), ("<i>", reading((9, [7]), columns=3))]
        ),
        event_figure.lag_panel([("<b>billing</b>", LAG), ("b", LAG), ("c", LAG)]),
        event_figure.commit_panel(minutes(EVERYTHING, {})),
    ],
    [
        LaneSpan(NOW_MS, NOW_MS + 5, "critical", "#1", "/incidents/1"),
        LaneSpan(NOW_MS, NOW_MS + 9, "warning", "a", "/transactions/a", event_figure.TRANSACTIONS),
        LaneSpan(NOW_MS, NOW_MS + 4, "ok", "<b>orders & co</b>", "/queries/prod/q", event_figure.BATCHES),
    ],
    [LaneMark(NOW_MS, kind, "info", "<b>x</b>", "/") for kind in event_figure.MARKS],
    from_ms=RANGE.from_ms,
    to_ms=RANGE.to_ms,
)
FIGURES = {
    "offsets": series_figures.partition_figure(BROKEN),
    "lag": series_figures.group_figure(LAG),
    "application": event_figure.ends_figure(
        minutes(EVERYTHING, {}), [{bucket_of(ms): 3 for ms in (4, 900, 70_000)}, {}]
    ),
    "durations of commits": event_figure.duration_histogram({bucket_of(ms): 3 for ms in (0, 900, 70_000)}),
    "nothing known": series_figures.partition_figure(reading()),
    "lanes": LANES,
    "no lanes": event_figure.event_figure([], [], [], from_ms=NOW_MS, to_ms=NOW_MS + 1),
    "durations of a range": query_figures.duration_figure(BATCHES, RANGE),
    "rows of a range": query_figures.row_figure(BATCHES, {40: 0, 41: None, 42: 2}, RANGE),
    "strip": figures.activity_strip(minutes(EVERYTHING, {}, {TransitionKind.COMMIT: 12_000})),
    "timeline": figures.timeline_figure(BARS, MARKS, now_ms=NOW_MS + 60_000),
    "one instant": figures.timeline_figure([], MARKS[:1], now_ms=NOW_MS),
    "open only": figures.timeline_figure([Bar(NOW_MS, NOW_MS, None, "open")], [], now_ms=NOW_MS),
    "durations": query_figures.duration_figure(BATCHES),
    "rows": query_figures.row_figure(BATCHES, {40: 0, 41: None, 42: 2}),
    "no batches": query_figures.row_figure([], {}),
}


def test_bundle_sheet_and_wheel_have_one_version() -> None:
    entries = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    versions = {each["version"] for each in entries if each["package"] == "plotly.js-cartesian-dist-min"}
    (bundled,) = versions
    whole = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    assert f"plotly.js v{bundled}" in whole.read_text()[:200]


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_knows_every_word_of_it(name: str) -> None:
    go.Figure(FIGURES[name])


@pytest.mark.parametrize("name", FIGURES)
def test_it_carries_no_template(name: str) -> None:
    assert set(FIGURES[name]) == {"data", "layout"}
    assert "template" not in FIGURES[name]["layout"]


@pytest.mark.parametrize("name", FIGURES)
def test_it_survives_as_json(name: str) -> None:
    assert json.loads(json.dumps(FIGURES[name], allow_nan=False)) == FIGURES[name]


@pytest.mark.parametrize("name", FIGURES)
def test_it_needs_no_webgl_and_no_colour_of_its_own(name: str) -> None:
    for trace in FIGURES[name]["data"]:
        assert trace["type"] in ("bar", "scatter")
        assert "color" not in json.dumps(trace["marker"])
        assert f"--{trace['meta']['tone']}:" in SHEETS
        assert all(field in trace for field in trace["meta"]["times"])


def test_kinds_of_one_tone_differ_in_their_pattern() -> None:
    shown = [(TRANSITION_STYLES[kind].tone, TRANSITION_STYLES[kind].pattern) for kind in NOTABLE]
    assert len(set(shown)) == len(shown)


def test_every_kind_has_a_look_a_word_and_a_shape() -> None:
    assert set(TRANSITION_STYLES) == set(TransitionKind)
    assert set(NOTABLE) == set(TransitionKind) - EVERYDAY
    assert len({look.words for look in TRANSITION_STYLES.values()}) == len(TRANSITION_STYLES)
    assert all(f".mark-{kind}" in SHEETS for kind in TransitionKind)


def test_a_strip_counts_each_notable_kind_at_most_once() -> None:
    kinds = [kind for _, some, _ in figures.STRIP for kind in some]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) >= ABORTS


def test_a_short_transaction_can_still_be_seen() -> None:
    traces = [trace for trace in FIGURES["timeline"]["data"] if trace["type"] == "bar"]
    start, end = FIGURES["timeline"]["layout"]["xaxis"]["range"]
    assert min(min(trace["x"]) for trace in traces) >= (end - start) // 400


def test_words_in_labels_are_words() -> None:
    words = [said for trace in FIGURES["timeline"]["data"] for said in trace["customdata"]]
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in words
    assert not any("<" in said for said in words)


def test_a_line_breaks_where_nothing_is_known() -> None:
    line = next(trace for trace in FIGURES["offsets"]["data"] if trace["name"] == "LSO")
    at = [(x - NOW_MS) // MINUTE_MS for x in line["x"]]
    assert list(zip(at, line["y"], strict=True)) == [
        (0, 1), (1, 5), (2, None), (3, None), (3, None), (30, 7), (31, 7), (32, 7), (32, None),
    ]  # fmt: skip
    (area,) = [trace for trace in FIGURES["offsets"]["data"] if trace["name"] == "not known"][:1]
    assert {(x - NOW_MS) // MINUTE_MS for x in area["x"]} == {20, 30}
    assert not [trace for trace in FIGURES["lag"]["data"] if trace["name"] == "not known"]


def test_a_peak_is_drawn_in_its_step_and_not_behind_it() -> None:
    step = SeriesBucket(NOW_MS, (Extent(0, 0, 0), Extent(0, 900, 3)))
    plan = ReadingPlan(Resolution.DETAIL, 10_000)
    run = SeriesRun([step], NOW_MS + 60_000)
    found = SeriesReading(plan, NOW_MS, NOW_MS + 60_000, [run], [])
    line = series_figures.peak_line(found, 1)
    assert [x - NOW_MS for x in line[0]] == [0, 10_000, 60_000, 60_000]
    assert line[1] == [900, 3, 3, None]


@cases((900, "s"), (119_000, "s"), (120_000, "min"), (8_000_000, "h"))
def test_ages_have_the_unit_that_fits(greatest_ms: int, unit: str) -> None:
    assert series_figures.scale_of(reading((0, [greatest_ms]), columns=4), 2)[1] == unit


def test_panels_are_side_by_side_below_the_lanes_and_zoom_with_them() -> None:
    layout = LANES["layout"]
    panels = [layout[f"xaxis{number}"] for number in (2, 3, 4)]
    assert all(one["domain"][1] < other["domain"][0] for one, other in pairwise(panels))
    assert {panel["matches"] for panel in panels} == {"x"}
    assert all(layout[f"yaxis{number}"]["domain"][1] < layout["yaxis"]["domain"][0] for number in (2, 3, 4))
    assert layout["yaxis"]["categoryarray"] == list(event_figure.LANES[::-1])


def test_the_last_mark_of_a_rare_lane_is_labelled_towards_the_middle() -> None:
    marks = [LaneMark(NOW_MS + n, "alert", "info", f"alert {n}", "/") for n in range(4)]
    marks += [
        LaneMark(NOW_MS + n, kind, "info", f"{kind} {n}", "/") for n, kind in ((1, "fence"), (9, "timeout"))
    ]
    drawn = event_figure.event_figure([], [], marks, from_ms=NOW_MS, to_ms=NOW_MS + 10)["data"]
    labels = [
        (text, side)
        for trace in drawn
        for text, side in zip(trace["text"], trace["textposition"], strict=True)
    ]
    assert [label for label in labels if label[0]] == [("timeout 9", "middle left")]


def test_what_a_user_wrote_is_no_markup_in_a_label() -> None:
    drawn = json.dumps(LANES)
    assert "<b>" not in drawn
    assert "<i>" not in drawn
