"""Proves which ranges of time an address gives, and which error is given for unreadable ones."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.history.time_range import (
    LAST,
    LONGEST_MS,
    InvalidTimeRange,
    TimeRange,
    read_instant,
    read_time_range,
)

NOW = 1_795_000_000_000
MINUTE = 60_000


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()


def test_without_instants_the_range_is_relative_to_now() -> None:
    for last, length_ms in LAST.items():
        found = read_time_range("", "", last, now_ms=NOW)
        assert found == TimeRange(NOW - length_ms, NOW, live=True)
        assert found.length_ms == length_ms


def test_a_range_without_an_end_follows_the_clock() -> None:
    assert read_time_range(iso(NOW - MINUTE), "", "1h", now_ms=NOW) == TimeRange(NOW - MINUTE, NOW, live=True)


@given(
    st.integers(NOW - LONGEST_MS, NOW - 1), st.integers(1, LONGEST_MS), st.sampled_from(["Z", "+00:00", ""])
)
def test_both_instants_are_kept_to_the_millisecond(from_ms: int, length_ms: int, zone: str) -> None:
    start, end = (iso(ms).replace("+00:00", zone) for ms in (from_ms, from_ms + length_ms))
    found = read_time_range(start, end, "1h", now_ms=NOW)
    assert found == TimeRange(from_ms, from_ms + length_ms, live=False)


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("2026-11-24", "2026-11-24T00:00:00+00:00"),
        ("2026-11-24T02:00", "2026-11-24T02:00:00+00:00"),
        ("2026-11-24T02:00:00+02:00", "2026-11-24T00:00:00+00:00"),
        # `+` in an address is a space.
        ("2026-11-24T02:00:00 02:00", "2026-11-24T00:00:00+00:00"),
        (" 2026-11-24T02:00:00Z ", "2026-11-24T02:00:00+00:00"),
    ],
)
def test_instants_are_iso_8601(text: str, like: str) -> None:
    assert iso(read_instant(text)) == like


@pytest.mark.parametrize(
    ("start", "end", "last", "says"),
    [
        (iso(NOW), iso(NOW - 1), "1h", "from: .*is not before to"),
        (iso(NOW - 1), iso(NOW - 1), "1h", "from: .*is not before to"),
        (iso(NOW + 1), "", "1h", "from: .*is not before now"),
        (iso(NOW + 1), iso(NOW + 2), "1h", "from: .*is not before now"),
        (iso(NOW - LONGEST_MS - 1), iso(NOW), "1h", "to: the range is longer than 400 days"),
        ("", iso(NOW), "1h", "from: missing"),
        ("soon", "", "1h", "from: “soon” is no instant such as"),
        (iso(NOW - 1), "x" * 900, "1h", "to: “x{40}” is no instant"),
        ("1969-07-20", "", "1h", "from: .*before 1970"),
        ("9999-12-31T23:59:59-14:00", "", "1h", "from: "),
        ("", "", "2y", "last: “2y” is none of 15m, 1h"),
    ],
)
def test_an_unusable_range_is_refused_with_a_reason(start: str, end: str, last: str, says: str) -> None:
    with pytest.raises(InvalidTimeRange, match=says):
        read_time_range(start, end, last, now_ms=NOW)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_read_or_refused(start: str, end: str) -> None:
    with suppress(InvalidTimeRange):
        found = read_time_range(start, end, "1h", now_ms=NOW)
        assert found.from_ms < found.to_ms
