"""Proves recoveries by numbered cases: what opens one, what was lost, when readers are unblocked, when it
ends.
"""

import random
from dataclasses import replace

import pytest

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition, TransitionKind
from fenceline.kafka.coordinator import difference_ms, follow_offset
from fenceline.losses.recoveries import (
    DELETED,
    RECREATED,
    RESUMES_WITHIN_MS,
    Ends,
    Episode,
    Held,
    LostRecords,
    RecoveryOutcome,
    Since,
    TopicNow,
    Wait,
    WrittenTopic,
    advance_episode,
    deletion_reason,
    lost_in,
    opens_episode,
    same_topic,
    unblocked_ms,
)

NOW_MS = 1_795_000_000_000
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
NOTHING = Since({}, {}, None)


@pytest.mark.parametrize(
    ("kind", "held", "open_ms", "expected"),
    [
        # 1 The broker's own ends, whatever they held readers for.
        (TransitionKind.TIMEOUT, True, 10, True),
        (TransitionKind.TAKEOVER, True, 10, True),
        (TransitionKind.ADMIN_FENCE, True, None, True),
        (TransitionKind.ABORT, True, 10, True),
        # 2 Nothing was written to: nobody was held.
        (TransitionKind.TAKEOVER, False, 10, False),
        # 3 A client's own abort counts where it held readers beyond the limit.
        (TransitionKind.CLIENT_ABORT, True, 10, False),
        (TransitionKind.CLIENT_ABORT, True, 60_001, True),
        (TransitionKind.CLIENT_ABORT, True, None, False),
        (TransitionKind.SELF_RECOVERY, True, 10, False),
        # 4 What ends nothing opens nothing.
        (TransitionKind.COMMIT, True, 90_000, False),
        (TransitionKind.REINIT, True, 90_000, False),
    ],
)
def test_a_recovery_opens_after_an_unwanted_end(
    kind: TransitionKind, held: bool, open_ms: int | None, expected: bool
) -> None:
    assert opens_episode(kind, held=held, open_ms=open_ms, limit_ms=60_000) is expected


def data(first: int, last: int, epoch: int = 4, producer_id: int = 7) -> RecordBatch:
    return RecordBatch(first, last, producer_id, epoch, True, "", last - first + 1)


def marker(at: int, how: str = "abort", epoch: int = 5, producer_id: int = 7) -> RecordBatch:
    return RecordBatch(at, at, producer_id, epoch, True, how, 1)


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
    batches: list[RecordBatch], expected: tuple[int | None, int | None, int]
) -> None:
    assert lost_in(P0, batches, 7, 5) == LostRecords(*P0, *expected, True)


def test_without_its_marker_no_record_counts_as_lost() -> None:
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
def test_readers_are_blocked_until_the_lso_has_passed_in_every_partition(
    ends: dict[TopicPartition, Ends | None], why: str
) -> None:
    held = advance_episode(EPISODE, Since(ends, {}, None), now_ms=NOW_MS + 2_000)
    assert held.released_ms is None, why


def test_nothing_is_unblocked_before_all_blocked_partitions_are_known() -> None:
    unknown = replace(EPISODE, complete=False)
    assert advance_episode(unknown, Since(PASSED, {}, None), now_ms=NOW_MS).released_ms is None


def test_records_that_became_readable_are_counted() -> None:
    released = advance_episode(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    assert (released.released_ms, released.records_released) == (NOW_MS + 1_400, 62)
    assert released.outcome is RecoveryOutcome.OPEN


def test_a_recovery_whose_topics_are_all_deleted_is_closed_at_once() -> None:
    deleted = replace(EPISODE, held=(), deleted=True, completed_ms=NOW_MS + 10)
    over = advance_episode(deleted, NOTHING, now_ms=NOW_MS + 2_000)
    assert (over.outcome, over.closed_ms, over.released_ms) == (
        RecoveryOutcome.TOPIC_DELETED,
        NOW_MS + 2_000,
        None,
    )


def test_readers_that_passed_before_the_topic_was_deleted_count_as_unblocked() -> None:
    released = advance_episode(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    gone = advance_episode(replace(released, deleted=True), NOTHING, now_ms=NOW_MS + 3_000)
    assert (gone.outcome, gone.released_ms) == (RecoveryOutcome.OPEN, NOW_MS + 1_400)


@pytest.mark.parametrize(
    ("stamps_ms", "expected", "noticed", "why"),
    [
        ((12, 17), 17, False, "with the last marker"),
        ((12, 650), 650, False, "another transaction blocked them for longer"),
        ((12, 3_000), 1_400, False, "a leader's clock is a little ahead: never after we noticed it"),
        ((3, 7), 10, False, "a leader's clock is a little behind: never before it was decided"),
        ((12, None), 1_400, True, "one log was not read: we know when we noticed it"),
        ((12, 3_600_000), 1_400, True, "a leader's clock is wrong"),
        ((-3_600_000, -3_600_000), 1_400, True, "all of their clocks are wrong"),
    ],
)
def test_the_unblocked_instant_is_that_of_the_markers_or_of_the_poll(
    stamps_ms: tuple[int | None, int | None], expected: int, noticed: bool, why: str
) -> None:
    hour = 3_600_000
    stamps = [None if ms is None else NOW_MS + ms - hour for ms in stamps_ms]
    held = tuple(
        each._replace(marker_ms=ms, unblocked_ms=ms) for each, ms in zip(EPISODE.held, stamps, strict=True)
    )
    episode = replace(EPISODE, held=held, completed_ms=NOW_MS + 10, clock_ms=hour)
    released = advance_episode(episode, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    assert (released.released_ms, released.release_noticed) == (NOW_MS + expected, noticed), why


@pytest.mark.parametrize(
    ("blocked_ms", "expected"), [(0, 900), (1, 1_101)], ids=["alone", "another one blocked them as well"]
)
def test_a_leaders_clock_never_puts_the_unblocked_instant_after_the_next_commit(
    blocked_ms: int, expected: int
) -> None:
    held = tuple(
        each._replace(marker_ms=NOW_MS + 1_100, unblocked_ms=NOW_MS + 1_100 + blocked_ms)
        for each in EPISODE.held
    )
    episode = replace(EPISODE, held=held, completed_ms=NOW_MS + 10)
    for committers in ([("a", NOW_MS + 900)], [None, ("a", NOW_MS + 900)]):
        found = episode
        for committer in committers:
            found = advance_episode(found, Since(PASSED, {}, committer), now_ms=NOW_MS + 2_000)
        assert (found.released_ms, found.resumed_ms) == (NOW_MS + expected, NOW_MS + 900)


def test_a_group_is_consuming_again_when_its_own_offset_moved() -> None:
    still = advance_episode(EPISODE, Since(PASSED, {("billing", P0): 100}, None), now_ms=NOW_MS + 2_000)
    assert still.waited[0].resumed_ms is None
    moved = advance_episode(still, Since(PASSED, {("billing", P0): 101}, None), now_ms=NOW_MS + 3_000)
    assert moved.waited[0].resumed_ms == NOW_MS + 3_000
    later = advance_episode(moved, Since(PASSED, {("billing", P0): 150}, None), now_ms=NOW_MS + 9_000)
    assert later.waited == moved.waited


def test_a_recovery_ends_with_the_next_commit() -> None:
    since = Since(PASSED, {}, ("payments-7", NOW_MS + 5_000))
    over = advance_episode(EPISODE, since, now_ms=NOW_MS + 6_000)
    assert (over.outcome, over.closed_ms, over.resumed_by) == (
        RecoveryOutcome.RESUMED,
        NOW_MS + 5_000,
        "payments-7",
    )


def test_a_commit_does_not_end_a_recovery_while_readers_are_blocked() -> None:
    since = Since({}, {}, ("payments-7", NOW_MS + 5_000))
    held = advance_episode(EPISODE, since, now_ms=NOW_MS + 6_000)
    assert (held.outcome, held.resumed_ms, held.closed_ms) == (RecoveryOutcome.OPEN, NOW_MS + 5_000, None)


def test_ten_minutes_without_a_commit_end_as_unblocked_without_its_producer() -> None:
    released = advance_episode(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    waits = advance_episode(released, NOTHING, now_ms=NOW_MS + 1_400 + RESUMES_WITHIN_MS)
    assert waits.outcome is RecoveryOutcome.OPEN
    over = advance_episode(released, NOTHING, now_ms=NOW_MS + 1_401 + RESUMES_WITHIN_MS)
    assert over.outcome is RecoveryOutcome.NOT_RESUMED


def test_a_recovery_without_visibility_for_a_day_ends_as_unobserved() -> None:
    assert advance_episode(EPISODE, NOTHING, now_ms=NOW_MS + 86_400_001).outcome is RecoveryOutcome.UNSEEN


def test_an_ended_recovery_does_not_change() -> None:
    over = advance_episode(EPISODE, Since(PASSED, {}, ("payments-7", NOW_MS)), now_ms=NOW_MS + 2_000)
    assert advance_episode(over, Since(PASSED, {}, ("other", NOW_MS + 9)), now_ms=NOW_MS + 99_000_000) == over


def test_an_unblocking_observed_before_its_cause_counts_from_the_abort() -> None:
    """A coordinator's timestamp is known in the local clock to about a second."""
    early = {P0: Ends(160, NOW_MS - 300), P1: Ends(9, NOW_MS - 400)}
    assert advance_episode(EPISODE, Since(early, {}, None), now_ms=NOW_MS + 900).released_ms == NOW_MS


def with_timestamp(batch: RecordBatch, ms: int) -> RecordBatch:
    return batch._replace(max_timestamp_ms=NOW_MS + ms)


MINE = [with_timestamp(data(10, 14), 0), with_timestamp(marker(20), 500)]


@pytest.mark.parametrize(
    ("others", "expected", "why"),
    [
        ([], 500, "its own marker"),
        (
            [data(12, 13, producer_id=8), with_timestamp(marker(30, "commit", producer_id=8), 900)],
            900,
            "begun among them",
        ),
        (
            [data(12, 13, producer_id=8), with_timestamp(marker(18, "commit", producer_id=8), 400)],
            500,
            "it ended before",
        ),
        (
            [data(15, 16, producer_id=8), with_timestamp(marker(30, "commit", producer_id=8), 900)],
            500,
            "begun behind them",
        ),
        (
            [with_timestamp(marker(30, "abort", producer_id=8), 900)],
            900,
            "one that began before what was read",
        ),
        (
            [
                with_timestamp(marker(5, "abort", producer_id=8), 10),
                data(16, 16, producer_id=8),
                with_timestamp(marker(30, producer_id=8), 900),
            ],
            500,
            "its earlier one ended before, its next one began behind them",
        ),
        ([data(12, 13, producer_id=8)._replace(transactional=False)], 500, "not in a transaction"),
    ],
)
def test_other_transactions_may_block_the_same_records(
    others: list[RecordBatch], expected: int, why: str
) -> None:
    batches = sorted([*MINE, *others], key=lambda each: each.first)
    lost = lost_in(P0, batches, 7, 5)
    assert lost is not None
    assert unblocked_ms(lost, batches, 7) == NOW_MS + expected, why


def test_without_timestamps_the_unblocked_instant_is_unknown() -> None:
    batches = [data(10, 14), marker(20)]
    lost = lost_in(P0, batches, 7, 5)
    assert lost is not None
    assert unblocked_ms(lost, batches, 7) is None


RANGE = LostRecords(*P0, 10, 14, 5, True)
EMPTY = LostRecords(*P0, None, None, 0, True)


@pytest.mark.parametrize(
    ("topic", "now", "expected"),
    [
        (WrittenTopic("payments", "a", True), TopicNow("a"), ""),
        (WrittenTopic("payments", "a", True), TopicNow("b"), RECREATED),
        (WrittenTopic("payments", "a", True), TopicNow(deleted=True), DELETED),
        (WrittenTopic("payments"), TopicNow(deleted=True), DELETED),
        (WrittenTopic("payments"), TopicNow("b"), ""),
        (WrittenTopic("payments", "a", True), TopicNow(hidden="no right"), ""),
    ],
)
def test_a_topic_with_another_id_is_another_topic(topic: WrittenTopic, now: TopicNow, expected: str) -> None:
    assert deletion_reason(topic, now) == expected


@pytest.mark.parametrize(
    ("lost", "topic", "now", "sure", "why"),
    [
        (RANGE, WrittenTopic("payments", "a", True), TopicNow("a"), True, "the same topic all the time"),
        (
            RANGE,
            WrittenTopic("payments", "a"),
            TopicNow("a"),
            True,
            "its records and its marker are in this log",
        ),
        (EMPTY, WrittenTopic("payments", "a", True), TopicNow("a"), True, "the same topic all the time"),
        (
            EMPTY,
            WrittenTopic("payments", "a"),
            TopicNow("a"),
            False,
            "a new topic has the marker and no records",
        ),
        (RANGE, WrittenTopic("payments"), TopicNow(hidden="no right"), False, "its id may not be seen"),
        (RANGE, WrittenTopic("payments", "a", True), TopicNow(), False, "the broker has no topic ids"),
    ],
)
def test_a_count_is_certain_only_if_the_topic_is_the_same(
    lost: LostRecords, topic: WrittenTopic, now: TopicNow, sure: bool, why: str
) -> None:
    found = same_topic(lost, topic, now)
    assert (found.sure, bool(found.note)) == (sure, not sure), why
    assert found[:5] == lost[:5]


def test_a_more_precise_note_is_kept() -> None:
    bounds = LostRecords(*P0, 10, None, None, False, "no right to read it")
    assert same_topic(bounds, WrittenTopic("payments"), TopicNow("a")) == bounds


@pytest.mark.parametrize("offset_ms", [0, 300, -300, 4_000, -4_000, 7_000, -7_000, 3_600_000, -3_600_000])
def test_instants_are_in_order_and_durations_true_for_any_delay_and_any_clock(offset_ms: int) -> None:
    """A row is moved as a whole, so what lies between two records is what their coordinator reports."""
    dice = random.Random(offset_ms)
    for _ in range(200):
        true = [NOW_MS]
        for most in (50, 2_000, 90_000):
            true.append(true[-1] + dice.randrange(most))
        offset = None
        for _ in range(dice.randrange(1, 5)):
            offset = follow_offset(offset, -offset_ms + dice.randrange(5_000), NOW_MS)
        assert offset is not None
        shift_ms = difference_ms(offset.ahead_ms)
        stamped = [ms + offset_ms for ms in true]
        opened, completed, _, resumed = (ms + shift_ms for ms in stamped)
        notice_ms = true[2] + dice.randrange(8_000)
        for marker_ms in (stamped[2], None):
            held = tuple(each._replace(marker_ms=marker_ms, unblocked_ms=marker_ms) for each in EPISODE.held)
            episode = replace(EPISODE, opened_ms=opened, completed_ms=completed, clock_ms=shift_ms, held=held)
            ends = dict.fromkeys(PASSED, Ends(200, notice_ms))
            found = advance_episode(episode, Since(ends, {}, ("a", resumed)), now_ms=notice_ms + 900)
            assert found.released_ms is not None
            assert found.closed_ms is not None
            assert opened <= completed <= found.released_ms <= found.closed_ms
            assert resumed <= found.closed_ms
            assert resumed - opened == true[3] - true[0]
            late_ms = found.released_ms - opened - (true[2] - true[0])
            if not found.release_noticed:
                assert late_ms <= 0, "never longer than it took"
                assert found.released_ms <= resumed
            else:
                assert late_ms <= notice_ms - true[2] + 5_000, "by the time until it was noticed"
            if abs(offset_ms) <= 5_000 and marker_ms is not None and opened <= true[0]:
                assert late_ms == 0
