"""Read one topic as raw record batches: one request waits at each leader, independent of other leaders.

librdkafka makes an object of every record; passing a fetch answer on as bytes costs a tenth of that
(docs/adr/0010-raw-fetch.md).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Union

import kafka.errors as errors

from fenceline.facts import TopicPartition
from transaction_admin.api import Cost, Topology, Unseen
from transaction_admin.connection import AdminConnection
from transaction_admin.leaders import Leaders, PartitionError, Question, Topics
from transaction_admin.partition_requests import NONE, Epochs, fetch_request, offset_request

#: How long a request waits at a leader without new records, and the maximum bytes of an answer.
_WAIT_MS, _MOST_BYTES = 500, 4 * 1024 * 1024
#: Seconds before a silent leader is asked again.
_PAUSE_S = 0.25


class Fetched(NamedTuple):
    """Raw record batches of a partition; the last one may be truncated."""

    records: bytes
    #: The high watermark and the last stable offset, which is -1 if the broker does not report it.
    high_watermark: int
    lso: int
    #: Producer id and first offset of aborted transactions among the records.
    aborted: Sequence[tuple[int, int]]


class OutOfRange(NamedTuple):
    """The partition does not hold the requested offset, or has lost its end before it."""


class _Asked(NamedTuple):
    """A request to a leader, starting at these offsets."""

    leader: int
    starts: Mapping[int, int]


Answer = Union[Fetched, OutOfRange, Unseen]


class LogReader:
    """Reads one topic; with `committed` nothing after the LSO, and with the index of aborted transactions.

    `properties` are librdkafka's. Raises `CannotTranslate` for a property without an equivalent in
    kafka-python, `AdminUnavailable` if the cluster cannot be reached.
    """

    def __init__(
        self, properties: Mapping[str, str], topic: str, *, committed: bool = False, timeout_s: float
    ) -> None:
        self._topic, self._isolation = topic, int(committed)
        self._connection = AdminConnection(properties, timeout_s, f"read {topic}")
        self._leaders = Leaders(self._connection)
        self._answers: SimpleQueue[tuple[_Asked, Any]] = SimpleQueue()
        #: Pending requests by leader, and until when other leaders are not asked (monotonic).
        self._asked: dict[int, _Asked] = {}
        self._paused: dict[int, float] = {}
        #: The next offsets, and the epochs of the batches before them.
        self._starts: Mapping[int, int] = {}
        self._epochs: Mapping[int, int] = {}
        #: The topic's id when it was described, and whether another topic has its name since.
        self._topic_id, self.replaced = "", False
        #: Whether leaders may have changed, and when to ask for them next (monotonic).
        self._moved, self._refresh_at = True, 0.0

    @property
    def cost(self) -> Cost:
        """The requests to brokers so far."""
        return self._connection.cost

    def close(self) -> None:
        """Close every connection."""
        self._connection.close()

    def describe(self) -> Topology:
        """Return the topic's partitions, their leaders, and its id."""
        topology = self._refresh()
        self._topic_id, self.replaced = topology.topic_ids.get(self._topic, ""), False
        return topology

    def _refresh(self) -> Topology:
        return self._connection.run(self._leaders.refresh_leaders, [self._topic])

    def refusal(self) -> str:
        """Return why the topic could not be described."""
        return self._leaders.topic_refusal(self._topic, "READ")

    def ask_offsets(self, partitions: Collection[int], when: int) -> Mapping[int, int | Unseen]:
        """Return the EARLIEST or LATEST offset of partitions; with `committed`, LATEST means the LSO."""

        def requests(topics: Topics) -> Sequence[Any]:
            return [offset_request(topics, self._isolation, when)]

        question = Question(requests, _read_offsets, "DESCRIBE")
        wanted = [TopicPartition(self._topic, number) for number in partitions]
        found = self._connection.run(self._leaders.ask_leaders, wanted, question)
        return {where.partition: answer for where, answer in found.items()}

    def is_held_back(self) -> bool:
        """Whether a quota delays requests now."""
        return self._connection.is_held_back()

    def forget_requests(self) -> None:
        """Drop the answers to pending requests: reading begins elsewhere."""
        self._answers, self._asked = SimpleQueue(), {}

    def request(self, starts: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        """Send the next request to each leader without a pending one.

        `starts` are the next offsets, `epochs` the known ones of the batches before them.
        """
        self._starts, self._epochs = dict(starts), epochs
        if self._moved and time.monotonic() >= self._refresh_at:
            self._moved, self._refresh_at = False, time.monotonic() + _PAUSE_S
            topic_id = self._refresh().topic_ids.get(self._topic, self._topic_id)
            self.replaced = self.replaced or topic_id != self._topic_id
        if not self.replaced and (due := self._due_requests()):
            self._connection.run(self._ask, due)

    def receive(self, wait_s: float) -> Mapping[int, Answer]:
        """Return the arrived answers by partition; without any, wait up to `wait_s` for the first.

        A partition is missing if its leader has not answered yet, or cannot now.
        """
        answers: dict[int, Answer] = {}
        while (found := self._next_answer(0.0 if answers else wait_s)) is not None:
            asked, answer = found
            self._asked.pop(asked.leader, None)
            # A partition that has moved may have been requested at both of its leaders.
            read = self._read(asked.leader, answer)
            answers |= {
                number: answer for number, answer in read if asked.starts[number] == self._starts[number]
            }
        return answers

    def _next_answer(self, wait_s: float) -> tuple[_Asked, Any] | None:
        try:
            return self._answers.get(timeout=wait_s) if wait_s > 0 else self._answers.get_nowait()
        except Empty:
            return None

    def _due_requests(self) -> Sequence[_Asked]:
        """Return the next request to each leader that may be asked."""
        by_leader: dict[int, dict[int, int]] = {}
        for number, start in self._starts.items():
            leader = self._leaders.leader_of(TopicPartition(self._topic, number))
            if isinstance(leader, Unseen):
                self._moved = True
            else:
                by_leader.setdefault(leader, {})[number] = start
        return [_Asked(leader, starts) for leader, starts in by_leader.items() if self._may_ask(leader)]

    async def _ask(self, due: Sequence[_Asked]) -> None:
        for asked in due:
            self._asked[asked.leader] = asked
            await self._send(asked, self._answers)

    def _may_ask(self, leader: int) -> bool:
        # A leader delayed by a quota must not delay the other leaders' records.
        paused = self._paused.get(leader, 0.0) > time.monotonic() or self._connection.is_held_back(leader)
        return leader not in self._asked and not paused

    async def _send(self, asked: _Asked, answers: SimpleQueue[tuple[_Asked, Any]]) -> None:
        starts = {TopicPartition(self._topic, number): start for number, start in asked.starts.items()}
        epochs = {where: self._epochs_of(where) for where in starts}
        topics = {self._topic: list(asked.starts)}
        request = fetch_request(topics, starts, _MOST_BYTES, self._isolation, _WAIT_MS, epochs)
        await self._connection.send_then(request, asked.leader, lambda answer: answers.put((asked, answer)))

    def _epochs_of(self, where: TopicPartition) -> Epochs:
        leader = self._leaders.leader_epoch(where)
        return Epochs(NONE if leader is None else leader, self._epochs.get(where.partition, NONE))

    def _read(self, leader: int, answer: Any) -> Iterator[tuple[int, Answer]]:
        if isinstance(answer, Exception):
            self._leave_alone(leader)
            return
        for topic in answer.responses:
            for row in topic.partitions:
                if row.error_code and issubclass(errors.for_code(row.error_code), errors.RetriableError):
                    self._leave_alone(leader)
                else:
                    yield row.partition_index, self._partition(row, leader)

    def _partition(self, row: Any, leader: int) -> Answer:
        if row.error_code == errors.OffsetOutOfRangeError.errno:
            return OutOfRange()
        if row.error_code:
            where = TopicPartition(self._topic, row.partition_index)
            return self._leaders.unseen(where, row.error_code, "READ", leader)
        if row.diverging_epoch is not None and row.diverging_epoch.end_offset != NONE:
            return OutOfRange()
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in row.aborted_transactions or ()
        ]
        return Fetched(bytes(row.records or b""), row.high_watermark, row.last_stable_offset, aborted)

    def _leave_alone(self, leader: int) -> None:
        """Ask a leader again a little later, and before that request the present leaders."""
        self._moved, self._paused[leader] = True, time.monotonic() + _PAUSE_S


def _read_offsets(answers: Sequence[Any], _: int) -> Iterator[tuple[TopicPartition, int | PartitionError]]:
    for topic in answers[0].topics:
        for row in topic.partitions:
            where = TopicPartition(topic.name, row.partition_index)
            yield where, PartitionError(row.error_code) if row.error_code else row.offset
