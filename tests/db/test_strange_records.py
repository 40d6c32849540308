"""Proves that records no coordinator should write are saved correctly or marked: clocks, holes, duplicates.

Of any stream of records, however damaged and wherever it is cut into saves, the database keeps what one
offline fold of all of it gives (tests/offline_replay.py).
"""

import random
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from django.db import connection, transaction
from django.db.models import F

from dashboard.models import Collector, StateCount, Tally, Transaction, TransitionRecord
from dashboard.runtime.leases import Lease
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions import sql as transaction_sql
from dashboard.transactions import store
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import (
    Confidence,
    PositionMove,
    RawRecord,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.fold import transition_ring
from fenceline.series import histograms
from tests import offline_replay
from tests.db.conftest import NOW_MS, Take
from tests.factories import record_table
from tests.kafka import topic_records
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import RandomHistory

pytestmark = pytest.mark.sql

PARTITION = 3
HOUR_MS = 3_600_000
#: Seeds of damaged streams: `make test` has the first ten on each database, `make test-matrix` all.
SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(10, 40))]


def raw(offset: int, record: TransactionRecord, partition: int = PARTITION) -> topic_records.RawRecord:
    key, value = encode_key(record.transactional_id), encode_value(record)
    return topic_records.RawRecord(partition, offset, record.updated_ms, key, value)


class Reader:
    """A tail that saves what it is given, and has only the state of a tail."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._next: dict[int, int] = {}

    def read(self, records: Sequence[topic_records.RawRecord]) -> None:
        """Save one batch of these records."""
        parts: defaultdict[int, list[topic_records.RawRecord]] = defaultdict(list)
        for record in records:
            parts[record.partition].append(record)
        looked = {partition: _by_key(found) for partition, found in parts.items()}
        moves = tuple(self._move(partition, found) for partition, found in parts.items())
        store.save_batch(
            self._lease, TailBatch(record_table(looked), moves), topic_id="topic-1", rate=1.0, now_ms=NOW_MS
        )

    def _move(self, partition: int, records: Sequence[topic_records.RawRecord]) -> PositionMove:
        previous = self._next.get(partition)
        following, holes = previous or 0, []
        for record in records:
            if record.offset != following:
                holes.append(record.offset)
            following = record.offset + 1
        self._next[partition] = following
        return PositionMove(partition, previous, following, following, tuple(holes))


def _by_key(records: Sequence[topic_records.RawRecord]) -> dict[bytes, list[RawRecord]]:
    found: defaultdict[bytes, list[RawRecord]] = defaultdict(list)
    for record in records:
        at_ms = record.timestamp_ms if record.value is None else None
        found[record.key or b""].append(RawRecord(record.value, record.offset, at_ms))
    return found


def check(lease: Lease, stream: Sequence[topic_records.RawRecord], cuts: Sequence[int]) -> None:
    """Save a stream in parts, and compare the rows with a replay."""
    reader = Reader(lease)
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        reader.read(stream[start:end])
    wrong = offline_replay.differences(
        offline_replay.replay_records(stream), offline_replay.stored_rows(connection.cursor())
    )
    assert not wrong, "\n".join(wrong)


def random_stream(dice: random.Random) -> list[topic_records.RawRecord]:
    """Return records of some ids as a coordinator writes them; some expire, and some of those come back."""
    walks = [RandomHistory(f"app-{number}", random.Random(dice.random())) for number in range(5)]
    stream: list[topic_records.RawRecord] = []
    for _ in range(100):
        walk = dice.choice(walks)
        for record in walk.step():
            gone = not isinstance(record, TransactionRecord)
            value = None if gone else encode_value(record)
            key = encode_key(walk.name)
            stream.append(topic_records.RawRecord(PARTITION, len(stream), walk.now_ms, key, value))
    return stream


def damaged(
    stream: Sequence[topic_records.RawRecord], dice: random.Random
) -> Iterator[topic_records.RawRecord]:
    """Yield a stream with some of every damage, in offsets that follow each other but for the holes."""
    offset = 0
    for record in stream:
        for each in dice.choices([_whole, *DAMAGES], [60] + [1] * len(DAMAGES))[0](record, dice):
            yield each._replace(offset=offset)
            offset += 1
        if dice.random() < 0.03:
            offset += dice.randrange(1, 30)


def _whole(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
    return [record]


def _doubled(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
    return [record, record]


def _unknown_version(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
    return [record._replace(value=b"\x00\x07" + record.value[2:])] if record.value else [record]


def _lost(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
    return []


def _gone(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
    return [record._replace(value=None)]


def _changed(
    change: Callable[[TransactionRecord, random.Random], TransactionRecord],
) -> Callable[[topic_records.RawRecord, random.Random], list[topic_records.RawRecord]]:
    def changed(record: topic_records.RawRecord, dice: random.Random) -> list[topic_records.RawRecord]:
        fact = offline_replay.decoded_rows(record)
        if not isinstance(fact, TransactionRecord):
            return [record]
        return [record._replace(value=encode_value(change(fact, dice)))]

    return changed


def _off_clock(fact: TransactionRecord, dice: random.Random) -> TransactionRecord:
    return fact._replace(updated_ms=fact.updated_ms + dice.choice((-HOUR_MS, HOUR_MS)))


def _start_after_end(fact: TransactionRecord, dice: random.Random) -> TransactionRecord:
    return fact._replace(started_ms=fact.updated_ms + 5_000)


def _epoch_jump(fact: TransactionRecord, dice: random.Random) -> TransactionRecord:
    return fact._replace(producer_epoch=min(fact.producer_epoch + 100, 32_767))


def _other_producer(fact: TransactionRecord, dice: random.Random) -> TransactionRecord:
    return fact._replace(producer_id=fact.producer_id + 1)


DAMAGES = [
    _doubled,
    _unknown_version,
    _lost,
    _gone,
    *map(_changed, (_off_clock, _start_after_end, _epoch_jump, _other_producer)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_streams_are_saved_like_one_aggregation_wherever_they_are_cut(take: Take, seed: int) -> None:
    dice = random.Random(seed)
    stream = list(damaged(random_stream(dice), dice))
    check(take(), stream, [dice.randrange(len(stream)) for _ in range(12)])


def record(state: TransactionState, epoch: int = 3, at_ms: int = 0, **changes: object) -> TransactionRecord:
    """Return a record of an id whose transaction began at NOW_MS."""
    started = None if state is TransactionState.EMPTY else NOW_MS
    partitions = None if state is TransactionState.EMPTY else (TopicPartitions("orders", (0,)),)
    made = TransactionRecord("app-1", state, 7, epoch, 60_000, partitions, NOW_MS + at_ms, started)
    return made._replace(**changes)


def stream_of(*facts: TransactionRecord | None) -> list[topic_records.RawRecord]:
    """Return them one after the other; None is a value of an unknown version."""
    stream = []
    for offset, fact in enumerate(facts):
        made = raw(offset, fact or record(TransactionState.ONGOING))
        stream.append(made if fact else made._replace(value=b"\x00\x07" + (made.value or b"")[2:]))
    return stream


def last_transitions() -> list[tuple[TransitionKind, Confidence, TransitionReason]]:
    """Return the last transitions of the only id, oldest first."""
    found = transition_ring.unpack_ring(bytes(Transaction.objects.get().recent), PARTITION)
    return [(each.kind, each.confidence, each.reason) for each in reversed(found)]


BEGUN = record(TransactionState.ONGOING)
PREPARED, ABORTED = (
    record(TransactionState.PREPARE_ABORT, 4, 900),
    record(TransactionState.COMPLETE_ABORT, 4, 905),
)
FIRST = (TransitionKind.BASELINE, Confidence.CERTAIN, TransitionReason.FIRST_SEEN)


@pytest.mark.parametrize("cuts", [[], [3], [4], [3, 4]])
def test_nothing_is_derived_across_a_record_that_cannot_be_read(take: Take, cuts: list[int]) -> None:
    """It may have been anything: here the Empty of an Admin's fence, behind which a producer came."""
    check(take(), stream_of(BEGUN, PREPARED, ABORTED, None, record(TransactionState.EMPTY, 6, 2_000)), cuts)
    assert last_transitions() == [
        FIRST,
        (TransitionKind.TAKEOVER, Confidence.PROBABLE, TransitionReason.BROKER_IN_TIME),
        FIRST,
    ]
    assert Collector.objects.get().undecoded == {"value_version": 1}


@pytest.mark.parametrize("apart", [False, True])
def test_an_id_in_two_partitions_is_one_row_and_nothing_is_derived_from_one_to_the_other(
    take: Take, apart: bool
) -> None:
    """They were added to the topic while it was in use: ids then continue in another partition."""
    reader = Reader(take())
    reader.read([raw(0, record(TransactionState.ONGOING)._replace(transactional_id="app-2"), 5)])
    one, other = raw(0, BEGUN), raw(1, record(TransactionState.PREPARE_ABORT, 4, 900), 5)
    for look in [[one], [other]] if apart else [[one, other]]:
        reader.read(look)
    row = Transaction.objects.get(transactional_id="app-1")
    assert (row.state, row.log_partition, row.log_offset) == ("PrepareAbort", 5, 1)
    counted = dict(StateCount.objects.values_list("state", "n"))
    assert {state: n for state, n in counted.items() if n} == {"Ongoing": 1, "PrepareAbort": 1}
    assert not TransitionRecord.objects.exists()


def test_a_commit_before_its_start_is_a_commit_and_no_duration(take: Take) -> None:
    ends = (
        record(TransactionState.PREPARE_COMMIT, 3, -900),
        record(TransactionState.COMPLETE_COMMIT, 3, -5_000),
    )
    check(take(), stream_of(record(TransactionState.COMPLETE_COMMIT), BEGUN, *ends), [3])
    assert last_transitions()[-1] == (TransitionKind.COMMIT, Confidence.CERTAIN, TransitionReason.SAME_EPOCH)
    minute = Tally.objects.get(span_s=60, application="app")
    assert histograms.unpack_histogram(minute.open_times) == {}
    assert histograms.unpack_histogram(minute.marker_times) == {0: 1}


def test_a_duplicated_record_is_no_second_end(take: Take) -> None:
    check(take(), stream_of(BEGUN, PREPARED, PREPARED, ABORTED, ABORTED), [2, 3])
    assert [each for each in last_transitions() if each[1] is Confidence.CERTAIN] == [FIRST]


def test_ten_thousand_partitions_are_kept_whole(take: Take) -> None:
    many = (TopicPartitions("orders", tuple(range(10_000))),)
    check(take(), stream_of(BEGUN, BEGUN._replace(partitions=many)), [1])
    row = Transaction.objects.get()
    assert row.partition_count == 10_000
    assert transaction_queries.partitions_of(row) == many


# It asks no database.
@pytest.mark.sql("sqlite")
def test_a_transaction_that_grows_to_thousands_of_partitions_leaves_little_in_memory() -> None:
    """Each record names the whole list: keeping every one of them would take gigabytes."""
    stream = stream_of(
        *(
            BEGUN._replace(partitions=(TopicPartitions("orders", tuple(range(10_000, 10_000 + size))),))
            for size in range(1, 3_000, 10)
        )
    )
    tracemalloc.start()
    try:
        for each in stream:
            fact = offline_replay.decoded_rows(each)
            assert isinstance(fact, TransactionRecord)
            transaction_sql.packed_partitions(fact.partitions or ())
        del fact
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000


def test_the_replay_finds_lost_duplicated_and_miscounted_rows(take: Take) -> None:
    """The oracle itself: each change below to the rows is found."""
    stream = random_stream(random.Random(1))
    check(take(), stream, [50])
    expected = offline_replay.replay_records(stream)
    told_twice = TransitionRecord.objects.earliest("id")
    harms: list[Callable[[], object]] = [
        lambda: TransitionRecord.objects.create(**_but_id(told_twice) | {"topic_id": "topic-2"}),
        lambda: TransitionRecord.objects.latest("id").delete(),
        lambda: Transaction.objects.update(producer_epoch=F("producer_epoch") + 1),
        lambda: Transaction.objects.update(recent=b""),
        lambda: Tally.objects.filter(span_s=3600).update(open_times="{}"),
        lambda: StateCount.objects.update(n=F("n") + 1),
    ]
    for harm in harms:
        with transaction.atomic():
            harm()
            assert offline_replay.differences(expected, offline_replay.stored_rows(connection.cursor()))
            transaction.set_rollback(True)
    assert not offline_replay.differences(expected, offline_replay.stored_rows(connection.cursor()))


def _but_id(row: TransitionRecord) -> dict[str, object]:
    return {
        each.attname: getattr(row, each.attname) for each in row._meta.concrete_fields if each.name != "id"
    }
