"""Proves until when a log counts as read, also where the newest end is behind a marker at every moment."""

from __future__ import annotations

from collectors.kafka.reached_ends import ReachedEnds


def test_ends_are_reached_once_and_by_every_partition() -> None:
    ends = ReachedEnds()
    ends.note_ends(100, {0: 5, 1: 7})
    assert ends.take_reached_ms({0: 5, 1: 6}) is None
    assert ends.take_reached_ms({0: 5, 1: 7}) == 100
    assert ends.take_reached_ms({0: 5, 1: 7}) is None
    ends.note_ends(200, {0: 5, 1: 7})
    assert ends.take_reached_ms({0: 5, 1: 7}) == 200


def test_a_partition_whose_newest_end_is_behind_a_marker_is_read_with_the_next_record() -> None:
    ends = ReachedEnds()
    reached = []
    for poll in range(5):
        # A record at 2 n, its marker at 2 n + 1: the last stable offset is 2 n + 2, the next record's.
        ends.note_ends(100 + 100 * poll, {0: 2 * poll + 2})
        reached.append(ends.take_reached_ms({0: 2 * poll + 1}))
    assert reached == [None, 100, 200, 300, 400]


def test_ends_of_other_partitions_are_forgotten() -> None:
    ends = ReachedEnds()
    ends.note_ends(100, {0: 5})
    assert ends.take_reached_ms({0: 4}) is None
    ends.forget_ends()
    ends.note_ends(200, {1: 3})
    assert ends.take_reached_ms({1: 3}) == 200
