"""Proves that ages are measured by the local clock, whatever clock stamped a record: a delay is no skew."""

import random

import pytest

from fenceline.kafka.clock_skew import (
    LEAST_MS,
    WINDOW_MS,
    Offset,
    difference_ms,
    follow_offset,
    start_ms,
    to_local_ms,
)

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("number", "stamped", "ahead", "since", "age", "why"),
    [
        (1, -60_000, 0, -HOUR_MS, 60_000, "clocks agree"),
        (2, -60_000 + HOUR_MS, -HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour ahead"),
        (3, -60_000 - HOUR_MS, HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour behind"),
        (4, -60_000, None, -HOUR_MS, 60_000, "its clock is not known: its stamp is all there is"),
        (5, -60_000 - HOUR_MS, None, -30_000, 30_000, "not known, and it was there when we came"),
        (6, -60_000 + HOUR_MS, None, -30_000, None, "a start in the future is no age"),
        (7, -100, 250, -HOUR_MS, 100, "so little is the time it took to read a record, not a clock"),
        (8, -60_000, None, None, 60_000, "from a coordinator's list: no position to hold it against"),
        (9, None, 0, -HOUR_MS, None, "a record without a start"),
        (10, 4_000, -LEAST_MS, -HOUR_MS, 0, "a coordinator a little ahead: never a start in the future"),
        (11, -60_000 - HOUR_MS, HOUR_MS + 61_000, -HOUR_MS, 0, "measured too large: never in the future"),
    ],
)
def test_start(
    number: int, stamped: int | None, ahead: int | None, since: int | None, age: int | None, why: str
) -> None:
    began = start_ms(
        None if stamped is None else NOW_MS + stamped,
        now_ms=NOW_MS,
        ahead_ms=ahead,
        since_ms=None if since is None else NOW_MS + since,
    )
    assert (None if began is None else NOW_MS - began) == age, f"case {number}: {why}"


def test_a_converted_instant_is_never_in_the_future() -> None:
    assert to_local_ms(NOW_MS - HOUR_MS, now_ms=NOW_MS, ahead_ms=HOUR_MS - 5) == NOW_MS - 5
    assert to_local_ms(NOW_MS + 5, now_ms=NOW_MS, ahead_ms=None) == NOW_MS


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (None, 0),
        (264, 0),
        (3_400, 0),
        (LEAST_MS, 0),
        (-LEAST_MS, 0),
        (LEAST_MS + 1, LEAST_MS + 1),
        (-HOUR_MS, -HOUR_MS),
    ],
)
def test_a_difference_of_some_seconds_is_no_difference(measured: int | None, expected: int) -> None:
    assert difference_ms(measured) == expected


def measured_offset(*steps: tuple[int, int]) -> int:
    """Return the offset after records came at these instants, so far behind the local clock."""
    offset: Offset | None = None
    for at_ms, ahead_ms in steps:
        offset = follow_offset(offset, ahead_ms, NOW_MS + at_ms)
    assert offset is not None
    return offset.ahead_ms


def test_the_smallest_difference_is_used() -> None:
    assert measured_offset((0, 3_400), (1_000, 264), (2_000, 900)) == 264
    assert measured_offset((0, 264), (WINDOW_MS, 900)) == 264, "the last record before counts still"
    assert measured_offset((0, -HOUR_MS + 3_400), (900, -HOUR_MS + 20)) == -HOUR_MS + 20


def test_a_clock_that_was_set_is_followed() -> None:
    assert measured_offset((0, 264), (1_000, -HOUR_MS)) == -HOUR_MS, "back: no delay explains it"
    ahead = [(at, HOUR_MS + 40) for at in range(1_000, 2 * WINDOW_MS + 2_000, 1_000)]
    assert measured_offset((0, 264), *ahead[:10]) == 264, "ahead: at first that may be a delay"
    assert measured_offset((0, 264), *ahead) == HOUR_MS + 40, "but not for so long"


@pytest.mark.parametrize("true_ms", [-HOUR_MS, -30_000, -300, 0, 300, 30_000, HOUR_MS])
def test_a_delay_is_never_measured_as_clock_skew_and_clock_skew_is_never_missed(true_ms: int) -> None:
    """Whatever the delays are, the offset is never too small, and too large by the least of them at most."""
    dice = random.Random(true_ms)
    for _ in range(300):
        delays = [int(dice.expovariate(1 / 700)) for _ in range(dice.randrange(1, 40))]
        found = measured_offset(*((n * 500, true_ms + delay) for n, delay in enumerate(delays)))
        assert true_ms + min(delays) <= found <= true_ms + min(delays[-20:])
