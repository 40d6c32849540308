"""Proves which differences between stored rows and the coordinators' lists count: those that no record still
to come can explain, and only as their coordinators describe them; and which coordinators moved, or would."""

from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import NOT_REPORTED, Tombstone, TopicPartitions, TransactionState
from fenceline.kafka.coordinator import (
    CoordinatorMove,
    Failover,
    LedPartition,
    failovers,
    find_moves,
    java_hash,
    load_rate,
    partition_for,
)
from fenceline.kafka.reconcile import (
    Correction,
    Described,
    Difference,
    KnownTransaction,
    Listed,
    NotDescribed,
    Obstacle,
    Sighting,
    compare_listing,
    confirm_differences,
    correct_row,
    format_agreement,
    mirror_row,
    next_full_s,
    next_open_s,
)
from tests.cases import cases

ONGOING = Listed(TransactionState.ONGOING, 7)
COMMITTED = Listed(TransactionState.COMPLETE_COMMIT, 7)
NOW_MS = 1_795_000_000_000
UNKNOWN = NotDescribed(Obstacle.UNKNOWN, "")
FORBIDDEN = NotDescribed(Obstacle.FORBIDDEN, "")
UNSEEN = NotDescribed(Obstacle.UNSEEN, "")


def row(
    state: TransactionState = TransactionState.ONGOING, offset: int = 10, producer_id: int = 7
) -> KnownTransaction:
    return KnownTransaction(state, producer_id, offset, 3, 1_000, 1)


def described(state: TransactionState = TransactionState.COMPLETE_COMMIT, epoch: int = 3) -> Described:
    partitions = (TopicPartitions("orders", (2,)),) if state is TransactionState.ONGOING else ()
    return Described("a", state, 7, epoch, 60_000, 1_000, partitions)


def test_rows_read_before_the_list_are_compared_and_rows_read_after_are_suspect() -> None:
    listed = {"same": ONGOING, "moved": COMMITTED, "late": ONGOING, "later": COMMITTED}
    before = {"same": row(), "moved": row(), "gone": row(), "never": None}
    after = [("same", row()), ("later", row()), ("agreed", row(TransactionState.EMPTY)), ("lost", row())]
    differences, suspects, agreed = compare_listing(
        {**listed, "agreed": Listed(TransactionState.EMPTY, 7)}, before, after, only_open=False, absences=True
    )
    assert agreed == 2
    expected = {"moved": Difference(row(), COMMITTED), "gone": Difference(row(), None)}
    assert differences == expected
    assert suspects == {"late", "later", "lost"}


def test_absences_count_while_all_brokers_answer_closed_rows_in_a_whole_list_alone_and_ids_always() -> None:
    found = compare_listing({}, {"gone": row()}, [("lost", row())], only_open=False, absences=False)
    assert found == ({}, frozenset(), 0), "a broker is unavailable"
    rows = {"closed": row(TransactionState.EMPTY), "open": row()}
    differences, *_ = compare_listing({}, rows, only_open=True, absences=True)
    assert differences == {"open": Difference(row(), None)}
    other = row(producer_id=8)
    differences, *_ = compare_listing({"a": ONGOING}, {"a": other}, only_open=True, absences=True)
    assert differences == {"a": Difference(other, ONGOING)}


def test_a_difference_counts_when_it_stays_until_the_tail_has_passed_the_first_list() -> None:
    seen = {"a": Difference(row(), COMMITTED)}
    pending, counted = confirm_differences({}, seen, listed_ms=1_000, seen_through_ms=5_000)
    assert counted == {}
    for seen_through_ms in None, 999, 1_000:
        pending, counted = confirm_differences(
            pending, seen, listed_ms=2_000, seen_through_ms=seen_through_ms
        )
        assert counted == {}
        assert pending == {"a": (seen["a"], 1_000)}
    assert confirm_differences(pending, seen, listed_ms=3_000, seen_through_ms=1_001)[1] == seen


@cases(
    Difference(row(offset=11), COMMITTED),
    Difference(row(), Listed(TransactionState.PREPARE_COMMIT, 7)),
    Difference(row(), None),
    Difference(None, COMMITTED),
    None,
)
def test_a_record_in_between_or_another_difference_restarts_the_confirmation(
    second: Difference | None,
) -> None:
    seen = {"a": Difference(row(), COMMITTED)}
    pending, _ = confirm_differences({}, seen, listed_ms=1_000, seen_through_ms=None)
    now = {} if second is None else {"a": second}
    pending, counted = confirm_differences(pending, now, listed_ms=2_000, seen_through_ms=9_000)
    assert counted == {}
    assert pending == {name: (difference, 2_000) for name, difference in now.items()}


# A coordinator's life: the state after each record. The tail lags behind, and misses one record or none.
STATES = [
    Listed(state, 7)
    for state in (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    )
]


@given(
    lags=st.lists(st.integers(0, 6), min_size=3, max_size=12),
    steps=st.lists(st.integers(0, 5), min_size=3, max_size=12),
)
def test_a_tail_that_misses_nothing_is_never_corrected(lags: list[int], steps: list[int]) -> None:
    """Each poll reads how far the tail was, then the row, then the list; records are written all the time."""
    log = 0
    pending: dict[str, Sighting] = {}
    for lag, step in zip(lags, steps, strict=False):
        tail = max(0, log - lag)
        ours = KnownTransaction(*STATES[tail % 4], log_offset=tail)
        # The tail's clock is the number of records here: it has seen everything up to `tail`.
        seen_through_ms = tail
        log += step
        differences, *_ = compare_listing({"a": STATES[log % 4]}, {"a": ours}, only_open=False, absences=True)
        # The list came when `log` records were there; the tail has passed it from `log + 1` on.
        pending, counted = confirm_differences(
            pending, differences, listed_ms=log - 1, seen_through_ms=seen_through_ms
        )
        assert counted == {}


def test_a_confirmed_difference_becomes_what_the_coordinator_describes() -> None:
    correction = correct_row("a", Difference(row(), COMMITTED), described(), NOW_MS)
    assert correction is not None
    record = correction.record
    assert not isinstance(record, Tombstone)
    assert correction.ours == row()
    expected = ("a", TransactionState.COMPLETE_COMMIT, 7, 3)
    assert (record.transactional_id, record.state, record.producer_id, record.producer_epoch) == expected
    expected = (60_000, 1_000, NOW_MS, ())
    assert (record.timeout_ms, record.started_ms, record.updated_ms, record.partitions) == expected


def test_an_id_initialised_again_has_no_start_although_3_9_reports_one() -> None:
    difference = Difference(row(), Listed(TransactionState.EMPTY, 7))
    said = described(TransactionState.EMPTY, epoch=4)
    correction = correct_row("a", difference, said, NOW_MS)
    assert correction is not None
    assert not isinstance(correction.record, Tombstone)
    assert (correction.record.started_ms, correction.record.partitions) == (None, None)
    known = KnownTransaction(TransactionState.EMPTY, 7, -1, 4, None, 0)
    assert mirror_row("a", known, said, NOW_MS) is None


UNCHANGED = KnownTransaction(TransactionState.COMPLETE_COMMIT, 7, 10, 3, 1_000, 0)


@cases(
    (row(), COMMITTED, described(TransactionState.ONGOING)),
    (row(), COMMITTED, UNKNOWN),
    (row(), COMMITTED, UNSEEN),
    (row(), None, FORBIDDEN),
    (row(), None, UNSEEN),
    (row(), None, described(TransactionState.ONGOING)),
    (UNCHANGED, None, described()),
)
def test_a_difference_that_its_coordinator_does_not_confirm_changes_nothing(
    ours: KnownTransaction, theirs: Listed | None, said: Described | NotDescribed
) -> None:
    assert correct_row("a", Difference(ours, theirs), said, NOW_MS) is None
    # An id that its coordinator has deleted is removed.
    assert correct_row("a", Difference(row(), None), UNKNOWN, NOW_MS) == Correction(Tombstone("a"), row())


def test_rows_follow_the_lists_when_these_are_the_only_source() -> None:
    idle = row(TransactionState.EMPTY)
    for obstacle in UNKNOWN, FORBIDDEN:
        gone = Correction(Tombstone("a"), idle, hidden=obstacle is FORBIDDEN)
        assert mirror_row("a", idle, obstacle, NOW_MS) == gone
        assert mirror_row("a", None, obstacle, NOW_MS) is None
    assert mirror_row("a", row(), UNKNOWN, NOW_MS) == Correction(Tombstone("a"), row())
    assert mirror_row("a", row(), FORBIDDEN, NOW_MS) is None, "that it has ended would be a guess"
    assert mirror_row("a", row(), UNSEEN, NOW_MS) is None
    assert mirror_row("a", row(), ONGOING, NOW_MS) is None
    assert mirror_row("a", row(), described(TransactionState.ONGOING), NOW_MS) is None
    begun_again = mirror_row("a", row(), described(TransactionState.ONGOING, epoch=4), NOW_MS)
    assert begun_again is not None
    new = mirror_row("a", None, COMMITTED, NOW_MS)
    assert new is not None
    assert not isinstance(new.record, Tombstone)
    assert (new.record.producer_epoch, new.record.timeout_ms) == (NOT_REPORTED, NOT_REPORTED)


def test_brokers_are_polled_more_slowly_when_they_answer_slowly() -> None:
    assert [next_open_s(answer) for answer in (0.0, 0.05, 0.6)] == [1.0, 1.0, 12.0]
    assert [next_full_s(answer) for answer in (0.0, 0.6, 1.5)] == [60.0, 60.0, 150.0]


@cases(
    (0, 0, ""),
    (5, 5, "100 %"),
    (99_999, 100_000, "99.99 %"),
    (1_999_999, 2_000_000, "99.99 %"),
    (1, 2, "50.00 %"),
)
def test_a_single_difference_is_never_rounded_to_zero(agreed: int, compared: int, words: str) -> None:
    assert format_agreement(agreed, compared) == words


@cases(
    (b"", 0),
    (b"a", 97),
    (b"hello", 99162322),
    (b"polygenelubricants", -(2**31)),
    ("𝄞".encode(), 55348 * 31 + 56606),
)
def test_it_hashes_as_java_does(name: bytes, hashed: int) -> None:
    assert java_hash(name) == hashed


@cases(
    (b"my-group", 50, 12),
    (b"kafka-txn-0", 50, 30),
    (b"polygenelubricants", 50, 0),
    (b"any", 1, 0),
)
def test_it_places_an_id(name: bytes, partitions: int, partition: int) -> None:
    assert partition_for(name, partitions) == partition


def move(**given: object) -> CoordinatorMove:
    usual = CoordinatorMove(1_000, 2_000, 1, 3, (4, 7), 31, 8_000, 5_100)
    return usual._replace(**given)  # type: ignore[arg-type]


@cases(
    ({1: 1, 2: 1, 3: 2}, {}),
    ({1: 3, 2: 3, 3: 2}, {(1, 3): [1, 2]}),
    ({1: 3, 2: 2, 3: 1}, {(1, 3): [1], (1, 2): [2], (2, 1): [3]}),
    # A partition without a leader has moved to nobody; one that is new has moved from nobody.
    ({1: 1, 2: 1, 4: 2}, {}),
    ({}, {}),
)
def test_a_partition_moves_from_its_last_leader_to_another_one(
    now: dict[int, int], moved: dict[tuple[int, int], list[int]]
) -> None:
    assert find_moves({1: (1, 900), 2: (1, 900), 3: (2, 900)}, now) == moved


@cases(
    (move(), 4_100, "the coordinator of 31 ids moved from broker 1 to 3, which answered within 4.1 s"),
    (move(ids=1, answered_ms=None), None, "the coordinator of 1 id moved from broker 1 to 3, which was not"),
    # Nobody has looked for a minute: nothing is said about how long it took.
    (move(seen_ms=61_000, answered_ms=61_100), None, "how long it loaded was not seen"),
)
def test_a_move_is_told_with_the_most_that_its_ids_waited(
    of: CoordinatorMove, took_ms: int | None, words: str
) -> None:
    assert of.took_ms == took_ms
    assert words in of.text


def test_a_coordinator_is_awaited_for_ten_minutes_and_a_move_that_nobody_followed_tells_no_time() -> None:
    waiting = move(answered_ms=None)
    assert waiting.is_loading(601_999)
    assert not waiting.is_loading(602_000)
    assert not move().is_loading(6_000)
    assert move().unfollowed().took_ms is None


def test_the_slowest_measured_load_is_the_rate() -> None:
    assert load_rate([]) is None
    assert (
        load_rate([move(size=None), move(answered_ms=None), move(seen_ms=61_000, answered_ms=62_000)]) is None
    )
    assert load_rate([move(size=8_200), move(size=4_100)]) == 1.0
    # As long as the gap between two polls: how long the load itself took is not known.
    assert load_rate([move(size=1, answered_ms=2_100)]) is None


def test_a_dead_brokers_ids_go_to_the_next_replicas_which_load_at_the_same_time() -> None:
    led = [
        LedPartition(0, 1, (1, 2, 3), 10, 1_000),
        LedPartition(1, 1, (1, 3, 2), 5, 4_000),
        LedPartition(2, 1, (3, 1, 2), 1, 2_000),
        LedPartition(3, 2, (2,), 7, 100),
        LedPartition(4, 3, (3, 1), 2, None),
        LedPartition(5, None, (2, 3), 9, 9),
    ]
    assert failovers(led, 2.0) == [
        # Broker 3 takes partitions 1 and 2 over, one after the other.
        Failover(1, 3, 16, 3_000, 0),
        Failover(2, 1, 7, None, 1),
        Failover(3, 1, 2, None, 0),
    ]
    assert failovers(led, None)[0].load_ms is None
    assert failovers([], 1.0) == []
