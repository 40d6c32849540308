"""Proves which offsets count as a transaction's own, and that what is not known is named."""

import pytest

from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka.added_offsets import (
    MOST_OFFSETS,
    NOTHING_ADDED,
    AddedOffset,
    AddedOffsets,
    Observation,
    TransactionOffsets,
    newest_offsets,
    offsets_of,
    pack_offsets,
    unpack_offsets,
)

BEGUN_MS = 1_795_000_000_000
ADDED_MS, ENDED_MS = BEGUN_MS + 500, BEGUN_MS + 1_000
ONGOING, COMMITTED = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
OFFSETS = TopicPartitions("__consumer_offsets", (3, 9))
WHY = "it was not polled"


def added(group: str = "g", offset: int = 7, **fields: int) -> AddedOffset:
    return AddedOffset(group, "t", 0, offset, ADDED_MS, 3, 40)._replace(**fields)


def read(*offsets: AddedOffset, marker: str = "", unread: int = 0, log: int = 3) -> AddedOffsets:
    written = offsets or (added(),)
    return newest_offsets(written, (11, 4), log, marker=marker, unread=unread, read_ms=ENDED_MS)


def record(
    state: TransactionState = ONGOING, named: tuple[TopicPartitions, ...] | None = (), epoch: int = 4
) -> TransactionRecord:
    updated_ms = BEGUN_MS if state is ONGOING else ENDED_MS
    return TransactionRecord("a", state, 11, epoch, 60_000, named, updated_ms, BEGUN_MS)


def of(transaction: TransactionRecord, *parts: AddedOffsets) -> TransactionOffsets:
    return offsets_of(transaction, parts, lambda: WHY)


def test_the_newest_offset_of_each_group_and_partition_counts() -> None:
    written = [added("b"), added(offset=1), added(partition=1, offset=5), added(offset=2, log_offset=44)]
    found = read(*written).offsets
    places = [(each.group, each.partition, each.offset) for each in found]
    assert places == [("b", 0, 7), ("g", 0, 2), ("g", 1, 5)]
    assert unpack_offsets(pack_offsets(found)) == found


@pytest.mark.parametrize(
    ("transaction", "part", "own"),
    [
        (record(), read(), True),
        # The epoch is another one: an earlier transaction, of version 2.
        (record(epoch=5), read(), False),
        # It was added before this one began, or belongs to one whose end was read.
        (record(), read(added(at_ms=BEGUN_MS - 1)), False),
        (record(), read(marker="commit"), False),
        (record(), read()._replace(producer_id=12), False),
        (record(COMMITTED), read(marker="commit"), True),
        (record(TransactionState.PREPARE_COMMIT), read(marker="commit"), True),
        # The end has raised the epoch.
        (record(COMMITTED, epoch=5), read(marker="commit"), True),
        (record(COMMITTED, epoch=6), read(marker="commit"), False),
        (record(COMMITTED), read(marker="abort"), False),
        (record(TransactionState.COMPLETE_ABORT), read(marker="abort"), True),
        # It was added after this one ended: by one that the tail has not read yet.
        (record(COMMITTED), read(added(at_ms=ENDED_MS + 1)), False),
        (record()._replace(started_ms=None), read(), False),
    ],
)
def test_offsets_are_of_the_transaction_whose_epoch_time_and_end_they_fit(
    transaction: TransactionRecord, part: AddedOffsets, own: bool
) -> None:
    assert bool(of(transaction, part).offsets) is own


def test_all_that_an_open_transaction_names_was_read() -> None:
    found = of(record(named=(OFFSETS,)), read(), read(added("h", log_partition=9), log=9))
    assert (found.observation, found.missing, found.read_ms) == (Observation.COMPLETE, (), ENDED_MS)
    assert [each.group for each in found.offsets] == ["g", "h"]


@pytest.mark.parametrize("named", [(), (TopicPartitions("t", (0,)),)])
def test_a_transaction_that_names_no_offsets_has_added_none(named: tuple[TopicPartitions, ...]) -> None:
    assert of(record(named=named)) == NOTHING_ADDED
    assert of(record(TransactionState.EMPTY, None)) == NOTHING_ADDED


@pytest.mark.parametrize(
    ("transaction", "parts", "observation", "words"),
    [
        (record(named=(OFFSETS,)), [read()], Observation.PARTIAL, f"__consumer_offsets-9: {WHY}"),
        (record(named=(TopicPartitions(OFFSETS.topic, (3,)),)), [], Observation.NONE, WHY),
        (record(named=None), [], Observation.NONE, "was not read"),
        (record(), [read(unread=20)], Observation.PARTIAL, "20 records before its end are not read yet"),
        (record(COMMITTED), [], Observation.NONE, f"lists no partitions; {WHY}"),
        (record(COMMITTED), [read()], Observation.PARTIAL, "not up to its marker"),
        (record(TransactionState.PREPARE_COMMIT), [read()], Observation.PARTIAL, "not up to its marker"),
        (
            record(COMMITTED),
            [read(*(added(partition=n) for n in range(MOST_OFFSETS + 2)), marker="commit")],
            Observation.PARTIAL,
            "500 of 502 offsets are kept",
        ),
    ],
)
def test_what_is_not_known_is_named(
    transaction: TransactionRecord, parts: list[AddedOffsets], observation: Observation, words: str
) -> None:
    found = of(transaction, *parts)
    (why,) = found.missing
    assert (found.observation, bool(found.offsets)) == (observation, bool(parts))
    assert words in why
