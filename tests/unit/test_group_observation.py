"""Proves what follows from a poll of a group, partition by partition: lag in time, blocking, changes;
which groups are one family, and the position of a share group."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import Isolation
from fenceline.formatting import LONGEST_NAME
from fenceline.kafka.group_observation import (
    Around,
    GroupBlocker,
    Logged,
    Stood,
    has_changed,
    observe_partition,
)
from fenceline.kafka.groups import Committed, ShareProgress, Waiting, family_of
from fenceline.kafka.offset_histories import EndOffset
from fenceline.kafka.partitions import Offsets
from tests.cases import cases
from tests.unit.test_groups import BLOCKED, NOW, OK, STOP, UNKNOWN, commits_every

LOG = Logged(Committed(100), NOW - 5_000, commits_every(5, *range(5, 105, 5)), 3, 0)
HISTORY = tuple(EndOffset(NOW - 100_000 + n * 10_000, 40 + 10 * n, 40 + 10 * n) for n in range(10))
AROUND = Around(Offsets(0, 140, 140, 1), ends=HISTORY)


def observe(before: Stood | None = None, around: Around = AROUND, **changes: object) -> Stood:
    given = {"committed": Committed(100), "unstable": False, "logged": LOG, "now_ms": NOW, **changes}
    return observe_partition(before, around=around, **given)  # type: ignore[arg-type]


def test_lag_in_time_is_since_the_end_passed_the_offset_and_unknown_before_the_history() -> None:
    found = observe()
    # It passed 100 between the looks 40 s and 30 s ago, that is a tenth of the way.
    assert (found.lag_ms, found.lag_lso, found.lag_hw) == (39_000, 40, 40)
    assert observe(committed=Committed(140)).lag_ms == 0
    assert observe(committed=Committed(30)).lag_ms is None
    assert observe(around=replace(AROUND, offsets=None)).lag_ms is None


@cases(
    (Offsets(100, 140, 140, 1), False, (40, 40, 39_000)),
    (Offsets(120, 140, 150, 1), False, (20, 50, 19_000)),
    (Offsets(140, 140, 140, 1), False, (0, 40, 0)),
    (Offsets(120, 140, 140, 1), True, (0, 40, 0)),
)
def test_deleted_records_are_not_read_before_the_lso(
    offsets: Offsets, only_markers: bool, lags: tuple[int, int, int]
) -> None:
    found = observe(around=replace(AROUND, offsets=offsets, only_markers=only_markers))
    assert (found.lag_lso, found.lag_hw, found.lag_ms) == lags


def test_an_offset_beyond_the_end_has_unknown_lag() -> None:
    """The topic was made again or truncated: it has neither read all, nor is its lag known."""
    found = observe(committed=Committed(141))
    assert found.status is UNKNOWN
    assert (found.lag_lso, found.lag_hw, found.lag_ms, found.waiting) == (None, None, None, None)
    markers = observe(around=replace(AROUND, only_markers=True), committed=Committed(141))
    assert (markers.status, markers.lag_lso, markers.lag_ms) == (UNKNOWN, None, None)


def test_lag_of_a_blocked_group_counts_to_the_high_watermark() -> None:
    """A group blocked at a stuck LSO has lag 0 to it, and its lag in time grows."""
    ends = [EndOffset(each.at_ms, min(each.lso, 100), each.high_watermark) for each in HISTORY]
    pinned = Around(Offsets(0, 100, 140, 1), ends=ends, holders=[GroupBlocker(7, 0, "payments-1", 100)])
    found = observe(around=pinned)
    assert (found.status, found.waiting, found.lag_lso, found.lag_hw) == (OK, Waiting.PROBABLY, 0, 40)
    assert found.lag_ms == 39_000
    assert found.waiting_ms == NOW
    assert [each.transactional_id for each in found.blockers] == ["payments-1"]
    later = observe(found, pinned, now_ms=NOW + 9_000)
    assert (later.waiting_ms, later.status) == (NOW, OK)
    assert observe(later, pinned, now_ms=NOW + 11_000).status is BLOCKED
    assert observe(later, pinned, now_ms=NOW + 11_000, blocked_after_ms=60_000).status is OK
    moved = observe(found, replace(pinned, offsets=Offsets(0, 120, 140, 1)), now_ms=NOW + 9_000)
    assert (moved.waiting, moved.waiting_ms, moved.blockers) == (Waiting.NOT_YET, None, ())


def test_a_topic_of_short_transactions_blocks_no_group() -> None:
    """Every poll finds some transaction open, and each time another one: the LSO moves."""
    found: Stood | None = None
    for n in range(30):
        around = Around(Offsets(0, 100 + n, 140 + n, 1), only_markers=True, ends=HISTORY)
        # It commits seldom: what lies between its offset and the LSO are markers and aborted records.
        found = observe(found, around, now_ms=NOW + 2_000 * n)
        assert (found.waiting, found.status) == (Waiting.PROBABLY, OK), n


def test_a_group_stays_blocked_where_its_offset_passes_a_marker() -> None:
    found = observe(None, Around(Offsets(0, 101, 140, 1), only_markers=True))
    passed = observe(found, Around(Offsets(0, 101, 140, 1)), committed=Committed(101), now_ms=NOW + 12_000)
    assert (passed.waiting_ms, passed.status) == (NOW, BLOCKED)


def test_a_commit_that_was_pending_for_long_does_not_count_as_blocked_at_the_lso() -> None:
    """Kafka Streams has some commit pending at nearly every poll, and reads on."""
    before = observe(unstable=True)
    assert before.waiting_ms == NOW
    pinned = Around(Offsets(0, 100, 140, 1))
    at_lso = observe(before, pinned, unstable=True, now_ms=NOW + 60_000)
    assert (at_lso.waiting, at_lso.waiting_ms, at_lso.status) == (Waiting.PROBABLY, NOW + 60_000, OK)
    later = observe(at_lso, pinned, unstable=True, now_ms=NOW + 70_000)
    assert (later.waiting_ms, later.status) == (NOW + 60_000, BLOCKED)


def test_markers_and_aborted_records_are_nothing_to_read() -> None:
    silent = LOG._replace(commits=commits_every(5, *range(5, 105, 5), last_s=900))
    found = observe(around=replace(AROUND, only_markers=True), logged=silent)
    assert (found.status, found.lag_ms, found.only_markers) == (OK, 0, True)
    assert (found.lag_lso, found.lag_hw) == (0, 40)
    assert observe(logged=silent).status is OK
    assert observe(now_ms=NOW + 300_000).status is STOP


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_a_coordinator_s_clock_an_hour_off_changes_no_status(ahead_ms: int) -> None:
    theirs = tuple(each._replace(at_ms=each.at_ms - ahead_ms) for each in LOG.commits)
    logged = LOG._replace(commits=theirs, commit_ms=LOG.commit_ms - ahead_ms, ahead_ms=ahead_ms)
    assert observe(logged=logged).status is observe().status is OK


def test_a_pending_commit_is_reported_with_its_transaction_and_its_beginning() -> None:
    pending = GroupBlocker(7, 0, "enrich-1", pending=True, offset=120)
    around = replace(AROUND, pending=[pending])
    found = observe(around=around, unstable=True)
    assert (found.unstable, found.waiting_ms, found.blockers) == (True, NOW, (pending,))
    again = observe(found, around, unstable=True, now_ms=NOW + 4_000)
    assert again.waiting_ms == NOW
    assert observe(again, around, now_ms=NOW + 8_000).waiting_ms is None
    alone = observe(around=around, unstable=True, committed=None, logged=None)
    assert (alone.offset, alone.status, alone.blockers) == (None, UNKNOWN, (pending,))


def test_the_commit_instant_comes_from_the_log_if_the_offset_is_the_same() -> None:
    assert observe().commit_ms == NOW - 5_000
    first = observe(committed=Committed(101))
    assert first.commit_ms == NOW
    assert observe(first, committed=Committed(101), now_ms=NOW + 5_000).commit_ms == NOW
    assert observe(first, committed=Committed(102), now_ms=NOW + 5_000).commit_ms == NOW + 5_000
    assert observe(committed=None).commit_ms is None


def test_a_row_is_written_when_its_facts_change() -> None:
    row = observe()
    for before, changes, is_written in (
        (None, {}, True),
        (row, {"now_ms": NOW + 500}, False),
        (row, {"committed": Committed(101)}, True),
        (row, {"now_ms": NOW + 25_000}, True),
    ):
        assert has_changed(before, observe(before, **changes)) is is_written


UUID = "0f4f8c6e-8f1e-4f7c-9d43-1b2c3d4e5f60"
HEX = "0f4f8c6e8f1e4f7c9d431b2c3d4e5f60"


@cases(
    (f"spark-kafka-source-{UUID}-1234567-driver-0", "spark-kafka-source-*", "every start of a query"),
    (f"spark-kafka-source-{UUID}--1234567-driver-12", "spark-kafka-source-*", "every start of a query"),
    (f"spark-kafka-source-{UUID}-1234567-executor", "spark-kafka-source-*", "every start of a query"),
    (f"my-prefix-{UUID}-77-driver-0", "my-prefix-*", "every start of a query"),
    (f"spark-kafka-relation-{UUID}-driver-0", "spark-kafka-relation-*", "every batch read"),
    (f"spark-kafka-relation-{UUID}-executor", "spark-kafka-relation-*", "every batch read"),
    ("console-consumer-40137", "console-consumer-*", "console consumer"),
    ("console-share-consumer-1", "console-share-consumer-*", "console consumer"),
    (f"billing-{UUID}", "billing-*", "random part"),
    (f"{UUID}", "*", "random part"),
    (f"a.{HEX}.b", "a.*.b", "random part"),
    ("billing", "billing", ""),
    ("billing-1", "billing-1", ""),  # numbers are names: each is a group of its own
    ("console-consumer", "console-consumer", ""),
    ("spark-kafka-source", "spark-kafka-source", ""),
    ("connect-sink-orders", "connect-sink-orders", ""),
    ("20261121", "20261121", ""),
    ("", "", ""),
    ("back\\\\slash \\x00", "back\\\\slash \\x00", ""),
)
def test_groups_with_random_ids_are_one_family_and_explained(group: str, family: str, word: str) -> None:
    found = family_of(group)
    assert found.name == family
    assert (word in found.explanation) if word else not found.explanation


@given(st.text(max_size=600))
def test_family_names_have_a_bounded_length_and_long_groups_stay_distinct(text: str) -> None:
    assert len(family_of(text).name) <= LONGEST_NAME
    longer = "g" * 300
    assert family_of(longer + text).name != family_of(longer + text + "x").name


@cases(
    (0, None, Isolation.READ_COMMITTED, 0),
    (0, 10, Isolation.READ_UNCOMMITTED, 30),
    (0, 10, Isolation.READ_COMMITTED, 30),
    # Records after the lag was reported are no work that was done: it never passes the LSO.
    (0, 3, Isolation.READ_COMMITTED, 35),
    (0, 3, Isolation.READ_UNCOMMITTED, 37),
    (36, 50, Isolation.UNKNOWN, 36),
)
def test_a_share_group_s_lag_gives_its_position(
    start: int, lag: int | None, isolation: Isolation, position: int
) -> None:
    assert ShareProgress(start, lag).position(Offsets(0, 35, 40, 1), isolation) == position
    assert ShareProgress(start, lag).position(None, isolation) == start
