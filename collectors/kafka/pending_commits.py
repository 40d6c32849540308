"""Transactional commits that are not decided, read from `__consumer_offsets` itself: whose they are for sure.

OffsetFetch answers only UNSTABLE_OFFSET_COMMIT. The records behind a partition's last stable offset name
group, topic and offset; the headers of their batches name the producer. Together they name the transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from collectors.kafka.clients import consumer_properties
from collectors.kafka.internal_topics import CONSUMER_OFFSETS
from fenceline import facts
from fenceline.batches import RecordBatch
from fenceline.decode.consumer_offsets import OffsetCommit, decode_record
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Unseen
from transaction_admin.reads import ClusterReads

#: How much one poll reads of one partition; the next continues there.
_MOST_BYTES, _MOST_FETCHES = 1024 * 1024, 4
_TIMEOUT_S = 1.0


class Undecided(NamedTuple):
    """A pending commit of a group (escaped text) for a partition, and who would decide it."""

    group: str
    where: facts.TopicPartition
    offset: int
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class _Held:
    """What was read behind the last stable offset of one partition."""

    lso: int
    #: Up to here.
    at: int
    opened: dict[int, list[Undecided]] = field(default_factory=dict)


class PendingReader:
    """Reads what is pending in partitions of `__consumer_offsets`. `properties` are librdkafka's."""

    def __init__(self, properties: Mapping[str, str], reads: ClusterReads) -> None:
        self._properties = properties
        self._reads = reads
        #: Made when there is something to read: it looks up its group's coordinator, which creates the topic.
        self._consumer: Consumer | None = None
        self._held: dict[int, _Held] = {}

    def close(self) -> None:
        """Close the consumer and its connections."""
        if self._consumer is not None:
            self._consumer.close()

    def read_pending(self, offsets: Mapping[int, Offsets]) -> list[Undecided]:
        """Return what is pending in partitions whose last stable offset lags; of those not seen, nothing."""
        self._held = {number: self._state(number, each.lso) for number, each in offsets.items()}
        batches = {
            number: found
            for number, each in offsets.items()
            if (found := self._batches(number, self._held[number].at, each.high_watermark))
        }
        commits, whole = self._commits({number: found[-1].last + 1 for number, found in batches.items()})
        for number, found in batches.items():
            if number in whole:
                _apply(self._held[number], found, commits[number])
        return [each for held in self._held.values() for some in held.opened.values() for each in some]

    def _state(self, number: int, lso: int) -> _Held:
        before = self._held.get(number)
        return before if before is not None and before.lso == lso else _Held(lso, lso)

    def _batches(self, number: int, at: int, end: int) -> list[RecordBatch]:
        """Return the headers of the next batches from `at` on."""
        found: list[RecordBatch] = []
        for _ in range(_MOST_FETCHES):
            if at >= end:
                break
            where = facts.TopicPartition(CONSUMER_OFFSETS, number)
            answer = self._reads.batch_headers(where, at, most_bytes=_MOST_BYTES)
            if isinstance(answer, Unseen) or not answer.batches:
                break
            found += answer.batches
            at = answer.next
        return found

    def _commits(self, ends: Mapping[int, int]) -> tuple[dict[int, dict[int, OffsetCommit]], set[int]]:
        """Return the commits from the read position on, by partition and offset, decided or not.

        With them the partitions that were read up to their end of `ends`.
        """
        found: dict[int, dict[int, OffsetCommit]] = {number: {} for number in ends}
        left, until = set(ends), time.monotonic() + _TIMEOUT_S
        if not ends:
            return found, left
        try:
            consumer = self._open()
            consumer.assign([TopicPartition(CONSUMER_OFFSETS, n, self._held[n].at) for n in ends])
            while left and time.monotonic() < until:
                for message in consumer.consume(10_000, 0.1):
                    _take(message, found, left, ends)
            consumer.unassign()
        except KafkaException:
            # What is left is read by the next poll.
            return found, set()
        return found, ends.keys() - left

    def _open(self) -> Consumer:
        if self._consumer is None:
            settings = {**consumer_properties(self._properties), "queued.min.messages": 10_000}
            self._consumer = Consumer({**settings, "error_cb": lambda _: None})
        return self._consumer


def _take(
    message: Message, found: Mapping[int, dict[int, OffsetCommit]], left: set[int], ends: Mapping[int, int]
) -> None:
    number, offset = message.partition(), message.offset()
    if number is None or offset is None or number not in found:
        return
    if message.error() is not None or offset >= ends[number] - 1:
        # Its end as librdkafka announces it: what comes last may be a marker, which is never delivered.
        left.discard(number)
    if message.error() is None:
        record = decode_record(message.key(), message.value())
        if isinstance(record, OffsetCommit):
            found[number][offset] = record


def _apply(held: _Held, batches: list[RecordBatch], commits: Mapping[int, OffsetCommit]) -> None:
    for batch in batches:
        if batch.marker:
            held.opened.pop(batch.producer_id, None)
        elif batch.transactional:
            held.opened.setdefault(batch.producer_id, []).extend(_of_batch(batch, commits))
    held.at = batches[-1].last + 1


def _of_batch(batch: RecordBatch, commits: Mapping[int, OffsetCommit]) -> Iterator[Undecided]:
    for offset in range(batch.first, batch.last + 1):
        record = commits.get(offset)
        if record is not None:
            where = facts.TopicPartition(record.topic, record.partition)
            yield Undecided(record.group, where, record.offset, batch.producer_id, batch.producer_epoch)
