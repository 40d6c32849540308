"""Transactional commits that are not decided, read from `__consumer_offsets` itself: whose they are for sure.

OffsetFetch answers only UNSTABLE_OFFSET_COMMIT. The records behind a partition's last stable offset name
group, topic and offset; the headers of their batches name the producer. Together they name the transaction.
Where a transaction was read while it was open, the partition is read on up to its marker.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from collectors.kafka.clients import CannotSee, consumer_properties
from collectors.kafka.internal_topics import CONSUMER_OFFSETS
from fenceline import facts
from fenceline.decode.consumer_offsets import OffsetCommit, decode_record
from fenceline.decode.record_batches import RecordBatch
from fenceline.kafka.added_offsets import AddedOffset, AddedOffsets, newest_offsets
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Unseen
from transaction_admin.reads import ClusterReads

#: How much one poll reads of one partition; the next continues there.
_MOST_BYTES, _MOST_FETCHES = 1024 * 1024, 4
_TIMEOUT_S = 1.0


#: How many records behind a last stable offset reading goes on in order; further back it begins anew there.
_MOST_BEHIND = 20_000


class Undecided(NamedTuple):
    """A pending commit of a group for a partition, and who would decide it."""

    added: AddedOffset
    producer_id: int
    producer_epoch: int

    @property
    def where(self) -> facts.TopicPartition:
        """Return the partition that it is for."""
        return facts.TopicPartition(self.added.topic, self.added.partition)


@dataclass(frozen=True, slots=True)
class PendingRead:
    """What one poll read: pending commits, and by transaction and partition what was added so far.

    `added` has those whose marker this poll has read, too: once, and complete.
    """

    undecided: Sequence[Undecided]
    added: Sequence[AddedOffsets]


@dataclass(slots=True)
class _Held:
    """The records of one partition, from a last stable offset on."""

    number: int
    lso: int
    #: Up to here.
    at: int
    #: The end when reading began. A transaction whose marker lies before it may have begun before `at`.
    first_end: int
    opened: dict[int, list[Undecided]] = field(default_factory=dict)
    #: Producers whose marker was read: what they write after it is read from the first record on.
    ended: set[int] = field(default_factory=set)
    #: Producers that were open while the LSO was stuck: reading goes on up to their markers.
    awaited: set[int] = field(default_factory=set)

    def undecided(self) -> Iterator[Undecided]:
        """Yield commits behind the LSO: those before it are decided, though the marker is not read yet."""
        for written in self.opened.values():
            yield from (commit for commit in written if commit.added.log_offset >= self.lso)

    def end(self, producer_id: int, marker_at: int) -> list[Undecided]:
        """Return everything a producer wrote up to its marker; nothing where the beginning may be missing."""
        is_whole = marker_at >= self.first_end or producer_id in self.ended
        self.ended.add(producer_id)
        self.awaited.discard(producer_id)
        written = self.opened.pop(producer_id, [])
        return written if is_whole else []


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

    def read_pending(
        self, lagging: Collection[int], offsets: Mapping[int, Offsets], now_ms: int
    ) -> PendingRead:
        """Return what is pending in partitions whose last stable offset lags; of those not seen, nothing.

        `offsets` are those of every partition: what was pending is read on to its marker.
        """
        states = {number: self._state(number, ends) for number, ends in offsets.items()}
        self._held = {number: held for number, held in states.items() if number in lagging or held.awaited}
        ended = self._read(offsets, now_ms)
        for number in self._held.keys() & set(lagging):
            self._held[number].awaited |= self._held[number].opened.keys()
        undecided = [commit for held in self._held.values() for commit in held.undecided()]
        return PendingRead(undecided, [*ended, *self._opened(offsets, now_ms)])

    def _state(self, number: int, now: Offsets) -> _Held:
        before = self._held.get(number)
        if before is None:
            return _Held(number, now.lso, now.lso, now.high_watermark)
        if before.lso != now.lso and (not before.awaited or now.lso - before.at > _MOST_BEHIND):
            return _Held(number, now.lso, now.lso, now.high_watermark)
        before.lso = now.lso
        return before

    def _read(self, offsets: Mapping[int, Offsets], now_ms: int) -> list[AddedOffsets]:
        """Read on in every partition; return what transactions with a new marker added."""
        batches = {
            number: read
            for number, held in self._held.items()
            if (read := self._batches(number, held.at, offsets[number].high_watermark))
        }
        commits, whole = self._commits({number: read[-1].last + 1 for number, read in batches.items()})
        return [
            _added(number, written, now_ms, marker=marker)
            for number, read in batches.items()
            if number in whole
            for marker, written in _apply(self._held[number], read, commits[number])
        ]

    def _opened(self, offsets: Mapping[int, Offsets], now_ms: int) -> Iterator[AddedOffsets]:
        for number, held in self._held.items():
            unread = max(0, offsets[number].high_watermark - held.at)
            yield from (
                _added(number, commit, now_ms, unread=unread) for commit in held.opened.values() if commit
            )

    def _batches(self, number: int, at: int, end: int) -> list[RecordBatch]:
        """Return the headers of the next batches from `at` on."""
        read: list[RecordBatch] = []
        for _ in range(_MOST_FETCHES):
            if at >= end:
                break
            where = facts.TopicPartition(CONSUMER_OFFSETS, number)
            answer = self._reads.batch_headers(where, at, most_bytes=_MOST_BYTES)
            if isinstance(answer, Unseen) or not answer.batches:
                break
            read += answer.batches
            at = answer.next
        return read

    def _commits(self, ends: Mapping[int, int]) -> tuple[dict[int, dict[int, OffsetCommit]], set[int]]:
        """Return the commits from the read position on, by partition and offset, decided or not.

        Also return the partitions that were read up to their end in `ends`.
        """
        newest: dict[int, dict[int, OffsetCommit]] = {number: {} for number in ends}
        left, until = set(ends), time.monotonic() + _TIMEOUT_S
        if not ends:
            return newest, left
        try:
            consumer = self._open()
            consumer.assign([TopicPartition(CONSUMER_OFFSETS, n, self._held[n].at) for n in ends])
            while left and time.monotonic() < until:
                for message in consumer.consume(10_000, 0.1):
                    _take(message, newest, left, ends)
            consumer.unassign()
        except (CannotSee, KafkaException):
            # The next poll reads the rest.
            return newest, set()
        return newest, ends.keys() - left

    def _open(self) -> Consumer:
        if self._consumer is None:
            settings = {**consumer_properties(self._properties), "queued.min.messages": 10_000}
            self._consumer = Consumer({**settings, "error_cb": lambda _: None})
        return self._consumer


def _take(
    message: Message, newest: Mapping[int, dict[int, OffsetCommit]], left: set[int], ends: Mapping[int, int]
) -> None:
    number, offset = message.partition(), message.offset()
    if number is None or offset is None or number not in newest:
        return
    if message.error() is not None or offset >= ends[number] - 1:
        # Its end as librdkafka announces it: what comes last may be a marker, which is never delivered.
        left.discard(number)
    if message.error() is None:
        record = decode_record(message.key(), message.value())
        if isinstance(record, OffsetCommit):
            newest[number][offset] = record


def _apply(
    held: _Held, batches: Sequence[RecordBatch], commits: Mapping[int, OffsetCommit]
) -> list[tuple[str, list[Undecided]]]:
    """Go through batches; return markers with the commits of the transactions that they end."""
    ended = []
    for batch in batches:
        if batch.marker:
            ended.append((batch.marker, held.end(batch.producer_id, batch.first)))
        elif batch.transactional:
            held.opened.setdefault(batch.producer_id, []).extend(_of_batch(held.number, batch, commits))
    held.at = batches[-1].last + 1
    return [(marker, written) for marker, written in ended if written]


def _of_batch(number: int, batch: RecordBatch, commits: Mapping[int, OffsetCommit]) -> Iterator[Undecided]:
    for at in range(batch.first, batch.last + 1):
        record = commits.get(at)
        if record is not None:
            what = record.group, record.topic, record.partition, record.offset
            added = AddedOffset(*what, record.commit_ms, number, at)
            yield Undecided(added, batch.producer_id, batch.producer_epoch)


def _added(
    number: int, written: Sequence[Undecided], now_ms: int, *, marker: str = "", unread: int = 0
) -> AddedOffsets:
    """Return what one transaction wrote to a partition. Its epoch is the newest."""
    producer = written[-1].producer_id, written[-1].producer_epoch
    offsets = [commit.added for commit in written]
    return newest_offsets(offsets, producer, number, marker=marker, unread=unread, read_ms=now_ms)
