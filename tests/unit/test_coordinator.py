"""Proves that ids are placed where Kafka's coordinators place them, which moves of coordinators follow from
two polls, and what follows if a broker dies."""

import pytest

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


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        (b"", 0),
        (b"a", 97),
        (b"hello", 99162322),  # from Java's own documentation of String.hashCode: s[0]*31^(n-1) + …
        (b"polygenelubricants", -(2**31)),  # the known string whose absolute value overflows
        ("𝄞".encode(), 0xD834 * 31 + 0xDD1E),  # two UTF-16 units, not one character
    ],
)
def test_it_hashes_as_java_does(name: bytes, hashed: int) -> None:
    assert java_hash(name) == hashed


@pytest.mark.parametrize(
    ("name", "partitions", "partition"),
    [
        (b"my-group", 50, 12),
        (b"kafka-txn-0", 50, 30),
        (b"polygenelubricants", 50, 0),
        (b"any", 1, 0),
    ],
)
def test_it_places_an_id(name: bytes, partitions: int, partition: int) -> None:
    assert partition_for(name, partitions) == partition


def move(**given: object) -> CoordinatorMove:
    usual = CoordinatorMove(1_000, 2_000, 1, 3, (4, 7), 31, 8_000, 5_100)
    return usual._replace(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        ({1: 1, 2: 1, 3: 2}, {}),
        ({1: 3, 2: 3, 3: 2}, {(1, 3): [1, 2]}),
        ({1: 3, 2: 2, 3: 1}, {(1, 3): [1], (1, 2): [2], (2, 1): [3]}),
        # A partition without a leader has moved to nobody; one that is new has moved from nobody.
        ({1: 1, 2: 1, 4: 2}, {}),
        ({}, {}),
    ],
)
def test_a_partition_moves_from_its_last_leader_to_another_one(
    now: dict[int, int], moved: dict[tuple[int, int], list[int]]
) -> None:
    assert find_moves({1: (1, 900), 2: (1, 900), 3: (2, 900)}, now) == moved


@pytest.mark.parametrize(
    ("of", "took_ms", "words"),
    [
        (move(), 4_100, "the coordinator of 31 ids moved from broker 1 to 3, which answered within 4.1 s"),
        (
            move(ids=1, answered_ms=None),
            None,
            "the coordinator of 1 id moved from broker 1 to 3, which was not",
        ),
        # Nobody has looked for a minute: nothing is said about how long it took.
        (move(seen_ms=61_000, answered_ms=61_100), None, "how long it loaded was not seen"),
    ],
)
def test_a_move_is_told_with_the_most_that_its_ids_waited(
    of: CoordinatorMove, took_ms: int | None, words: str
) -> None:
    assert of.took_ms == took_ms
    assert words in of.text


def test_a_move_that_nobody_followed_tells_no_time() -> None:
    assert move().unfollowed().took_ms is None


def test_a_coordinator_is_awaited_for_ten_minutes() -> None:
    waiting = move(answered_ms=None)
    assert waiting.is_loading(601_999)
    assert not waiting.is_loading(602_000)
    assert not move().is_loading(6_000)


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
