"""The resumable tail of an internal topic: a warm consumer that reads in offset order.

It uses neither the database nor Celery. Its driver loads positions with `seek`, takes a `TailBatch` from
`poll`, saves it, and confirms with `mark_saved`; one that was not saved is read again after the next `seek`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from collectors.kafka.clients import (
    CannotSee,
    Complaints,
    Requests,
    client_settings,
    consumer_properties,
    refused_configuration,
)
from collectors.kafka.polled_records import PolledRecords
from collectors.kafka.reached_ends import ReachedEnds
from fenceline.facts import PositionMove, RawRecord, TailBatch

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
#: A named tuple made from a tuple, without the call to its own `__new__`: a third of the time.
_new = tuple.__new__
#: How many records one poll gathers while catching up.
_FOLD = 100_000
_BATCH = 10_000
#: How long a poll may gather while it is not far behind, in seconds: many records must not make it late.
_LONGEST_LIVE_S = 0.2
#: Seconds between two questions for the end of the topic, which prove how far we have seen.
_ASK_ENDS_EVERY_S = 1.0
_ASK_ENDS_SELDOM_S = 5.0
# Shorter than half a lease: a call that waits in vain must not cost the lease.
_TIMEOUT_S = 2.5
_RETRY_S = 0.05
#: librdkafka may wait for ever, for one after the cluster behind its address has become another one.
_STALLED_S = 10.0
#: What brokers answer for milliseconds after a topic was made, or while its leader moves (KIP-207).
PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
#: ListOffsets takes this for "the end" (`OffsetSpec.LATEST`).
_LATEST = -1


class NoSuchTopic(Exception):
    """Brokers say that the topic does not exist: nobody has needed it yet, it is gone, or it is hidden."""


class TopicReplaced(Exception):
    """The topic is not the one that was read before, or no longer holds what came next."""


class Tail:
    """A consumer of an internal topic, or of one shard of its partitions, with positions of its own.

    `properties` are librdkafka's. A shard has every `shards`-th partition, from number `shard` on. With
    `committed` it reads what is committed alone, and a partition's end is its last stable offset. Raises
    `CannotSee` from every method that sends requests to the cluster, with a text for operators.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        shard: int = 0,
        shards: int = 1,
        *,
        topic: str = TRANSACTION_STATE,
        committed: bool = False,
    ) -> None:
        self._properties = properties
        self._shard, self._shards = shard, shards
        self._topic = topic
        self._where = properties["bootstrap.servers"]
        self._complaints = Complaints()
        self._requests = Requests()
        settings = {
            **consumer_properties(properties),
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "error_cb": self._complaints.record_error,
            "stats_cb": self._requests.record_statistics,
        }
        try:
            self._consumer = Consumer(settings)
        except KafkaException as error:
            raise refused_configuration(error.args[0].str()) from error
        self.topic_id = ""
        self._partition_count = 0
        self._saved: dict[int, int | None] = {}
        #: Where reading began in partitions without a position, if that was not at offset 0.
        self._began: dict[int, int] = {}
        #: What was read and is returned by the next poll.
        self._held = PolledRecords()
        #: Whether reading began without any position and has not come to the end yet.
        self._cold = False
        #: Where reading began, and the next offset to read.
        self._first: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._ends_asked = 0.0
        self._reached = ReachedEnds()
        #: Partitions that a fetch has answered for since the last seek: only that shows that we may read.
        self._fetched: set[int] = set()
        self._moved = 0.0

    def close(self) -> None:
        """Close the consumer and its connections."""
        self._consumer.close()

    def is_at(self, topic_id: str, positions: Mapping[int, int]) -> bool:
        """Return whether the next poll begins exactly at these saved positions."""
        known = {partition: saved for partition, saved in self._saved.items() if saved is not None}
        # A partition has no position before a fetch has answered for it: it is where reading began.
        expected = self._first | known
        same_topic = topic_id == self.topic_id or not positions
        return bool(self._next) and same_topic and known == dict(positions) and expected == self._next

    def seek(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Begin at `positions`, and at the oldest record of partitions that have none.

        Raises `NoSuchTopic`, and `TopicReplaced` when `topic_id` ("" on the first poll) is another one's.
        """
        partitions = self._partitions()
        self.topic_id = self._ask_topic_id()
        self._refuse_another_topic(topic_id)
        oldest = self._ask_offsets(partitions, -2)
        self._saved = {p: positions.get(p) for p in partitions}
        self._cold = not positions
        self._held = PolledRecords()
        self._fetched.clear()
        self._began = {p: oldest[p] for p in partitions if p not in positions and oldest[p] > 0}
        self._first = {p: positions.get(p, oldest[p]) for p in partitions}
        self._next = dict(self._first)
        self._reached.forget_ends()
        self._ask_ends()
        self._refuse_positions_before(oldest)
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self._next.items()])
        self._moved = time.monotonic()

    def confirm_partitions(self, topic_id: str) -> None:
        """Take up partitions that the topic was given meanwhile.

        Raises `TopicReplaced` when the topic that is read is no longer `topic_id`.
        """
        self.topic_id = self._ask_topic_id()
        self._refuse_another_topic(topic_id)
        if len(range(self._shard, self._partition_count, self._shards)) > len(self._next):
            self.seek(topic_id, {p: saved for p, saved in self._saved.items() if saved is not None})

    def poll(self, timeout_s: float) -> TailBatch:
        """Read for up to `timeout_s`, longer while catching up, and return what there was.

        Raises `TopicReplaced` when the next record is gone, `CannotSee` also when nothing comes for 10 s
        although there is something.
        """
        seen, self._held, started = self._held, PolledRecords(), time.monotonic()
        patient = self._behind() > _FOLD
        while seen.count < _FOLD and (patient or time.monotonic() - started < _LONGEST_LIVE_S):
            messages = self._consume(timeout_s)
            self._take(messages, seen)
            if len(messages) < _BATCH:
                break
        # This request waits behind a long answer to a fetch; far from the end it returns nothing new.
        if time.monotonic() - self._ends_asked > (_ASK_ENDS_SELDOM_S if patient else _ASK_ENDS_EVERY_S):
            self._ask_ends()
        behind = self._behind()
        self._refuse_a_stall(bool(seen.count) or not behind)
        if patient:
            self._hold_back(seen)
        batch = TailBatch(
            records=seen.records,
            moves=self._moves(seen.holes),
            count=seen.count,
            compacted=seen.compacted,
            seen_through_ms=self._reached.take_reached_ms(self._next) if self._reads_all() else None,
            behind=behind,
            requests=self._requests.take_count(),
            cold=self._cold,
        )
        self._cold = self._cold and batch.seen_through_ms is None
        return batch

    def _hold_back(self, poll: PolledRecords) -> None:
        """Keep a half-read partition for the next poll: so each id is folded and saved once.

        While catching up, records come partition after partition, some thousands of each at once.
        """
        half = [p for p in poll.records if self._next[p] < self._ends[p]]
        if 0 < len(half) < len(poll.records):
            for p in half:
                self._held.take_over(poll, p)

    def unstable_offsets(self) -> dict[int, int]:
        """Return the last stable offset of partitions where the high watermark is beyond it.

        Records behind it are hidden from a tail of what is committed, until the transaction there has ended.
        A record that has just arrived appears the same: a blocked partition stays at one offset over several
        polls.
        """
        stable = {}
        for p, end in self._ends.items():
            # As the last answer to a fetch had it: no request is sent for it.
            known = self._consumer.get_watermark_offsets(TopicPartition(self._topic, p), cached=True)
            if known is not None and known[1] > end:
                stable[p] = end
        return stable

    def _behind(self) -> int:
        """Return the number of unread records at the last request of the ends."""
        return sum(max(0, end - self._next[p]) for p, end in self._ends.items())

    def mark_saved(self, batch: TailBatch) -> None:
        """Take the batch's positions as saved; the next poll begins there."""
        for move in batch.moves:
            self._saved[move.partition] = move.next
            self._began.pop(move.partition, None)

    def _consume(self, timeout_s: float) -> list[Message]:
        try:
            return self._consumer.consume(_BATCH, timeout_s)
        except KafkaException as error:
            raise self._blind("read", error) from error

    def _take(self, messages: Iterable[Message], poll: PolledRecords) -> None:
        """Keep records, and notice missing ones before them: offsets are contiguous until compacted.

        This is the innermost loop of a cold start, so it makes no needless call.
        """
        following, records = self._next, poll.records
        for message in messages:
            if message.error() is not None:
                self._event(message, poll)
                continue
            # confluent-kafka types both as optional: they are None in messages yet to be sent.
            partition: int = message.partition()  # type: ignore[assignment]
            offset: int = message.offset()  # type: ignore[assignment]
            if offset != following[partition]:
                poll.note_hole(partition, offset, offset - following[partition])
            following[partition] = offset + 1
            value = message.value()
            at_ms = message.timestamp()[1] if value is None else None
            records[partition][message.key() or b""].append(_new(RawRecord, (value, offset, at_ms)))
            poll.count += 1
        self._fetched.update(records)

    def _event(self, message: Message, poll: PolledRecords) -> None:
        """Move to the end of a partition that librdkafka announces; raise its other errors."""
        error = message.error()
        if error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # librdkafka looks up the coordinator of the group id that it requires. We join no group.
            return
        if error.code() != KafkaError._PARTITION_EOF:
            raise self._refused(error)
        partition, offset = cast(int, message.partition()), cast(int, message.offset())
        if offset > self._next[partition]:
            poll.note_hole(partition, offset, offset - self._next[partition])
        self._next[partition] = offset
        self._fetched.add(partition)

    def _reads_all(self) -> bool:
        """Whether a fetch has answered for every partition: their ends alone are told without READ."""
        return self._fetched >= self._next.keys()

    def _moves(self, holes: Mapping[int, Sequence[int]]) -> tuple[PositionMove, ...]:
        moves = []
        for p, saved in self._saved.items():
            following = self._next[p]
            if saved != following and p in self._fetched and p not in self._held.records:
                gone = (self._began[p],) if p in self._began else ()
                end = max(self._ends.get(p, 0), following)
                moves.append(PositionMove(p, saved, following, end, (*gone, *holes.get(p, ()))))
        return tuple(moves)

    def _partitions(self) -> list[int]:
        try:
            topic = self._consumer.list_topics(self._topic, _TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise self._blind("reach the cluster", error) from error
        if topic.error is not None and topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise NoSuchTopic(self._topic)
        if topic.error is not None:
            raise self._refused(topic.error)
        return sorted(number for number in topic.partitions if number % self._shards == self._shard)

    def _ask_topic_id(self) -> str:
        settings: dict[str, Any] = {
            **client_settings(self._properties),
            "log_level": 0,
            "error_cb": self._complaints.record_error,
        }
        admin = AdminClient(settings)
        answers = admin.describe_topics(TopicCollection([self._topic]), request_timeout=_TIMEOUT_S)
        try:
            described = answers[self._topic].result()
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        self._partition_count = len(described.partitions)
        return str(described.topic_id)

    def _ask_ends(self) -> None:
        asked_ms = time.time_ns() // 1_000_000
        self._ends = self._ask_offsets(list(self._next), _LATEST)
        self._ends_asked = time.monotonic()
        self._reached.note_ends(asked_ms, self._ends)
        self._complaints.clear()
        self._refuse_positions_past_the_end()

    def _ask_offsets(self, partitions: list[int], when: int) -> dict[int, int]:
        offsets: dict[int, int] = {}
        end = time.monotonic() + _TIMEOUT_S
        while missing := [TopicPartition(self._topic, p, when) for p in partitions if p not in offsets]:
            patient = time.monotonic() < end
            for answer in self._ask_once(missing, patient):
                if answer.error is None:
                    offsets[answer.partition] = answer.offset
                elif not (patient and _will_pass(answer.error)):
                    raise self._refused(answer.error)
        return offsets

    def _ask_once(self, partitions: list[TopicPartition], patient: bool) -> list[TopicPartition]:
        try:
            return self._consumer.offsets_for_times(partitions, timeout=_TIMEOUT_S)
        except KafkaException as error:
            if not (patient and _will_pass(error.args[0])):
                raise self._blind("ask for offsets", error) from error
        time.sleep(_RETRY_S)
        return []

    def _refuse_another_topic(self, topic_id: str) -> None:
        if topic_id and topic_id != self.topic_id:
            raise TopicReplaced(f"{self._topic} was deleted and made again")

    def _refuse_positions_past_the_end(self) -> None:
        for partition, offset in self._next.items():
            if offset > self._ends[partition]:
                raise self._lost(partition, offset)

    def _refuse_positions_before(self, oldest: Mapping[int, int]) -> None:
        for partition, offset in self._next.items():
            if offset < oldest[partition]:
                raise self._lost(partition, offset)

    def _refuse_a_stall(self, moves: bool) -> None:
        if moves:
            self._moved = time.monotonic()
        elif time.monotonic() - self._moved > _STALLED_S:
            raise CannotSee(f"no record arrives from {self._where} although some are there; connecting anew")

    def _blind(self, doing: str, error: KafkaException) -> CannotSee:
        # Callbacks are only served by poll: the reason may still be waiting there. A record may as well, and
        # would be lost: whatever follows must begin with a seek.
        self._consumer.poll(0)
        self._next.clear()
        reason = self._complaints.likely_reason(error.args[0].str())
        return CannotSee(f"cannot {doing} at {self._where}: {reason}")

    def _refused(self, error: KafkaError) -> Exception:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            grant = "kafka-acls --add --allow-principal User:… --operation READ --operation DESCRIBE"
            return CannotSee(
                f"no READ on {self._topic} at {self._where}; grant it: {grant} --topic {self._topic}"
            )
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return TopicReplaced(f"{self._topic} no longer holds the record that came next")
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return NoSuchTopic(self._topic)
        reason = self._complaints.likely_reason(error.str())
        return CannotSee(f"cannot read {self._topic} at {self._where}: {reason}")

    def _lost(self, partition: int, offset: int) -> TopicReplaced:
        where = f"{self._topic}-{partition}"
        return TopicReplaced(f"{where} no longer holds offset {offset}, where reading stopped")


def _will_pass(error: KafkaError) -> bool:
    return error.code() in PASSING
