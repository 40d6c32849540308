"""Proves the charts: Plotly knows every figure, in the version of the bundle that draws it, and a figure
carries no template."""

from __future__ import annotations

import json
from pathlib import Path

import plotly
import plotly.graph_objects as go
import pytest

from dashboard.history.buckets import Bucket
from dashboard.labels.transition import LOOKS, NOTABLE
from dashboard.models import Batch
from dashboard.web.charts import figures, query_figures
from dashboard.web.charts.figures import Bar, Mark
from fenceline.facts import ABORTS, EVERYDAY, TransitionKind

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
FIGURES = {
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
    shown = [(LOOKS[kind].tone, LOOKS[kind].pattern) for kind in NOTABLE]
    assert len(set(shown)) == len(shown)


def test_every_kind_has_a_look_a_word_and_a_shape() -> None:
    assert set(LOOKS) == set(TransitionKind)
    assert set(NOTABLE) == set(TransitionKind) - EVERYDAY
    assert len({look.words for look in LOOKS.values()}) == len(LOOKS)
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
