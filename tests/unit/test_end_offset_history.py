"""Proves that the history of ends stays thin and in order, and that the time an end passed an offset lies
between its bounds, whatever was thinned out."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fenceline.kafka.offset_histories import (
    STEPS,
    EndOffset,
    Passed,
    add_end,
    newest_end,
    pack_ends,
    passed_ms,
    thin_ends,
    unpack_ends,
)

NOW_MS = 1_795_000_000_000
SECOND = 1_000


def history_of(points: list[tuple[int, int]]) -> str:
    """The history of a partition that was polled at these instants, with these ends."""
    text, before = "", None
    for at_ms, end in points:
        text = add_end(text, EndOffset(NOW_MS + at_ms, end, end + 5), before)
        before = NOW_MS + at_ms
    return text


def test_it_is_plain_json_oldest_first() -> None:
    text = history_of([(0, 10), (6 * SECOND, 20)])
    assert json.loads(text) == [[NOW_MS, 10, 15], [NOW_MS + 6_000, 20, 25]]
    assert unpack_ends(text) == (EndOffset(NOW_MS, 10, 15), EndOffset(NOW_MS + 6_000, 20, 25))
    assert newest_end(text) == EndOffset(NOW_MS + 6_000, 20, 25)
    assert (unpack_ends(""), newest_end(""), pack_ends([])) == ((), None, "")


def test_a_point_comes_five_seconds_after_the_other_and_only_for_another_end() -> None:
    text = history_of([(0, 10), (1 * SECOND, 11), (4_999, 12)])
    assert unpack_ends(text) == (EndOffset(NOW_MS, 10, 15),)
    assert unpack_ends(history_of([(0, 10), (9 * SECOND, 10)])) == (EndOffset(NOW_MS, 10, 15),)


def test_an_unchanged_end_keeps_its_first_and_last_instant() -> None:
    looks = [(second * SECOND, 10) for second in range(600)]
    text = history_of([*looks, (600 * SECOND, 90)])
    assert [(each.at_ms - NOW_MS, each.lso) for each in unpack_ends(text)][-2:] == [
        (599_000, 10),
        (600_000, 90),
    ]
    # All of the records came within the last second.
    assert passed_ms(unpack_ends(text), 10, committed=True) == Passed(
        NOW_MS + 599_012, NOW_MS + 599_000, NOW_MS + 600_000
    )


def test_when_an_end_passed_an_offset() -> None:
    ends = [
        EndOffset(NOW_MS, 100, 150),
        EndOffset(NOW_MS + 10_000, 200, 150),
        EndOffset(NOW_MS + 20_000, 200, 350),
    ]
    # Offset 100 is the first that the end at 100 has not passed.
    assert passed_ms(ends, 149, committed=True) == Passed(NOW_MS + 5_000, NOW_MS, NOW_MS + 10_000)
    assert passed_ms(ends, 199, committed=True) == Passed(NOW_MS + 10_000, NOW_MS, NOW_MS + 10_000)
    assert passed_ms(ends, 99, committed=True) == Passed(NOW_MS, None, NOW_MS)
    assert passed_ms(ends, 200, committed=True) is None
    assert passed_ms(ends, 249, committed=False) == Passed(NOW_MS + 15_000, NOW_MS + 10_000, NOW_MS + 20_000)
    assert passed_ms([], 1, committed=True) is None


def test_an_hour_of_a_busy_partition_is_a_hundred_points() -> None:
    text = history_of([(second * SECOND, second) for second in range(2 * 3_600)])
    ends = unpack_ends(text)
    last = NOW_MS + 7_199_000
    assert len(ends) <= 130
    assert last - ends[-1].at_ms < 5_000
    recent = [each for each in ends if last - each.at_ms <= 270_000]
    assert max(b.at_ms - a.at_ms for a, b in pairwise(recent)) <= 10_000
    assert 3_600_000 <= last - ends[0].at_ms <= 3_600_000 + 2 * 120_000 + 60_000


GROWTH = st.lists(st.tuples(st.integers(100, 400_000), st.integers(0, 50)), min_size=1, max_size=200)


@given(growth=GROWTH)
def test_an_offset_was_passed_within_the_bounds(growth: list[tuple[int, int]]) -> None:
    at_ms, end, looks = 0, 0, []
    for after_ms, more in growth:
        at_ms, end = at_ms + after_ms, end + more
        looks.append((at_ms, end))
    ends = unpack_ends(history_of(looks))
    assert list(ends) == sorted(ends)
    assert len(ends) < 400
    for offset in range(0, end, max(1, end // 20)):
        found = passed_ms(ends, offset, committed=True)
        first = next(at for at, reached in looks if reached > offset)
        if found is None:
            # It came within the last five seconds that have a point.
            assert first > ends[-1].at_ms - NOW_MS
            continue
        assert (found.earliest_ms or 0) <= found.at_ms <= found.latest_ms
        # The truth is when a look saw it, and that the look before did not.
        assert found.earliest_ms is None or found.earliest_ms - NOW_MS <= first
        assert first <= found.latest_ms - NOW_MS


@given(
    times=st.lists(st.integers(0, 8_000_000), min_size=1, max_size=300, unique=True).map(sorted),
)
def test_thin_keeps_order_the_newest_and_one_that_is_older_than_all(times: list[int]) -> None:
    ends = [EndOffset(at, at, at) for at in times]
    kept = thin_ends(ends, times[-1])
    assert kept == sorted(kept)
    assert kept[-1] == ends[-1]
    oldest = times[-1] - STEPS[-1][0]
    older = [each for each in ends if each.at_ms < oldest]
    assert [each for each in kept if each.at_ms < oldest] == older[-1:]
    assert thin_ends(kept, times[-1]) == kept
