"""The resumable tail of an internal topic: read raw batches in offset order, and keep the position.

It uses neither the database nor Celery. Its driver loads positions with `seek`, takes a `TailBatch` from
`poll`, saves it, and confirms with `mark_saved`. An unsaved batch is read again after the next `seek`.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from collectors.kafka.compression import decompress
from fenceline.decode.log_parts import Hole, LogPart, read_parts, whole_batches
from fenceline.decode.record_table import RecordTable
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import PositionMove
from transaction_admin.api import TRANSACTION_STATE, AdminUnavailable, Cost, Unseen
from transaction_admin.log_reader import Fetched, LogReader, OutOfRange
from transaction_admin.partition_requests import EARLIEST, LATEST
from transaction_admin.properties import CannotTranslate

#: Bytes of batches per poll while catching up, and the number of unread records from which a tail catches up.
_FOLD_BYTES, _FAR_BEHIND = 8 * 1024 * 1024, 100_000
#: Maximum bytes of half-read partitions that wait for their remaining records.
_HELD_BYTES = 2 * _FOLD_BYTES
#: Seconds that a poll waits for a first record.
_IDLE_S = 0.5
#: Seconds between two requests for the end of the topic, which prove how far the tail has seen.
_ASK_ENDS_EVERY_S = 1.0
_ASK_ENDS_SELDOM_S, _ASK_ENDS_HELD_BACK_S = 5.0, 10.0
# Shorter than half a lease, so that a call that waits in vain does not cost the lease.
_TIMEOUT_S = 2.5
_RETRY_S = 0.05
#: Brokers may answer endlessly without records, for example if a log has lost its end.
_STALLED_S = 10.0
_HELD_BACK = "in time: a quota of this client (consumer_byte_rate, request_percentage) is used up"


class CannotSee(Exception):
    """The cluster cannot be read; the text has the problem, the place and the remedy."""


class NoSuchTopic(Exception):
    """Brokers report that the topic does not exist: it was never needed, is deleted, or is hidden."""


class TopicReplaced(Exception):
    """The topic is another one than before, or no longer holds the next record."""


class Tail:
    """A reader of an internal topic, or of one shard of its partitions, with its own positions.

    `properties` are librdkafka's. A shard has every `shards`-th partition, from number `shard` on. With
    `committed` it reads only committed records, and a partition's end is its last stable offset. Every method
    raises `CannotSee`, with a text for operators.
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
        self._shard, self._shards = shard, shards
        self._topic, self._committed = topic, committed
        self._where = properties["bootstrap.servers"]
        try:
            self._reader = LogReader(properties, topic, committed=committed, timeout_s=_TIMEOUT_S)
        except (AdminUnavailable, CannotTranslate) as error:
            raise CannotSee(str(error)) from error
        self._cost = Cost(0, 0.0)
        self.topic_id = ""
        self._saved: dict[int, int | None] = {}
        #: The first offset of partitions without a position, if it is not 0.
        self._began: dict[int, int] = {}
        #: Records that were read, for the next poll.
        self._held: list[LogPart] = []
        #: Whether reading began without any position and has not reached the end yet.
        self._cold = False
        #: The first and the next offset to read.
        self._first: dict[int, int] = {}
        self._next: dict[int, int] = {}
        #: The known epochs of the batches before those offsets, and before the saved ones.
        self._epochs: dict[int, int] = {}
        self._saved_epochs: dict[int, int] = {}
        #: The ends at the last request; its instants, None once the ends were reached (Unix time, monotonic).
        self._ends: dict[int, int] = {}
        self._ends_ms: int | None = None
        self._ends_asked = 0.0
        #: The last stable offsets of partitions with a higher high watermark.
        self._unstable: dict[int, int] = {}
        #: Partitions that a fetch has answered since the last seek: only an answer proves our right to read.
        self._fetched: set[int] = set()
        #: Partitions whose end was before our position: a fetch shows whether the log has lost its end.
        self._doubted: set[int] = set()
        #: Seconds of polls without records since the last record.
        self._waited_s = 0.0

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def is_at(self, topic_id: str, positions: Mapping[int, int]) -> bool:
        """Return whether the next poll begins exactly at these saved positions."""
        known = {partition: saved for partition, saved in self._saved.items() if saved is not None}
        # A partition has no position before its first fetch answer: the first offset is expected.
        expected = self._first | known
        begins = self._next | {part.partition: part.start for part in reversed(self._held)}
        same_topic = topic_id == self.topic_id or not positions
        return bool(self._next) and same_topic and known == dict(positions) and expected == begins

    def seek(
        self, topic_id: str, positions: Mapping[int, int], epochs: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        """Begin at `positions`, and at the oldest record of partitions without one.

        `epochs` are those of the batches before the positions: a log that has lost its end and has grown
        again no longer holds the next record. Raises `NoSuchTopic`, and `TopicReplaced` if `topic_id` ("" on
        the first poll) belongs to another topic.
        """
        partitions = self._describe(topic_id)
        if not positions.keys() <= set(partitions):
            # Partitions are never deleted: this broker does not know all of them yet.
            raise self._blind(
                f"{self._where} reports fewer partitions of {self._topic} than were read before"
            )
        oldest = self._ask_offsets(partitions, EARLIEST)
        self._saved = {p: positions.get(p) for p in partitions}
        self._cold = not positions
        self._held = []
        self._fetched.clear()
        self._doubted.clear()
        self._saved_epochs = {p: epoch for p, epoch in epochs.items() if epoch >= 0}
        self._epochs = dict(self._saved_epochs)
        self._began = {p: oldest[p] for p in partitions if p not in positions and oldest[p] > 0}
        self._first = {p: positions.get(p, oldest[p]) for p in partitions}
        self._next = dict(self._first)
        self._reader.forget_requests()
        self._ask_ends()
        self._refuse_positions_before(oldest)
        self._waited_s = 0.0

    def confirm_partitions(self, topic_id: str) -> None:
        """Add partitions that the topic was given meanwhile.

        Raises `TopicReplaced` if the topic is no longer `topic_id`.
        """
        if len(self._describe(topic_id)) > len(self._next):
            saved = {p: offset for p, offset in self._saved.items() if offset is not None}
            self.seek(topic_id, saved, self._saved_epochs)

    def poll(self, gather_s: float) -> TailBatch:
        """Wait a moment for a first record, gather records for `gather_s`, and return them.

        Far behind it gathers as much as one save takes. Raises `TopicReplaced` if the next record is gone,
        `CannotSee` also after 10 s of polls without existing records.
        """
        began = time.monotonic()
        parts, self._held = self._held, []
        patient = self._behind() > _FAR_BEHIND
        parts += self._fetch(_IDLE_S)
        if patient:
            while sum(len(part.data) for part in parts) < _FOLD_BYTES and (more := self._fetch(_IDLE_S)):
                parts += more
        elif parts:
            time.sleep(gather_s)
            parts += self._fetch(_RETRY_S)
        if time.monotonic() - self._ends_asked > self._ends_due_s(patient):
            self._ask_ends()
        moves = bool(parts) or not self._behind()
        self._waited_s = 0.0 if moves else self._waited_s + time.monotonic() - began
        self._refuse_a_stall()
        if patient:
            self._request()
            parts = self._hold_back(parts)
        columns, holes, bad = read_parts(parts, decompress)
        return self._batch(RecordTable.sort(columns, bad), holes)

    def _ends_due_s(self, patient: bool) -> float:
        # Under a quota, a request for the end would delay records that were read already.
        if self._reader.is_held_back():
            return _ASK_ENDS_HELD_BACK_S
        return _ASK_ENDS_SELDOM_S if patient else _ASK_ENDS_EVERY_S

    def _batch(self, records: RecordTable, holes: Collection[Hole]) -> TailBatch:
        cost, before = self._reader.cost, self._cost
        self._cost = cost
        batch = TailBatch(
            records=records,
            moves=self._moves(holes),
            compacted=sum(hole.missing for hole in holes),
            seen_through_ms=self._take_reached_ms(),
            behind=self._behind(),
            requests=cost.requests - before.requests,
            broker_ms=round(cost.broker_ms - before.broker_ms),
            cold=self._cold,
        )
        self._cold = self._cold and batch.seen_through_ms is None
        return batch

    def _hold_back(self, parts: list[LogPart]) -> list[LogPart]:
        """Keep a half-read partition for the next poll, so that each id is folded and saved once.

        While catching up, records come partition after partition, some thousands at once. A large partition
        would wait endlessly behind others that keep growing, so the size is limited.
        """
        read = {part.partition for part in parts}
        half = {p for p in read if self._next[p] < self._ends[p]}
        if not 0 < len(half) < len(read):
            return parts
        held = [part for part in parts if part.partition in half]
        if sum(len(part.data) for part in held) > _HELD_BYTES:
            return parts
        self._held = held
        return [part for part in parts if part.partition not in half]

    def unstable_offsets(self) -> dict[int, int]:
        """Return the last stable offset of partitions with a higher high watermark.

        A tail of committed records cannot see records behind it until the transaction there has ended.
        """
        return dict(self._unstable)

    def _behind(self) -> int:
        """Return the number of unread records at the last request for the ends."""
        return sum(max(0, end - self._next[p]) for p, end in self._ends.items())

    def mark_saved(self, batch: TailBatch) -> None:
        """Mark the batch's positions as saved; the next poll begins there."""
        for move in batch.moves:
            self._saved[move.partition] = move.next
            self._saved_epochs[move.partition] = move.epoch
            self._began.pop(move.partition, None)

    def _request(self) -> None:
        with self._asking():
            self._reader.request(self._next, self._epochs)

    def _fetch(self, wait_s: float) -> list[LogPart]:
        """Return the records that arrive within `wait_s`, and advance the position."""
        self._request()
        with self._asking():
            answers = self._reader.receive(wait_s)
        if self._reader.replaced:
            raise TopicReplaced(f"{self._topic} was deleted and made again")
        parts = []
        for partition, answer in sorted(answers.items()):
            if isinstance(answer, OutOfRange):
                raise TopicReplaced(f"{self._topic} no longer holds the record that came next")
            if isinstance(answer, Unseen):
                raise self._blind(f"cannot read {self._topic} at {self._where}: {answer.reason}")
            part = self._part(partition, answer)
            if part.places:
                parts.append(part)
                self._next[partition], self._epochs[partition] = part.next, part.last_epoch
        return parts

    def _part(self, partition: int, answer: Fetched) -> LogPart:
        self._fetched.add(partition)
        self._doubted.discard(partition)
        self._unstable.pop(partition, None)
        if self._committed and answer.high_watermark > answer.lso >= 0:
            self._unstable[partition] = answer.lso
        places = whole_batches(answer.records)
        return LogPart(partition, self._next[partition], answer.records, places, answer.aborted)

    def _moves(self, holes: Iterable[Hole]) -> tuple[PositionMove, ...]:
        edges: dict[int, tuple[int, ...]] = {p: (offset,) for p, offset in self._began.items()}
        for hole in holes:
            edges[hole.partition] = (*edges.get(hole.partition, ()), hole.offset)
        held = {part.partition for part in self._held}
        moves = []
        for p, saved in self._saved.items():
            following = self._next[p]
            if saved != following and p in self._fetched and p not in held:
                end = max(self._ends.get(p, 0), following)
                moves.append(
                    PositionMove(p, saved, following, end, edges.get(p, ()), self._epochs.get(p, -1))
                )
        return tuple(moves)

    def _describe(self, topic_id: str) -> list[int]:
        """Return the partitions of the shard. Raises the errors of `seek`."""
        with self._asking():
            topology = self._reader.describe()
        if topology.missing:
            raise NoSuchTopic(self._topic)
        if topology.unseen:
            raise self._blind(f"cannot read {self._topic} at {self._where}: {self._reader.refusal()}")
        self.topic_id = topology.topic_ids[self._topic]
        if topic_id and topic_id != self.topic_id:
            raise TopicReplaced(f"{self._topic} was deleted and made again")
        numbers = (where.partition for where in topology.partitions)
        return sorted(number for number in numbers if number % self._shards == self._shard)

    def _ask_ends(self) -> None:
        asked_ms = time.time_ns() // 1_000_000
        self._ends = self._ask_offsets(list(self._next), LATEST)
        self._ends_asked, self._ends_ms = time.monotonic(), asked_ms
        self._doubted = {
            partition for partition, offset in self._next.items() if offset > self._ends[partition]
        }
        for partition in self._doubted - self._fetched:
            raise self._lost(partition, self._next[partition])

    def _take_reached_ms(self) -> int | None:
        """Return the instant of the request whose ends are now reached; None if not reached, or reached
        before.

        A fetch must have answered for every partition: brokers tell the ends without the right to READ. Where
        an end is before our position, a new fetch answer is needed.
        """
        reached = not self._doubted and all(self._next[p] >= end for p, end in self._ends.items())
        if not reached or not self._fetched >= self._next.keys():
            return None
        asked_ms, self._ends_ms = self._ends_ms, None
        return asked_ms

    def _ask_offsets(self, partitions: list[int], when: int) -> dict[int, int]:
        """Return offsets; retry errors that brokers answer briefly while a leader moves (KIP-207)."""
        offsets: dict[int, int] = {}
        end = time.monotonic() + _TIMEOUT_S
        while missing := [p for p in partitions if p not in offsets]:
            with self._asking():
                answers = self._reader.ask_offsets(missing, when)
            offsets |= {p: answer for p, answer in answers.items() if not isinstance(answer, Unseen)}
            unseen = [answer for answer in answers.values() if isinstance(answer, Unseen)]
            if unseen and time.monotonic() > end:
                raise self._blind(f"cannot read {self._topic} at {self._where}: {unseen[0]}")
            if unseen:
                time.sleep(_RETRY_S)
        return offsets

    def _refuse_positions_before(self, oldest: Mapping[int, int]) -> None:
        for partition, offset in self._next.items():
            if offset < oldest[partition]:
                raise self._lost(partition, offset)

    def _refuse_a_stall(self) -> None:
        if self._waited_s > _STALLED_S:
            why = _HELD_BACK if self._reader.is_held_back() else "although some are there; connecting anew"
            raise self._blind(f"no record arrives from {self._where} {why}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn an unreachable cluster into `CannotSee`."""
        try:
            yield
        except AdminUnavailable as error:
            raise self._blind(str(error)) from error

    def _blind(self, text: str) -> CannotSee:
        # The records of this poll are lost: the next use must begin with a seek.
        self._next.clear()
        return CannotSee(text)

    def _lost(self, partition: int, offset: int) -> TopicReplaced:
        where = f"{self._topic}-{partition}"
        return TopicReplaced(f"{where} no longer holds offset {offset}, where reading stopped")
