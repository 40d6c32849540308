"""Proves that what no coordinator should write is right or marked, through the store: clocks, holes, doubles.

Of any stream of records, however damaged and wherever it is cut into saves, the database keeps what one
offline fold of all of it gives (tests/offline.py).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from django.db import connection

from dashboard import store
from dashboard.leases import Lease
from dashboard.models import Collector, StateCount, Transaction
from fenceline.encode import encode_key, encode_value
from fenceline.facts import Look, PositionMove, RawRecord, State, TopicPartitions, TransactionRecord
from tests import offline
from tests.db.conftest import NOW_MS
from tests.fenceline.walks import Walk
from tests.kafka import observe

Take = Callable[..., Lease]
PARTITION = 3
HOUR_MS = 3_600_000


def raw(offset: int, record: TransactionRecord, partition: int = PARTITION) -> observe.RawRecord:
    key, value = encode_key(record.transactional_id), encode_value(record)
    return observe.RawRecord(partition, offset, record.updated_ms, key, value)


class Reader:
    """A tail that saves what it is given, and knows as little as a tail knows."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._next: dict[int, int] = {}

    def read(self, records: Sequence[observe.RawRecord]) -> None:
        """Save one look at these records."""
        parts: defaultdict[int, list[observe.RawRecord]] = defaultdict(list)
        for record in records:
            parts[record.partition].append(record)
        looked = {partition: _by_key(found) for partition, found in parts.items()}
        moves = tuple(self._move(partition, found) for partition, found in parts.items())
        store.save_look(
            self._lease, Look(looked, moves, len(records)), topic_id="topic-1", rate=1.0, now_ms=NOW_MS
        )

    def _move(self, partition: int, records: Sequence[observe.RawRecord]) -> PositionMove:
        previous = self._next.get(partition)
        following, holes = previous or 0, []
        for record in records:
            if record.offset != following:
                holes.append(record.offset)
            following = record.offset + 1
        self._next[partition] = following
        return PositionMove(partition, previous, following, following, tuple(holes))


def _by_key(records: Sequence[observe.RawRecord]) -> dict[bytes, list[RawRecord]]:
    found: defaultdict[bytes, list[RawRecord]] = defaultdict(list)
    for record in records:
        at_ms = record.timestamp_ms if record.value is None else None
        found[record.key or b""].append(RawRecord(record.value, record.offset, at_ms))
    return found


def check(lease: Lease, stream: Sequence[observe.RawRecord], cuts: Sequence[int]) -> None:
    """Save a stream in parts, and hold what is kept against a replay."""
    reader = Reader(lease)
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        reader.read(stream[start:end])
    wrong = offline.differences(offline.replayed(stream), offline.stored(connection.cursor()))
    assert not wrong, "\n".join(wrong)


def lived(dice: random.Random) -> list[observe.RawRecord]:
    """Return records of some ids as a coordinator writes them; some expire, and some of those come back."""
    walks = [Walk(f"app-{number}", random.Random(dice.random())) for number in range(5)]
    stream: list[observe.RawRecord] = []
    for _ in range(100):
        walk = dice.choice(walks)
        for record in walk.step():
            gone = not isinstance(record, TransactionRecord)
            value = None if gone else encode_value(record)
            key = encode_key(walk.name)
            stream.append(observe.RawRecord(PARTITION, len(stream), walk.now_ms, key, value))
    return stream


def damaged(stream: Sequence[observe.RawRecord], dice: random.Random) -> Iterator[observe.RawRecord]:
    """Yield a stream with some of every damage, in offsets that follow each other but for the holes."""
    offset = 0
    for record in stream:
        for each in dice.choices([_whole, *DAMAGES], [60] + [1] * len(DAMAGES))[0](record, dice):
            yield each._replace(offset=offset)
            offset += 1
        if dice.random() < 0.03:
            offset += dice.randrange(1, 30)


def _whole(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
    return [record]


def _doubled(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
    return [record, record]


def _unknown_version(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
    return [record._replace(value=b"\x00\x07" + record.value[2:])] if record.value else [record]


def _lost(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
    return []


def _gone(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
    return [record._replace(value=None)]


def _changed(
    change: Callable[[TransactionRecord, random.Random], TransactionRecord],
) -> Callable[[observe.RawRecord, random.Random], list[observe.RawRecord]]:
    def changed(record: observe.RawRecord, dice: random.Random) -> list[observe.RawRecord]:
        fact = offline.decoded(record)
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
    _doubled, _unknown_version, _lost, _gone, *map(_changed, (_off_clock, _start_after_end, _epoch_jump, _other_producer)),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_kept_as_one_fold_of_all_of_it_wherever_it_is_cut(take: Take, seed: int) -> None:
    dice = random.Random(seed)
    stream = list(damaged(lived(dice), dice))
    check(take(), stream, [dice.randrange(len(stream)) for _ in range(12)])
