"""Proves episodes by numbered cases: what opens one, what was lost, who is released when, when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline.batches import Batch
from fenceline.facts import Kind, TopicPartition
from fenceline.recoveries import (
    RESUMES_WITHIN_MS,
    Ends,
    Episode,
    Held,
    Lost,
    Outcome,
    Since,
    Wait,
    lost_in,
    opens,
    progress,
)

NOW_MS = 1_795_000_000_000
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
NOTHING = Since({}, {}, None)


@pytest.mark.parametrize(
    ("kind", "held", "open_ms", "expected"),
    [
        # 1 The broker's own ends, whatever they held readers for.
        (Kind.TIMEOUT, True, 10, True),
        (Kind.TAKEOVER, True, 10, True),
        (Kind.ADMIN_FENCE, True, None, True),
        (Kind.ABORT, True, 10, True),
        # 2 Nothing was written to: nobody was held.
        (Kind.TAKEOVER, False, 10, False),
        # 3 A client's own abort counts where it held readers beyond the limit.
        (Kind.CLIENT_ABORT, True, 10, False),
        (Kind.CLIENT_ABORT, True, 60_001, True),
        (Kind.CLIENT_ABORT, True, None, False),
        (Kind.SELF_RECOVERY, True, 10, False),
        # 4 What ends nothing opens nothing.
        (Kind.COMMIT, True, 90_000, False),
        (Kind.REINIT, True, 90_000, False),
    ],
)
def test_an_episode_opens_with_an_end_that_nobody_wished(
    kind: Kind, held: bool, open_ms: int | None, expected: bool
) -> None:
    assert opens(kind, held=held, open_ms=open_ms, limit_ms=60_000) is expected


def data(first: int, last: int, epoch: int = 4, producer_id: int = 7) -> Batch:
    return Batch(first, last, producer_id, epoch, True, "", last - first + 1)


def marker(at: int, how: str = "abort", epoch: int = 5, producer_id: int = 7) -> Batch:
    return Batch(at, at, producer_id, epoch, True, how, 1)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        # 1 Two batches and the broker's marker, one epoch higher; another producer's lie between.
        ([data(10, 14), data(15, 15, producer_id=8), data(16, 19), marker(20)], (10, 19, 9)),
        # 2 A committed transaction of the same producer before it is not lost.
        ([data(2, 4), marker(5, "commit", 4), data(6, 6), marker(7)], (6, 6, 1)),
        # 3 The coordinator knew the partition, but nothing was written: nothing is lost.
        ([marker(9)], (None, None, 0)),
        # 4 Protocol 0: several aborts of one epoch; the last one counts.
        ([data(1, 1, 5), marker(2), data(3, 5, 5), marker(6)], (3, 5, 3)),
    ],
)
def test_what_was_lost_is_read_from_the_batches_before_the_marker(
    batches: list[Batch], expected: tuple[int | None, int | None, int]
) -> None:
    assert lost_in(P0, batches, 7, 5) == Lost(*P0, *expected, True)


def test_without_its_marker_nothing_is_said_to_be_lost() -> None:
    assert lost_in(P0, [data(1, 9), marker(10, epoch=4), marker(11, producer_id=8)], 7, 5) is None
    assert lost_in(P0, [data(1, 9)._replace(transactional=False), data(10, 11)], 7, 5) is None


EPISODE = Episode(
    opened_ms=NOW_MS,
    complete=True,
    held=(Held(P0, 100, 119), Held(P1, 7, 7)),
    waited=(Wait("billing", *P0, 100, NOW_MS - 5_000),),
)
PASSED = {P0: Ends(160, NOW_MS + 900), P1: Ends(9, NOW_MS + 1_400)}


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({P0: Ends(160, NOW_MS + 900)}, "one partition is unseen"),
        ({**PASSED, P0: Ends(119, NOW_MS + 900)}, "the LSO stands at its last record"),
        ({**PASSED, P1: Ends(7, NOW_MS + 900)}, "the LSO has not passed it in the other one"),
    ],
)
def test_readers_are_held_until_the_lso_has_passed_everywhere(
    ends: dict[TopicPartition, Ends | None], why: str
) -> None:
    held = progress(EPISODE, Since(ends, {}, None), now_ms=NOW_MS + 2_000)
    assert held.released_ms is None, why


def test_nothing_is_released_before_all_that_was_held_is_known() -> None:
    unknown = replace(EPISODE, complete=False)
    assert progress(unknown, Since(PASSED, {}, None), now_ms=NOW_MS).released_ms is None


def test_the_release_counts_what_became_readable() -> None:
    released = progress(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    assert (released.released_ms, released.records_released) == (NOW_MS + 1_400, 62)
    assert released.outcome is Outcome.OPEN


def test_a_partition_that_is_gone_holds_nobody() -> None:
    released = progress(EPISODE, Since({**PASSED, P1: None}, {}, None), now_ms=NOW_MS + 2_000)
    assert (released.released_ms, released.records_released) == (NOW_MS + 900, 60)


def test_a_group_has_read_on_when_its_own_offset_moved() -> None:
    still = progress(EPISODE, Since(PASSED, {("billing", P0): 100}, None), now_ms=NOW_MS + 2_000)
    assert still.waited[0].resumed_ms is None
    moved = progress(still, Since(PASSED, {("billing", P0): 101}, None), now_ms=NOW_MS + 3_000)
    assert moved.waited[0].resumed_ms == NOW_MS + 3_000
    later = progress(moved, Since(PASSED, {("billing", P0): 150}, None), now_ms=NOW_MS + 9_000)
    assert later.waited == moved.waited


def test_it_is_over_when_somebody_committed_again() -> None:
    since = Since(PASSED, {}, ("payments-7", NOW_MS + 5_000))
    over = progress(EPISODE, since, now_ms=NOW_MS + 6_000)
    assert (over.outcome, over.closed_ms, over.resumed_by) == (
        Outcome.RESUMED,
        NOW_MS + 5_000,
        "payments-7",
    )


def test_a_commit_alone_ends_nothing_while_readers_are_held() -> None:
    since = Since({}, {}, ("payments-7", NOW_MS + 5_000))
    held = progress(EPISODE, since, now_ms=NOW_MS + 6_000)
    assert (held.outcome, held.resumed_ms, held.closed_ms) == (Outcome.OPEN, NOW_MS + 5_000, None)


def test_ten_minutes_without_a_commit_are_released_not_resumed() -> None:
    released = progress(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    waits = progress(released, NOTHING, now_ms=NOW_MS + 1_400 + RESUMES_WITHIN_MS)
    assert waits.outcome is Outcome.OPEN
    over = progress(released, NOTHING, now_ms=NOW_MS + 1_401 + RESUMES_WITHIN_MS)
    assert over.outcome is Outcome.NOT_RESUMED


def test_what_is_not_seen_again_for_a_day_is_said_to_be_unseen() -> None:
    assert progress(EPISODE, NOTHING, now_ms=NOW_MS + 86_400_001).outcome is Outcome.UNSEEN


def test_what_is_over_stays_as_it_was() -> None:
    over = progress(EPISODE, Since(PASSED, {}, ("payments-7", NOW_MS)), now_ms=NOW_MS + 2_000)
    assert progress(over, Since(PASSED, {}, ("other", NOW_MS + 9)), now_ms=NOW_MS + 99_000_000) == over


def test_a_release_seen_before_its_cause_by_our_clock_counts_from_the_abort() -> None:
    """What a coordinator stamps is known in our clock to about a second."""
    early = {P0: Ends(160, NOW_MS - 300), P1: Ends(9, NOW_MS - 400)}
    assert progress(EPISODE, Since(early, {}, None), now_ms=NOW_MS + 900).released_ms == NOW_MS
