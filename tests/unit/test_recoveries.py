"""Proves recoveries: what opens one, what was lost, when readers are unblocked, when it ends."""

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
from tests.cases import cases

NOW_MS = 1_795_000_000_000
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
NOTHING = Since({}, {}, None)


@cases(
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
)
def test_a_recovery_opens_after_an_unwanted_end(
    kind: TransitionKind, held: bool, open_ms: int | None, expected: bool
) -> None:
    assert opens_episode(kind, held=held, open_ms=open_ms, limit_ms=60_000) is expected


def data(first: int, last: int, epoch: int = 4, producer_id: int = 7) -> RecordBatch:
    return RecordBatch(first, last, producer_id, epoch, True, "", last - first + 1)


def marker(at: int, how: str = "abort", epoch: int = 5, producer_id: int = 7) -> RecordBatch:
    return RecordBatch(at, at, producer_id, epoch, True, how, 1)


@cases(
    # 1 Two batches and the broker's marker, one epoch higher; another producer's lie between.
    ([data(10, 14), data(15, 15, producer_id=8), data(16, 19), marker(20)], (10, 19, 9)),
    # 2 A committed transaction of the same producer before it is not lost.
    ([data(2, 4), marker(5, "commit", 4), data(6, 6), marker(7)], (6, 6, 1)),
    # 3 The coordinator knew the partition, but nothing was written: nothing is lost.
    ([marker(9)], (None, None, 0)),
    # 4 Protocol 0: several aborts of one epoch; the last one counts.
    ([data(1, 1, 5), marker(2), data(3, 5, 5), marker(6)], (3, 5, 3)),
)
def test_what_was_lost_is_read_from_the_batches_before_the_marker(
    batches: list[RecordBatch], expected: tuple[int | None, int | None, int]
) -> None:
    assert lost_in(P0, batches, 7, 5) == LostRecords(*P0, *expected, True)


def test_nothing_is_counted_as_lost_without_its_marker_and_nothing_unblocked_without_timestamps() -> None:
    assert lost_in(P0, [data(1, 9), marker(10, epoch=4), marker(11, producer_id=8)], 7, 5) is None
    assert lost_in(P0, [data(1, 9)._replace(transactional=False), data(10, 11)], 7, 5) is None
    batches = [data(10, 14), marker(20)]
    lost = lost_in(P0, batches, 7, 5)
    assert lost is not None
    assert unblocked_ms(lost, batches, 7) is None


EPISODE = Episode(
    opened_ms=NOW_MS,
    complete=True,
    held=(Held(P0, 100, 119), Held(P1, 7, 7)),
    waited=(Wait("billing", *P0, 100, NOW_MS - 5_000),),
)
PASSED = {P0: Ends(160, NOW_MS + 900), P1: Ends(9, NOW_MS + 1_400)}


RELEASED = advance_episode(EPISODE, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)


def test_readers_are_blocked_until_the_lso_has_passed_in_every_partition() -> None:
    for episode, ends, why in (
        (EPISODE, {P0: PASSED[P0]}, "one partition is unseen"),
        (EPISODE, {**PASSED, P0: Ends(119, NOW_MS + 900)}, "the LSO stands at its last record"),
        (EPISODE, {**PASSED, P1: Ends(7, NOW_MS + 900)}, "the LSO has not passed it in the other one"),
        (replace(EPISODE, complete=False), PASSED, "not all blocked partitions are known"),
    ):
        held = advance_episode(episode, Since(ends, {}, None), now_ms=NOW_MS + 2_000)
        assert held.released_ms is None, why
    readable = (RecoveryOutcome.OPEN, NOW_MS + 1_400, 62)
    assert (RELEASED.outcome, RELEASED.released_ms, RELEASED.records_released) == readable


def test_a_recovery_whose_topics_are_all_deleted_is_closed_at_once_unless_readers_passed_before() -> None:
    deleted = replace(EPISODE, held=(), deleted=True, completed_ms=NOW_MS + 10)
    for episode, now_ms, expected in (
        (deleted, NOW_MS + 2_000, (RecoveryOutcome.TOPIC_DELETED, NOW_MS + 2_000, None)),
        (replace(RELEASED, deleted=True), NOW_MS + 3_000, (RecoveryOutcome.OPEN, None, NOW_MS + 1_400)),
    ):
        over = advance_episode(episode, NOTHING, now_ms=now_ms)
        assert (over.outcome, over.closed_ms, over.released_ms) == expected


@cases(
    ((12, 17), 17, False, "with the last marker"),
    ((12, 650), 650, False, "another transaction blocked them for longer"),
    ((12, 3_000), 1_400, False, "a leader's clock is a little ahead: never after we noticed it"),
    ((3, 7), 10, False, "a leader's clock is a little behind: never before it was decided"),
    ((12, None), 1_400, True, "one log was not read: we know when we noticed it"),
    ((12, 3_600_000), 1_400, True, "a leader's clock is wrong"),
    ((-3_600_000, -3_600_000), 1_400, True, "all of their clocks are wrong"),
)
def test_the_unblocked_instant_is_that_of_the_markers_or_of_the_poll(
    stamps_ms: tuple[int | None, int | None], expected: int, noticed: bool, why: str
) -> None:
    hour = 3_600_000
    stamps = [None if ms is None else NOW_MS + ms - hour for ms in stamps_ms]
    held = tuple(
        part._replace(marker_ms=ms, unblocked_ms=ms) for part, ms in zip(EPISODE.held, stamps, strict=True)
    )
    episode = replace(EPISODE, held=held, completed_ms=NOW_MS + 10, clock_ms=hour)
    released = advance_episode(episode, Since(PASSED, {}, None), now_ms=NOW_MS + 2_000)
    assert (released.released_ms, released.release_noticed) == (NOW_MS + expected, noticed), why


@cases((0, 900), (1, 1_101), ids=["alone", "another one blocked them as well"])
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


def test_a_recovery_ends_with_the_next_commit_unless_readers_are_blocked() -> None:
    commit = ("payments-7", NOW_MS + 5_000)
    for ends, outcome, closed_ms in (
        ({}, RecoveryOutcome.OPEN, None),
        (PASSED, RecoveryOutcome.RESUMED, NOW_MS + 5_000),
    ):
        over = advance_episode(EPISODE, Since(ends, {}, commit), now_ms=NOW_MS + 6_000)
        assert (over.outcome, over.closed_ms) == (outcome, closed_ms)
        assert (over.resumed_by, over.resumed_ms) == commit
    assert advance_episode(over, Since(PASSED, {}, ("other", NOW_MS + 9)), now_ms=NOW_MS + 99_000_000) == over


def test_a_recovery_ends_ten_minutes_after_readers_go_on_or_after_a_day_without_visibility() -> None:
    for episode, after_ms, outcome in (
        (RELEASED, 1_400 + RESUMES_WITHIN_MS, RecoveryOutcome.OPEN),
        (RELEASED, 1_401 + RESUMES_WITHIN_MS, RecoveryOutcome.NOT_RESUMED),
        (EPISODE, 86_400_001, RecoveryOutcome.UNSEEN),
    ):
        assert advance_episode(episode, NOTHING, now_ms=NOW_MS + after_ms).outcome is outcome


def test_an_unblocking_observed_before_its_cause_counts_from_the_abort() -> None:
    """A coordinator's timestamp is known in the local clock to about a second."""
    early = {P0: Ends(160, NOW_MS - 300), P1: Ends(9, NOW_MS - 400)}
    assert advance_episode(EPISODE, Since(early, {}, None), now_ms=NOW_MS + 900).released_ms == NOW_MS


def stamped(batch: RecordBatch, ms: int) -> RecordBatch:
    return batch._replace(max_timestamp_ms=NOW_MS + ms)


def other(first: int, last: int) -> RecordBatch:
    return data(first, last, producer_id=8)


def ended(at: int, ms: int, how: str = "commit") -> RecordBatch:
    return stamped(marker(at, how, producer_id=8), ms)


MINE = [stamped(data(10, 14), 0), stamped(marker(20), 500)]


@cases(
    ([], 500, "its own marker"),
    ([other(12, 13), ended(30, 900)], 900, "begun among them"),
    ([other(12, 13), ended(18, 400)], 500, "it ended before"),
    ([other(15, 16), ended(30, 900)], 500, "begun behind them"),
    ([ended(30, 900, "abort")], 900, "one that began before what was read"),
    (
        [ended(5, 10, "abort"), other(16, 16), ended(30, 900, "abort")],
        500,
        "its earlier one ended before, its next one began behind them",
    ),
    ([other(12, 13)._replace(transactional=False)], 500, "not in a transaction"),
)
def test_other_transactions_may_block_the_same_records(
    others: list[RecordBatch], expected: int, why: str
) -> None:
    batches = sorted([*MINE, *others], key=lambda batch: batch.first)
    lost = lost_in(P0, batches, 7, 5)
    assert lost is not None
    assert unblocked_ms(lost, batches, 7) == NOW_MS + expected, why


RANGE = LostRecords(*P0, 10, 14, 5, True)
EMPTY = LostRecords(*P0, None, None, 0, True)


WRITTEN = WrittenTopic("payments", "a", True)


@cases(
    (WRITTEN, TopicNow("a"), ""),
    (WRITTEN, TopicNow("b"), RECREATED),
    (WRITTEN, TopicNow(deleted=True), DELETED),
    (WrittenTopic("payments"), TopicNow(deleted=True), DELETED),
    (WrittenTopic("payments"), TopicNow("b"), ""),
    (WRITTEN, TopicNow(hidden="no right"), ""),
)
def test_a_topic_with_another_id_is_another_topic(topic: WrittenTopic, now: TopicNow, expected: str) -> None:
    assert deletion_reason(topic, now) == expected


def test_a_count_is_certain_only_if_the_topic_is_the_same() -> None:
    perhaps = WrittenTopic("payments", "a")
    for lost, topic, now, sure, why in (
        (RANGE, WRITTEN, TopicNow("a"), True, "the same topic all the time"),
        (RANGE, perhaps, TopicNow("a"), True, "its records and its marker are in this log"),
        (EMPTY, WRITTEN, TopicNow("a"), True, "the same topic all the time"),
        (EMPTY, perhaps, TopicNow("a"), False, "a new topic has the marker and no records"),
        (RANGE, WrittenTopic("payments"), TopicNow(hidden="no right"), False, "its id may not be seen"),
        (RANGE, WRITTEN, TopicNow(), False, "the broker has no topic ids"),
    ):
        found = same_topic(lost, topic, now)
        assert (found.sure, bool(found.note)) == (sure, not sure), why
        assert found[:5] == lost[:5]
    noted = LostRecords(*P0, 10, None, None, False, "no right to read it")
    assert same_topic(noted, WrittenTopic("payments"), TopicNow("a")) == noted, "a more precise note is kept"


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
        clocks = [ms + offset_ms for ms in true]
        opened, completed, _, resumed = (ms + shift_ms for ms in clocks)
        notice_ms = true[2] + dice.randrange(8_000)
        for marker_ms in (clocks[2], None):
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
