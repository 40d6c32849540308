"""Proves what the tail of markers reads, skips and says it has missed, on answers that are given to it."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from collectors.kafka import marker_tail
from collectors.kafka.marker_tail import MarkerTail, merge_markers
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.fold.marker_history import EndMarker
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Batches, Unseen
from transaction_admin.kafka_reads import ClusterReads

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
    monkeypatch.setattr(marker_tail.time, "monotonic", lambda: now[0])
    return now


def tail_of(log: Log, megabytes: float = 4) -> MarkerTail:
    return MarkerTail(cast(ClusterReads, cast(Any, log)), megabytes)


def offsets(tail: MarkerTail) -> list[int]:
    return [marker.offset for markers in tail.read().values() for marker in markers]


def test_it_begins_at_the_end_and_reads_each_marker_once(clock: list[float]) -> None:
    log = Log()
    log.ends[HERE] = 5
    tail = tail_of(log)
    tail.follow([HERE])
    assert offsets(tail) == []
    log.ends[HERE] = 8
    assert offsets(tail) == [5, 6, 7]
    assert offsets(tail) == []
    assert tail.blind == {}


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


def test_a_limit_of_zero_reads_nothing(clock: list[float]) -> None:
    log = Log()
    tail = tail_of(log, megabytes=0)
    tail.follow([HERE])
    assert (offsets(tail), log.asked) == ([], [])
    assert "markers_mb" in tail.blind[HERE]


def test_readings_are_merged_in_order() -> None:
    first, second = (EndMarker(HERE, offset, 7, 3, True, offset) for offset in (1, 2))
    assert merge_markers({7: [first]}, {7: [second], 8: []}) == {7: [first, second], 8: []}
