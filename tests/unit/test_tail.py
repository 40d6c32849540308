"""Proves what a tail, and the tail of markers, claims, keeps, skips and says it has missed where a real
broker cannot be made to answer so: by a reader whose answers a test writes."""

import time
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from collectors.kafka import internal_topics, markers
from collectors.kafka.internal_topics import CannotSee, Tail, TopicReplaced
from collectors.kafka.markers import MarkerTail, merge_markers
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import RawRecord, TopicPartition
from fenceline.kafka.fold.marker_history import EndMarker
from fenceline.kafka.partitions import Offsets
from tests.raw_batches import raw_batch
from transaction_admin.api import TRANSACTION_STATE, Batches, Cost, Leader, Topology, Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.log_reader import Answer, Fetched, OutOfRange
from transaction_admin.partition_requests import EARLIEST

TOPIC_ID = "the-id"
RECORD = (b"\0\0\0\1a", b"v" * 1_000)


class WrittenReader:
    """A reader of logs that a test makes: partition -> how many records it has, all of one id."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends, self.numbers = ends, set(ends)
        self.told_ends: dict[int, int] = {}
        #: How many records an answer has at most, and partitions that no answer has.
        self.most, self.silent = 1_000, set[int]()
        self.lost: set[int] = set()
        self.starts: Mapping[int, int] = {}
        self.epochs: Mapping[int, int] = {}
        self.replaced, self.held_back = False, False
        self.cost = Cost(0, 0.0)

    def describe(self) -> Topology:
        leader = Leader(1, 1, (1,), (1,))
        found = {TopicPartition(TRANSACTION_STATE, number): leader for number in self.numbers}
        return Topology({1: "host:1"}, found, {TRANSACTION_STATE: TOPIC_ID})

    def ask_offsets(self, partitions: Collection[int], when: int) -> dict[int, int]:
        ends = self.ends | self.told_ends
        return {number: 0 if when == EARLIEST else ends[number] for number in partitions}

    def is_held_back(self) -> bool:
        return self.held_back

    def forget_requests(self) -> None:
        self.starts = {}

    def request(self, starts: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        self.starts, self.epochs = dict(starts), dict(epochs)

    def receive(self, wait_s: float) -> dict[int, Answer]:
        left, answers = self.most, dict[int, Answer]()
        for number, start in self.starts.items():
            if number in self.lost:
                answers[number] = OutOfRange()
            elif number not in self.silent:
                read = min(left, max(0, self.ends[number] - start))
                left -= read
                answers[number] = self._fetched(number, start, read)
        return answers

    def _fetched(self, number: int, start: int, read: int) -> Fetched:
        key, value = RECORD
        records = [(key, RawRecord(value, offset, 0)) for offset in range(start, start + read)]
        end = self.ends[number]
        return Fetched(raw_batch(records) if records else b"", end, end, ())


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> WrittenReader:
    made = WrittenReader({0: 5, 1: 5})
    monkeypatch.setattr(internal_topics, "LogReader", lambda *_, **__: made)
    monkeypatch.setattr(internal_topics, "_ASK_ENDS_EVERY_S", -1.0)
    monkeypatch.setattr(internal_topics, "_ASK_ENDS_SELDOM_S", -1.0)
    return made


def opened(positions: Mapping[int, int] | None = None) -> Tail:
    tail = Tail({"bootstrap.servers": "host:1"})
    tail.seek(TOPIC_ID, positions or {})
    return tail


def saved(tail: Tail) -> dict[int, int]:
    return {number: offset for number, offset in tail._saved.items() if offset is not None}


def test_the_end_is_claimed_once_each_partition_has_answered(reader: WrittenReader) -> None:
    reader.silent = {1}
    reader.ends[1] = 0
    tail = opened()
    assert [tail.poll(0.0).seen_through_ms for _ in range(3)] == [None] * 3
    reader.silent = set()
    assert tail.poll(0.0).seen_through_ms is not None


def test_an_end_before_what_was_read_claims_nothing_until_a_fetch_has_answered(reader: WrittenReader) -> None:
    tail = opened()
    assert tail.poll(0.0).seen_through_ms is not None
    # A leader that was elected unclean: of its shorter log we have read another end.
    reader.told_ends, reader.silent = {1: 3}, {1}
    assert [tail.poll(0.0).seen_through_ms for _ in range(3)] == [None] * 3
    reader.silent, reader.lost = set(), {1}
    with pytest.raises(TopicReplaced, match="no longer holds the record that came next"):
        tail.poll(0.0)


def test_it_names_the_epoch_of_the_last_batch_that_it_read_and_returns_it_with_the_position(
    reader: WrittenReader,
) -> None:
    tail = opened({0: 5})
    tail.poll(0.0)
    assert reader.epochs.get(0) is None, "it has read nothing there"
    tail.poll(0.0)
    assert reader.epochs == {1: 0}
    tail = opened()
    batch = tail.poll(0.0)
    assert [(move.partition, move.epoch) for move in batch.moves] == [(0, 0), (1, 0)]
    tail.mark_saved(batch)
    reader.ends[2], reader.numbers = 0, {0, 1, 2}
    tail.confirm_partitions(TOPIC_ID)
    tail.poll(0.0)
    assert reader.epochs == {0: 0, 1: 0}, "what was saved is kept where a partition comes"
    for saved_epochs in {}, {0: 7, 1: -1}:
        tail.seek(TOPIC_ID, {0: 5, 1: 5, 2: 0}, saved_epochs)
        tail.poll(0.0)
        assert reader.epochs == {number: epoch for number, epoch in saved_epochs.items() if epoch >= 0}


def test_the_end_is_asked_for_seldom_while_a_quota_holds_us_back(reader: WrittenReader) -> None:
    tail = opened()
    tail.poll(0.0)
    reader.held_back = True
    reader.ends[0] = 6
    look = tail.poll(0.0)
    assert (look.count, look.seen_through_ms) == (1, None)
    reader.held_back = False
    assert tail.poll(0.0).seen_through_ms is not None


@pytest.mark.parametrize("held_back", [False, True])
def test_records_that_never_come_are_a_blind_spot_that_names_a_quota(
    reader: WrittenReader, monkeypatch: pytest.MonkeyPatch, held_back: bool
) -> None:
    monkeypatch.setattr(internal_topics, "_STALLED_S", -1.0)
    reader.silent, reader.held_back = {0, 1}, held_back
    tail = opened()
    with pytest.raises(CannotSee, match="quota" if held_back else "although some are there"):
        tail.poll(0.0)


def test_a_pause_between_two_polls_is_no_stall(
    reader: WrittenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = opened()
    tail.poll(0.0)
    later = time.monotonic() + 3_600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    # The request of before has nothing; what came meanwhile is in the next answer.
    reader.ends[0], reader.silent = 6, {0}
    assert tail.poll(0.0).seen_through_ms is None
    reader.silent = set()
    assert tail.poll(0.0).count == 1


def test_a_topic_that_was_made_again_or_has_fewer_partitions_is_not_read_on(reader: WrittenReader) -> None:
    reader.numbers = {0}
    with pytest.raises(CannotSee, match="fewer partitions"):
        opened({0: 5, 1: 5})
    reader.numbers = {0, 1}
    tail = opened({0: 5, 1: 5})
    assert tail.poll(0.0).seen_through_ms is not None
    reader.replaced = True
    with pytest.raises(TopicReplaced, match="made again"):
        tail.poll(0.0)


def test_partitions_that_were_added_are_read_and_claimed_only_then(reader: WrittenReader) -> None:
    tail = opened()
    tail.mark_saved(tail.poll(0.0))
    reader.ends[2], reader.silent = 1, {2}
    reader.numbers.add(2)
    tail.confirm_partitions(TOPIC_ID)
    assert tail.poll(0.0).seen_through_ms is None
    reader.silent = set()
    look = tail.poll(0.0)
    assert (look.count, look.seen_through_ms is not None) == (1, True)


def test_what_is_held_of_a_large_partition_is_bounded(
    reader: WrittenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another partition that goes on all the time must not delay it until its end."""
    monkeypatch.setattr(internal_topics, "_FOLD_BYTES", 1_000_000)
    monkeypatch.setattr(internal_topics, "_HELD_BYTES", 4_000_000)
    reader.ends = {0: 200, 1: 1_000_000}
    tail, held = opened(), []
    for _ in range(20):
        reader.ends[0] += 1
        tail.mark_saved(tail.poll(0.0))
        held.append(sum(len(part.data) for part in tail._held))
    assert 0 < max(held) <= 4_000_000
    assert saved(tail)[1] > 10_000


def test_what_is_held_is_not_read_again_in_the_next_slice(reader: WrittenReader) -> None:
    reader.ends = {0: 200, 1: 1_000_000}
    tail = opened()
    tail.mark_saved(tail.poll(0.0))
    assert tail._held
    assert tail.is_at(TOPIC_ID, saved(tail))
    assert not tail.is_at(TOPIC_ID, {**saved(tail), 1: 5})


def test_what_is_held_is_read_again_where_the_rest_was_not_saved(reader: WrittenReader) -> None:
    reader.ends = {0: 200, 1: 120_000}
    tail = opened()
    tail.poll(0.0)
    assert tail._held
    assert not tail.is_at(TOPIC_ID, saved(tail))
    tail.seek(TOPIC_ID, {})
    count, reader.most = 0, 10_000
    while saved(tail) != reader.ends:
        look = tail.poll(0.0)
        tail.mark_saved(look)
        count += look.count
    assert count == sum(reader.ends.values())


HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Log:
    """A cluster of logs in memory: batches of one offset each, some of them in one answer."""

    def __init__(self, at_once: int = 100) -> None:
        self.ends = {HERE: 0, THERE: 0}
        self.refused: dict[TopicPartition, str] = {}
        self.asked: list[Mapping[TopicPartition, int]] = []
        self._at_once = at_once

    def list_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offsets | Unseen]:
        return {where: self._unseen(where) or Offsets(0, 0, self.ends[where], 1) for where in partitions}

    def batch_headers_from(
        self, starts: Mapping[TopicPartition, int], *, most_bytes: int
    ) -> Mapping[TopicPartition, Batches | Unseen]:
        self.asked.append(starts)
        return {where: self._unseen(where) or self._from(where, start) for where, start in starts.items()}

    def _unseen(self, where: TopicPartition) -> Unseen | None:
        return Unseen(str(where), self.refused[where]) if where in self.refused else None

    def _from(self, where: TopicPartition, start: int) -> Batches:
        following = min(start + self._at_once, self.ends[where])
        batches = tuple(
            RecordBatch(
                offset, offset, 7, 3, transactional=True, marker="commit", records=1, max_timestamp_ms=offset
            )
            for offset in range(start, following)
        )
        return Batches(batches, following, self.ends[where])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(markers.time, "monotonic", lambda: now[0])
    return now


def tail_of(log: Log, megabytes: float = 4) -> MarkerTail:
    return MarkerTail(cast(ClusterReads, cast(Any, log)), megabytes)


def offsets(tail: MarkerTail) -> list[int]:
    return [marker.offset for markers in tail.read().values() for marker in markers]


def test_it_begins_at_the_end_and_reads_each_marker_once(clock: list[float]) -> None:
    log = Log()
    log.ends[HERE] = 5
    tail, never = tail_of(log), tail_of(log, megabytes=0)
    never.follow([HERE])
    assert (offsets(never), log.asked) == ([], []), "a limit of zero reads nothing"
    assert "markers_mb" in never.blind[HERE]
    tail.follow([HERE])
    assert offsets(tail) == []
    log.ends[HERE] = 8
    assert offsets(tail) == [5, 6, 7]
    assert offsets(tail) == []
    assert tail.blind == {}
    first, second = (EndMarker(HERE, offset, 7, 3, True, offset) for offset in (1, 2))
    assert merge_markers({7: [first]}, {7: [second], 8: []}) == {7: [first, second], 8: []}


def test_what_is_written_too_fast_is_skipped_and_said(clock: list[float]) -> None:
    log = Log(at_once=2)
    tail = tail_of(log)
    tail.follow([HERE, THERE])
    log.ends |= {HERE: 20, THERE: 3}
    assert len(offsets(tail)) == 4 * 2 + 3
    assert set(tail.blind) == {HERE}
    log.ends[HERE] = 21
    assert offsets(tail) == [20], "it goes on at the end"
    assert tail.blind == {}


def test_an_election_loses_nothing_and_a_refusal_is_asked_seldom(clock: list[float]) -> None:
    log = Log()
    tail = tail_of(log)
    tail.follow([HERE])
    log.ends[HERE], log.refused[HERE] = 1, "it does not lead the partition now"
    assert offsets(tail) == []
    assert set(tail.blind) == {HERE}
    del log.refused[HERE]
    assert offsets(tail) == [0]
    assert tail.blind == {}

    log.refused[HERE] = "no READ on this topic"
    for _ in range(5):
        tail.follow([HERE])
        tail.read()
        clock[0] += 1
    asked = len(log.asked)
    tail.follow([HERE])
    tail.read()
    assert len(log.asked) == asked, "given up for a while"
    assert set(tail.blind) == {HERE}
    del log.refused[HERE]
    clock[0] += 10
    log.ends[HERE] = 9
    tail.follow([HERE])
    tail.read()
    log.ends[HERE] = 10
    assert (offsets(tail), tail.blind) == ([9], {})


def test_a_partition_is_forgotten_a_while_after_its_last_transaction(clock: list[float]) -> None:
    log = Log()
    tail = tail_of(log)
    tail.follow([HERE])
    clock[0] += 29
    tail.follow([])
    log.ends[HERE] = 1
    assert offsets(tail) == [0]
    clock[0] += 2
    tail.follow([])
    log.ends[HERE] = 2
    assert offsets(tail) == []
