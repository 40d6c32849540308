"""Proves what follows from a query's recent batches, by numbered cases: usual duration, a stalled watermark,
two writers.
"""

from collections.abc import Sequence

import pytest

from fenceline.spark.queries import (
    BatchPast,
    Stall,
    interleaved_runs,
    late_generation,
    usual_ms,
    watermark_stall,
)

MINUTE_MS = 60_000


def batch(
    number: int, *, run: str = "a", took_ms: int | None = 100, rows: bool = True, watermark: int | None = None
) -> BatchPast:
    return BatchPast(number, run, number * MINUTE_MS, took_ms, rows, watermark)


@pytest.mark.parametrize(
    ("number", "times", "wanted"),
    [
        (1, [100] * 19, None),
        (2, [100] * 20, 100),
        (3, [*range(1, 101)], 99),
        (4, [*range(1, 201)], 198),
        (5, [*[100] * 20, *[None] * 50], 100),
    ],
)
def test_the_usual_duration_is_taken_from_recent_batches(
    number: int, times: Sequence[int | None], wanted: int | None
) -> None:
    found = usual_ms(batch(n, took_ms=took_ms) for n, took_ms in enumerate(times))
    assert found == wanted, f"case {number}"


@pytest.mark.parametrize(
    ("number", "marks", "wanted", "why"),
    [
        (1, [None, None], None, "no watermark at all"),
        (2, [0, 0, 0], None, "none yet"),
        (3, [5, 6, 7], None, "the last one has moved it"),
        (4, [5, 6, 6, 6], Stall(6, 2, 2 * MINUTE_MS), "two batches since it came there"),
        (5, [6, 6, 6], Stall(6, 3, 0), "as far as one can look back"),
        (6, [], None, "nothing is known"),
    ],
)
def test_a_watermark_that_stops_is_stalled(
    number: int, marks: Sequence[int | None], wanted: Stall | None, why: str
) -> None:
    past = [batch(n, watermark=mark) for n, mark in enumerate(marks)]
    assert watermark_stall(past) == wanted, f"case {number}: {why}"


def test_batches_without_input_do_not_count() -> None:
    past = [batch(0, watermark=5), *(batch(n, watermark=6, rows=n % 2 == 0) for n in range(1, 7))]
    assert watermark_stall(past) == Stall(6, 2, 4 * MINUTE_MS)


@pytest.mark.parametrize(
    ("number", "runs", "wanted", "why"),
    [
        (1, ["a", "a", "b", "b"], None, "a restart"),
        (2, ["a", "b", "a"], ("a", "b"), "the first one goes on"),
        (3, ["a", "", "a", "b"], None, "a batch that nobody told of"),
        (4, ["a", "b", "c", "b"], ("b", "c"), "of three"),
        (5, [], None, "nothing is known"),
    ],
)
def test_two_runs_in_turn(number: int, runs: Sequence[str], wanted: tuple[str, str] | None, why: str) -> None:
    assert interleaved_runs(batch(n, run=run) for n, run in enumerate(runs)) == wanted, (
        f"case {number}: {why}"
    )


@pytest.mark.parametrize(
    ("number", "decisions", "wanted"),
    [
        (1, [(1, 10), (1, 20), (2, 30)], None),
        (2, [(1, 10), (2, 20), (1, 30)], (1, 2, 30)),
        (3, [(2, 20), (1, 10)], (1, 2, 10)),
        (4, [], None),
    ],
)
def test_an_older_generation_that_decides(
    number: int, decisions: Sequence[tuple[int, int]], wanted: tuple[int, int, int] | None
) -> None:
    assert late_generation(decisions) == wanted, f"case {number}"
