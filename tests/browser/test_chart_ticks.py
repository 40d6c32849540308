"""Proves in Chromium that axes of counts have whole numbers at their ticks, whatever the counts are: no
"500m" takeovers, no tick twice, no batch 41.5; and that what may be a fraction is written as one."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.history.queries import Bucket
from dashboard.models import Batch
from dashboard.web.charts import figures, query_figures
from dashboard.web.charts.figures import Bar, Figure
from fenceline.facts import TransitionKind
from tests.browser.conftest import Server, opening

START_MS, MINUTE_MS = 1_795_000_000_000, 60_000
COUNTS = (0, 1, 2, 3, 4, 5, 7, 11, 101, 1_234, 987_654)
#: Heights at which pages draw charts, and smaller ones.
HEIGHTS = (150, 260)
_SUFFIXES = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_DRAW = """
([figure, height]) => {
  const element = document.getElementById("events-chart");
  return Plotly.react(element, figure.data, { ...figure.layout, height, width: 420 }, {}).then(() => {
    const texts = (name) => [...element.querySelectorAll(`.${name} text`)].map((each) => each.textContent);
    return { x: texts("xtick"), y: texts("ytick"), y2: texts("y2tick") };
  });
}
"""


@pytest.fixture(scope="module")
def page(server: Server, browser: Browser, signed_in: dict[str, Any]) -> Iterator[Page]:
    """A page that has loaded Plotly: what it draws is given by each test."""
    server("reset", "busy", 40)
    with opening(server, browser, signed_in) as opened:
        page = opened("/")
        expect(page.locator("#events-chart .main-svg").first).to_be_attached()
        # The page must not draw its own figure again.
        page.evaluate("document.querySelector('[data-chart]').removeAttribute('data-chart')")
        yield page


def number_of(tick: str, unit: str = "") -> float:
    match = re.fullmatch(rf"([\d,.]+)([kMG]?){re.escape(unit)}", tick)
    assert match, f"the tick {tick!r} is no plain number"
    return float(match[1].replace(",", "")) * _SUFFIXES[match[2]]


def assert_whole(ticks: Sequence[str], what: str, unit: str = "") -> None:
    numbers = [number_of(tick, unit) for tick in ticks]
    # A dozen decimals: 1.2k is 1,200 in floating point, too.
    assert all(abs(number - round(number)) < 1e-6 for number in numbers), (what, ticks)
    assert len(set(ticks)) == len(ticks), (what, "a tick comes twice", ticks)
    assert 0 in numbers, (what, ticks)
    assert len(ticks) >= 2, (what, "one tick gives no scale", ticks)


def buckets(kind: TransitionKind, count: int) -> Sequence[Bucket]:
    return [Bucket(START_MS + n * MINUTE_MS, MINUTE_MS, {kind: count if n == 3 else 0}) for n in range(10)]


def batches(first: int, number: int, **fields: object) -> Sequence[Batch]:
    return [Batch(batch_id=first + n, **fields) for n in range(number)]


def draw(page: Page, figure: Figure, height: int = 150) -> dict[str, list[str]]:
    found: dict[str, list[str]] = page.evaluate(_DRAW, [figure, height])
    return found


def test_both_axes_of_a_strip_have_whole_ticks(page: Page) -> None:
    for kind, axis in ((TransitionKind.COMMIT, "y"), (TransitionKind.TAKEOVER, "y2")):
        for count in COUNTS:
            for height in HEIGHTS:
                ticks = draw(page, figures.activity_strip(buckets(kind, count)), height)
                assert_whole(ticks[axis], f"{count} of {kind} at {height} px")


def test_rows_and_durations_of_batches_have_whole_ticks(page: Page) -> None:
    for count in COUNTS:
        few = batches(40, 5, input_rows=count, durations={"addBatch": count, "triggerExecution": count})
        assert_whole(draw(page, query_figures.row_figure(few, {}))["y"], f"{count} rows")
        if count:
            assert_whole(draw(page, query_figures.duration_figure(few))["y"], f"{count} ms", unit=" ms")


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 13, 100])
def test_each_batch_tick_is_a_batch_and_comes_once(page: Page, number: int) -> None:
    first = 41
    ticks = draw(page, query_figures.duration_figure(batches(first, number, durations={"addBatch": 5})))["x"]
    found = [number_of(tick) for tick in ticks]
    assert found
    assert len(set(found)) == len(found) <= 7
    assert all(first <= each < first + number for each in found)


def test_a_rate_below_one_is_a_plain_fraction(page: Page) -> None:
    slow = batches(0, 3, input_rows=1, processed_rate=0.9)
    ticks = draw(page, query_figures.row_figure(slow, {}))["y2"]
    numbers = [number_of(tick, "/s") for tick in ticks]
    assert any(0 < each < 1 for each in numbers), ticks
    fast = batches(0, 3, input_rows=1, processed_rate=12_000.0)
    assert any(tick.endswith("k/s") for tick in draw(page, query_figures.row_figure(fast, {}))["y2"])


def test_instants_of_a_short_timeline_differ(page: Page) -> None:
    bars = [Bar(START_MS, START_MS + 300, TransitionKind.COMMIT, "commit")]
    ticks = draw(page, figures.timeline_figure(bars, [], now_ms=START_MS + 300))["x"]
    assert len(ticks) > 1
    assert len(set(ticks)) == len(ticks)
