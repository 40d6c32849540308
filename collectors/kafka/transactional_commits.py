"""Read the commits of transactions from `__consumer_offsets` itself: undecided ones, with their certain
owners, and the transactions that commit groups' offsets.

OffsetFetch answers only UNSTABLE_OFFSET_COMMIT. The records after a partition's last stable offset name
group, topic and offset; the headers of their batches name the producer. Together they identify the
transaction. If a transaction was read while open, reading continues up to its marker.

Each group's committer is examined once per topic and then rarely: it depends on the application's code. Only
the header of the batch that holds a commit shows whether a transaction wrote it, and its producer.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from collectors.kafka.compression import decompress
from fenceline.decode.consumer_offsets import OffsetCommit, decode_record
from fenceline.decode.log_parts import LogPart, read_parts, whole_batches
from fenceline.decode.record_batches import RecordBatch
from fenceline.decode.record_table import RecordTable
from fenceline.facts import TopicPartition
from fenceline.kafka.added_offsets import AddedOffset, AddedOffsets, newest_offsets
from fenceline.kafka.applications import application_of
from fenceline.kafka.group_observation import LoggedCommit
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import CONSUMER_OFFSETS, Batches, Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Bytes per poll and partition; the next poll continues there.
_MOST_BYTES, _MOST_FETCHES = 1024 * 1024, 4
#: Maximum records after a last stable offset to read in order; further back, reading restarts there.
_MOST_BEHIND = 20_000
#: Headers per poll, and bytes of the log for each: a batch always comes whole.
_AT_ONCE, _BYTES = 10, 512
#: How long an answer is valid, and how often to search for due groups.
_STANDS_S, _LIST_EVERY_S = 600.0, 5.0


class Undecided(NamedTuple):
    """A group's pending commit for a partition, and the transaction that decides it."""

    added: AddedOffset
    producer_id: int
    producer_epoch: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.added.topic, self.added.partition)


@dataclass(slots=True)
class _Held:
    """The records of one partition, from a last stable offset on."""

    number: int
    lso: int
    #: The next offset to read.
    at: int
    #: The end when reading began. A transaction whose marker is before it may have begun before `at`.
    first_end: int
    opened: dict[int, list[Undecided]] = field(default_factory=dict)
    #: Producers whose marker was read: their later records are read from the first one on.
    ended: set[int] = field(default_factory=set)
    #: Producers that were open while the LSO was stuck: reading continues up to their markers.
    awaited: set[int] = field(default_factory=set)

    def undecided(self) -> Iterator[Undecided]:
        """Yield commits after the LSO: earlier ones are decided, even if the marker is not read yet."""
        for written in self.opened.values():
            yield from (commit for commit in written if commit.added.log_offset >= self.lso)

    def end(self, producer_id: int, marker_at: int) -> list[Undecided]:
        """Return all commits of a producer up to its marker; nothing if the beginning may be missing."""
        is_whole = marker_at >= self.first_end or producer_id in self.ended
        self.ended.add(producer_id)
        self.awaited.discard(producer_id)
        written = self.opened.pop(producer_id, [])
        return written if is_whole else []


class PendingReader:
    """Reads pending commits in partitions of `__consumer_offsets`."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._held: dict[int, _Held] = {}

    def read_pending(
        self, lagging: Collection[int], offsets: Mapping[int, Offsets], now_ms: int
    ) -> tuple[Sequence[Undecided], Sequence[AddedOffsets]]:
        """Return the pending commits in partitions whose last stable offset lags; none for unreadable ones.

        And by transaction and partition the offsets added so far, once and complete where this poll has read
        the marker. `offsets` are those of every partition: pending transactions are read up to their markers.
        """
        states = {number: self._state(number, ends) for number, ends in offsets.items()}
        self._held = {number: held for number, held in states.items() if number in lagging or held.awaited}
        ended = self._read(offsets, now_ms)
        for number in self._held.keys() & set(lagging):
            self._held[number].awaited |= self._held[number].opened.keys()
        undecided = [commit for held in self._held.values() for commit in held.undecided()]
        return undecided, [*ended, *self._opened(offsets, now_ms)]

    def _state(self, number: int, now: Offsets) -> _Held:
        held = self._held.get(number)
        if held is None or (held.lso != now.lso and (not held.awaited or now.lso - held.at > _MOST_BEHIND)):
            return _Held(number, now.lso, now.lso, now.high_watermark)
        held.lso = now.lso
        return held

    def _read(self, offsets: Mapping[int, Offsets], now_ms: int) -> list[AddedOffsets]:
        """Continue reading every partition; return the offsets that transactions with a new marker added."""
        return [
            _added(number, written, now_ms, marker=marker)
            for number, held in self._held.items()
            if (answers := self._batches(number, held.at, offsets[number].high_watermark))
            for marker, written in _apply(held, answers)
        ]

    def _opened(self, offsets: Mapping[int, Offsets], now_ms: int) -> Iterator[AddedOffsets]:
        for number, held in self._held.items():
            unread = max(0, offsets[number].high_watermark - held.at)
            yield from (
                _added(number, commit, now_ms, unread=unread) for commit in held.opened.values() if commit
            )

    def _batches(self, number: int, at: int, end: int) -> list[Batches]:
        """Return the next batches from offset `at`."""
        read: list[Batches] = []
        for _ in range(_MOST_FETCHES):
            if at >= end:
                break
            where = TopicPartition(CONSUMER_OFFSETS, number)
            answer = self._reads.batch_headers(where, at, most_bytes=_MOST_BYTES)
            if isinstance(answer, Unseen) or not answer.batches:
                break
            read.append(answer)
            at = answer.next
        return read


def _commits(number: int, answers: Sequence[Batches]) -> Mapping[int, OffsetCommit]:
    """Return the commits in batches, decided or not, by their offsets."""
    parts = [LogPart(number, 0, answer.data, whole_batches(answer.data)) for answer in answers]
    records = RecordTable.sort(read_parts(parts, decompress)[0]).get(number, {})
    decoded = ((raw.offset, decode_record(key, raw.value)) for key, raws in records.items() for raw in raws)
    return {offset: commit for offset, commit in decoded if isinstance(commit, OffsetCommit)}


def _apply(held: _Held, answers: Sequence[Batches]) -> list[tuple[str, list[Undecided]]]:
    """Process batches; return markers with the commits of the transactions that they end."""
    commits, ended = _commits(held.number, answers), []
    for batch in (batch for answer in answers for batch in answer.batches):
        if batch.marker:
            ended.append((batch.marker, held.end(batch.producer_id, batch.first)))
        elif batch.transactional:
            held.opened.setdefault(batch.producer_id, []).extend(_of_batch(held.number, batch, commits))
    held.at = answers[-1].next
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
    """Return the offsets that one transaction added in a partition. Its epoch is the newest."""
    producer = written[-1].producer_id, written[-1].producer_epoch
    offsets = [commit.added for commit in written]
    return newest_offsets(offsets, producer, number, marker=marker, unread=unread, read_ms=now_ms)


class CommitterRows(Protocol):
    """The database's knowledge of commits and producers (`dashboard.groups.store.GroupRows`)."""

    def commits_beside_transactions(self) -> Sequence[LoggedCommit]:
        """Return the newest commit of each group and topic in partitions that transactions name."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the known ids that have these producer ids."""


class CommitterReader:
    """Finds committers, a few at a time. It keeps the due groups and the instants of requests."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._due: list[LoggedCommit] = []
        self._listed_s = 0.0
        self._asked_s: dict[tuple[str, str], float] = {}

    def read_committers(self, ours: CommitterRows) -> Mapping[tuple[str, str], str | None]:
        """Return, by group and topic, the application whose transactions commit the offsets.

        "" for commits outside of transactions; None if no transactional id of the producer is known.
        """
        self._list_due(ours)
        producers = dict(self._producers())
        transactional = {producer for producer in producers.values() if producer is not None}
        names = dict(ours.transactional_ids(transactional)) if transactional else {}
        if transactional - names.keys():
            names |= self._reads.transactional_ids(transactional - names.keys())
        return {key: _application(producer, names) for key, producer in producers.items()}

    def _list_due(self, ours: CommitterRows) -> None:
        now_s = time.monotonic()
        if self._due or now_s - self._listed_s < _LIST_EVERY_S:
            return
        self._listed_s = now_s
        listed = ours.commits_beside_transactions()
        known = {owner[:2] for owner in listed}
        self._asked_s = {key: at for key, at in self._asked_s.items() if key in known}
        self._due = [
            owner for owner in listed if now_s - self._asked_s.get(owner[:2], -_STANDS_S) >= _STANDS_S
        ]

    def _producers(self) -> Iterator[tuple[tuple[str, str], int | None]]:
        """Yield groups and topics with the producer of their newest commit, None outside transactions.

        A missing commit was overwritten by a newer one: the group is due again.
        """
        due, self._due = self._due[:_AT_ONCE], self._due[_AT_ONCE:]
        for partition in due:
            where = TopicPartition(CONSUMER_OFFSETS, partition.log_partition)
            answer = self._reads.batch_headers(where, partition.log_offset, most_bytes=_BYTES)
            if isinstance(answer, Unseen):
                continue
            for batch in answer.batches:
                if batch.first <= partition.log_offset <= batch.last and not batch.marker:
                    self._asked_s[partition[:2]] = time.monotonic()
                    yield partition[:2], batch.producer_id if batch.transactional else None


def _application(producer: int | None, names: Mapping[int, str]) -> str | None:
    if producer is None:
        return ""
    name = names.get(producer)
    return None if name is None else application_of(name).application
