"""Proves how figures are worded; which ranges of time an address gives; and that ages are measured by the
local clock, whatever clock stamped a record: a delay is no skew."""

import random
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.web.pages.system import setting_labels
from fenceline.formatting import count_noun, error_line, format_clock, format_duration, shorten
from fenceline.history.time_range import (
    LAST,
    LONGEST_MS,
    InvalidTimeRange,
    TimeRange,
    read_instant,
    read_time_range,
)
from fenceline.kafka.coordinator import (
    LEAST_MS,
    WINDOW_MS,
    Offset,
    difference_ms,
    follow_offset,
    start_ms,
    to_local_ms,
)
from tests.cases import cases


@cases(
    (-5, "0 ms"),
    (0, "0 ms"),
    (999, "999 ms"),
    (1_000, "1 s"),
    (2_149, "2.1 s"),
    (9_999, "10 s"),
    (10_000, "10 s"),
    (59_999, "59 s"),
    (60_000, "1 min"),
    (842_000, "14 min 2 s"),
    (3_600_000, "1 h"),
    (11_100_000, "3 h 5 min"),
    (187_200_000, "2 d 4 h"),
    (2_147_483_647, "24 d 20 h"),
)
def test_duration(ms: int, words: str) -> None:
    assert format_duration(ms) == words


def test_counts_clocks_and_errors_have_their_words() -> None:
    assert [count_noun(n, "record") for n in (0, 1, 1_204)] == ["0 records", "1 record", "1,204 records"]
    assert [count_noun(n, "batch") for n in (1, 2)] == ["1 batch", "2 batches"]
    assert [count_noun(n, "query") for n in (1, 2)] == ["1 query", "2 queries"]
    assert format_clock(1_700_000_000_123) == "22:13:20 UTC"
    assert error_line(OSError(" libjvm:\n  not found\n")) == "libjvm: not found"
    assert error_line(LookupError("x" * 1_000)) == "x" * 300
    assert error_line(ValueError()) == "no reason given"


@cases(
    ("orders-0", 8, "orders-0"),
    ("orders_enriched-1204", 13, "orders…d-1204"),
    ("orders_enriched-1204", 12, "order…d-1204"),
    ("abcdef", 3, "a…f"),
)
def test_a_long_name_is_cut_in_its_middle(name: str, most: int, short: str) -> None:
    assert shorten(name, most) == short
    assert len(short) <= most


@cases(
    ("open_too_long_s", 60.0, ("open too long", "1 min")),
    ("minutes_d", 7.0, ("minutes", "7 d")),
    ("reconcile_every_s", 0.0, ("reconcile every", "never")),
    ("abort_percent", 20.0, ("abort", "20 %")),
    ("batch_slow_factor", 5.0, ("batch slow", "5 times as long as usual")),
    ("blocked_records", 10_000.0, ("blocked records", "10,000")),
)
def test_numbers_of_the_configuration_have_words_and_units(
    name: str, value: float, label: tuple[str, str]
) -> None:
    assert setting_labels({name: value}) == [(name, *label)]


NOW_MS = 1_795_000_000_000
MINUTE = 60_000


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()


def test_without_instants_the_range_is_relative_to_now_and_without_an_end_it_follows_the_clock() -> None:
    for last, length_ms in LAST.items():
        found = read_time_range("", "", last, now_ms=NOW_MS)
        assert found == TimeRange(NOW_MS - length_ms, NOW_MS, live=True)
        assert found.length_ms == length_ms
    begun = read_time_range(iso(NOW_MS - MINUTE), "", "1h", now_ms=NOW_MS)
    assert begun == TimeRange(NOW_MS - MINUTE, NOW_MS, live=True)


@given(
    st.integers(NOW_MS - LONGEST_MS, NOW_MS - 1),
    st.integers(1, LONGEST_MS),
    st.sampled_from(["Z", "+00:00", ""]),
)
def test_both_instants_are_kept_to_the_millisecond(from_ms: int, length_ms: int, zone: str) -> None:
    start, end = (iso(ms).replace("+00:00", zone) for ms in (from_ms, from_ms + length_ms))
    found = read_time_range(start, end, "1h", now_ms=NOW_MS)
    assert found == TimeRange(from_ms, from_ms + length_ms, live=False)


@cases(
    ("2026-11-24", "2026-11-24T00:00:00+00:00"),
    ("2026-11-24T02:00", "2026-11-24T02:00:00+00:00"),
    ("2026-11-24T02:00:00+02:00", "2026-11-24T00:00:00+00:00"),
    # `+` in an address is a space.
    ("2026-11-24T02:00:00 02:00", "2026-11-24T00:00:00+00:00"),
    (" 2026-11-24T02:00:00Z ", "2026-11-24T02:00:00+00:00"),
)
def test_instants_are_iso_8601(text: str, like: str) -> None:
    assert iso(read_instant(text)) == like


@cases(
    (iso(NOW_MS), iso(NOW_MS - 1), "1h", "from: .*is not before to"),
    (iso(NOW_MS - 1), iso(NOW_MS - 1), "1h", "from: .*is not before to"),
    (iso(NOW_MS + 1), "", "1h", "from: .*is not before now"),
    (iso(NOW_MS + 1), iso(NOW_MS + 2), "1h", "from: .*is not before now"),
    (iso(NOW_MS - LONGEST_MS - 1), iso(NOW_MS), "1h", "to: the range is longer than 400 days"),
    ("", iso(NOW_MS), "1h", "from: missing"),
    ("soon", "", "1h", "from: “soon” is no instant such as"),
    (iso(NOW_MS - 1), "x" * 900, "1h", "to: “x{40}” is no instant"),
    ("1969-07-20", "", "1h", "from: .*before 1970"),
    ("9999-12-31T23:59:59-14:00", "", "1h", "from: "),
    ("", "", "2y", "last: “2y” is none of 15m, 1h"),
)
def test_an_unusable_range_is_refused_with_a_reason(start: str, end: str, last: str, says: str) -> None:
    with pytest.raises(InvalidTimeRange, match=says):
        read_time_range(start, end, last, now_ms=NOW_MS)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_read_or_refused(start: str, end: str) -> None:
    with suppress(InvalidTimeRange):
        found = read_time_range(start, end, "1h", now_ms=NOW_MS)
        assert found.from_ms < found.to_ms


HOUR_MS = 3_600_000


@cases(
    (-60_000, 0, -HOUR_MS, 60_000, "clocks agree"),
    (-60_000 + HOUR_MS, -HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour ahead"),
    (-60_000 - HOUR_MS, HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour behind"),
    (-60_000, None, -HOUR_MS, 60_000, "its clock is not known: its stamp is all there is"),
    (-60_000 - HOUR_MS, None, -30_000, 30_000, "not known, and it was there when we came"),
    (-60_000 + HOUR_MS, None, -30_000, None, "a start in the future is no age"),
    (-100, 250, -HOUR_MS, 100, "so little is the time it took to read a record, not a clock"),
    (-60_000, None, None, 60_000, "from a coordinator's list: no position to hold it against"),
    (None, 0, -HOUR_MS, None, "a record without a start"),
    (4_000, -LEAST_MS, -HOUR_MS, 0, "a coordinator a little ahead: never a start in the future"),
    (-60_000 - HOUR_MS, HOUR_MS + 61_000, -HOUR_MS, 0, "measured too large: never in the future"),
)
def test_start(stamped: int | None, ahead: int | None, since: int | None, age: int | None, why: str) -> None:
    began = start_ms(
        None if stamped is None else NOW_MS + stamped,
        now_ms=NOW_MS,
        ahead_ms=ahead,
        since_ms=None if since is None else NOW_MS + since,
    )
    assert (None if began is None else NOW_MS - began) == age, why


def test_a_converted_instant_is_never_in_the_future_and_some_seconds_are_no_difference() -> None:
    assert to_local_ms(NOW_MS - HOUR_MS, now_ms=NOW_MS, ahead_ms=HOUR_MS - 5) == NOW_MS - 5
    assert to_local_ms(NOW_MS + 5, now_ms=NOW_MS, ahead_ms=None) == NOW_MS
    for small_ms in (None, 264, 3_400, LEAST_MS, -LEAST_MS):
        assert difference_ms(small_ms) == 0
    for large_ms in (LEAST_MS + 1, -HOUR_MS):
        assert difference_ms(large_ms) == large_ms


def measured_offset(*steps: tuple[int, int]) -> int:
    """Return the offset after records came at these instants, so far behind the local clock."""
    offset: Offset | None = None
    for at_ms, ahead_ms in steps:
        offset = follow_offset(offset, ahead_ms, NOW_MS + at_ms)
    assert offset is not None
    return offset.ahead_ms


def test_the_smallest_difference_is_used_and_a_clock_that_was_set_is_followed() -> None:
    assert measured_offset((0, 3_400), (1_000, 264), (2_000, 900)) == 264
    assert measured_offset((0, 264), (WINDOW_MS, 900)) == 264, "the last record before counts still"
    assert measured_offset((0, -HOUR_MS + 3_400), (900, -HOUR_MS + 20)) == -HOUR_MS + 20
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
