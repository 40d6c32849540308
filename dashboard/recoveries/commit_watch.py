"""Watches open transactions until their coordinators commit them, to search for lost records. An abort marker
in a live transaction shows while it is open: a partition of the transaction no longer has an open transaction
of its producer, or has one that begins later. Only the log proves it; what it proves is stored.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.models import IS_OPEN, AbortedCommit, PartitionRecord, PinRecord, Transaction
from dashboard.recoveries import evidence as recovery_evidence
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.transactions.sql import recent_rings
from fenceline.facts import TopicPartition, TransactionState, Transition, TransitionKind, expand_partitions
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.losses.aborted_commits import CommittedTransaction, end_of
from fenceline.losses.recoveries import LostRecords
from fenceline.snapshot import AbortedCommitFacts

#: Maximum watched transactions, the oldest first.
_MOST_WATCHED = 1_000
#: A suspicion requires a transaction of this age, and a partition without it in polls this far apart.
_OLD_MS, _LACKING_MS = 3_000, 1_500
#: A transaction whose end was not observed for this long is dropped.
_FORGOTTEN_MS = 600_000
#: Maximum ended transactions that wait for a search.
_MOST_WAITING = 500
_COLUMNS = (
    "key", "transactional_id", "application", "producer_id", "producer_epoch", "started_ms", "client_version",
    "log_partition", "partitions",
)  # fmt: skip

#: A transaction: its producer id, and its start by its coordinator's stamp.
TransactionKey = tuple[int, int]


@dataclass(slots=True)
class WatchedTransaction:
    """An open transaction, and the places of its records."""

    key: bytes
    transactional_id: str
    application: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    client_version: int
    log_partition: int
    #: The instant of our observation, by our clock.
    noticed_ms: int
    seen_ms: int = 0
    #: Its users' partitions, named by its coordinator -> an offset before all of its records.
    floors: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partitions where it was open: its first record there, and the end of the partition since.
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    #: Ids of these topics by name.
    topic_ids: dict[str, str] = field(default_factory=dict)
    #: The time since which partitions lack it.
    lacking: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partitions where a marker may have ended it.
    suspected: set[TopicPartition] = field(default_factory=set)
    #: Topics deleted while it was open: the reason, and the instant of our observation, by our clock.
    deleted: dict[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedCommit:
    """A watched transaction that its coordinator has committed, with all markers written."""

    watched: WatchedTransaction
    transaction: CommittedTransaction
    #: The instant of the commit by our clock.
    committed_ms: int


class CommitWatch:
    """Follows the open transactions of one cluster; its memory is lost with its process."""

    def __init__(self) -> None:
        self._watched: dict[TransactionKey, WatchedTransaction] = {}
        #: Transactions to search because of a suspicion, and all others.
        self.suspected: deque[EndedCommit] = deque(maxlen=_MOST_WAITING)
        self.others: deque[EndedCommit] = deque(maxlen=_MOST_WAITING)

    def follow(self, cluster_id: int, now_ms: int) -> None:
        """Add the present open transactions, and queue those committed since the last call."""
        rows = Transaction.objects.filter(
            IS_OPEN, cluster_id=cluster_id, state=TransactionState.ONGOING.value, started_ms__isnull=False
        )
        for values in rows.order_by("started_ms").values_list(*_COLUMNS)[:_MOST_WATCHED]:
            self._take(values, now_ms)
        if not self._watched:
            return
        clocks = recovery_evidence.clock_offsets(cluster_id)
        self._note_partitions(cluster_id, clocks)
        self._note_open(cluster_id, now_ms)
        self._queue_ended(cluster_id, clocks, now_ms)

    def changed_topics(self, now_ms: int) -> dict[str, list[WatchedTransaction]]:
        """Return, by name, topics that open transactions wrote to and that are gone or have another id."""
        changed: dict[str, list[WatchedTransaction]] = {}
        for watched in self._open_now(now_ms):
            lacking = {where.topic for where in watched.lacking if where in watched.first_offsets}
            for topic in lacking - watched.deleted.keys():
                changed.setdefault(topic, []).append(watched)
        return changed

    def _open_now(self, now_ms: int) -> list[WatchedTransaction]:
        return [watched for watched in self._watched.values() if watched.seen_ms == now_ms]

    def _take(self, columns: Sequence[Any], now_ms: int) -> None:
        *values, packed = columns
        made = WatchedTransaction(**dict(zip(_COLUMNS, values, strict=False)), noticed_ms=now_ms)
        made.key = bytes(made.key)
        watched = self._watched.setdefault((made.producer_id, made.started_ms), made)
        watched.seen_ms = now_ms
        for where in expand_partitions(json.loads(packed or "[]")):
            if not where.topic.startswith("__"):
                watched.floors.setdefault(where, -1)

    def _note_partitions(self, cluster_id: int, clocks: Mapping[int, int]) -> None:
        """Record an offset before each transaction in each partition that is new to it."""
        new = [
            (watched, where)
            for watched in self._watched.values()
            for where, at in watched.floors.items()
            if at < 0
        ]
        rows = recovery_evidence.partition_rows(cluster_id, (where for _, where in new))
        for watched, where in new:
            if where in rows:
                begun_ms = watched.started_ms + clocks.get(watched.log_partition, 0)
                watched.floors[where] = recovery_evidence.end_before(rows[where], begun_ms)

    def _note_open(self, cluster_id: int, now_ms: int) -> None:
        """Record the partitions where the leaders report the transactions open, and where no longer."""
        watched = self._open_now(now_ms)
        starts = _starts(cluster_id, {transaction.producer_id for transaction in watched})
        named = {where for transaction in watched for where in transaction.floors}
        places = _places(cluster_id, named)
        ahead = recovery_evidence.clocks_ahead(cluster_id)
        for transaction in watched:
            # It had begun by then: an earlier observation may belong to an earlier one with the same epoch.
            known_ms = min(
                transaction.noticed_ms,
                transaction.started_ms + ahead.get(transaction.log_partition, transaction.noticed_ms),
            )
            for where in transaction.floors:
                opened = starts.get((transaction.producer_id, transaction.producer_epoch, where))
                start = opened[0] if opened and opened[1] >= known_ms else None
                _note_place(transaction, where, start, places.get(where), now_ms)

    def _queue_ended(self, cluster_id: int, clocks: Mapping[int, int], now_ms: int) -> None:
        gone = [watched for watched in self._watched.values() if watched.seen_ms != now_ms]
        rings = _rings(cluster_id, gone)
        for watched in gone:
            end = end_of(rings.get(watched.key, ()), watched.started_ms)
            is_commit = end is not None and end.kind is TransitionKind.COMMIT
            is_over = end is not None and not (is_commit and end.completed_ms is None)
            if is_over or now_ms - watched.seen_ms > _FORGOTTEN_MS:
                del self._watched[watched.producer_id, watched.started_ms]
            if is_over and is_commit and end is not None:
                committed_ms = min(now_ms, end.at_ms + clocks.get(watched.log_partition, 0))
                queue = self.suspected if watched.suspected or watched.deleted else self.others
                queue.append(EndedCommit(watched, _committed(watched, end.at_ms), committed_ms))


def _rings(cluster_id: int, gone: Sequence[WatchedTransaction]) -> dict[bytes, Sequence[Transition]]:
    partitions = {watched.key: watched.log_partition for watched in gone[:_MOST_WATCHED]}
    rings = recent_rings(cluster_id, partitions)
    return {key: transition_ring.unpack_ring(ring.packed, partitions[key]) for key, ring in rings.items()}


def _committed(watched: WatchedTransaction, committed_ms: int) -> CommittedTransaction:
    producer = watched.producer_id, watched.producer_epoch
    # Protocol 2 gives every transaction its own epoch.
    own_epoch = watched.client_version == 2
    return CommittedTransaction(*producer, watched.started_ms, committed_ms, own_epoch)


def _note_place(
    watched: WatchedTransaction,
    where: TopicPartition,
    start: int | None,
    place: tuple[str, int | None] | None,
    now_ms: int,
) -> None:
    """Record a transaction's first record in a partition by its leader, and the topic's id and end."""
    known = watched.first_offsets.get(where)
    same = place is not None and watched.topic_ids.get(where.topic, place[0]) == place[0]
    if start is None or not same:
        since_ms = watched.lacking.setdefault(where, now_ms)
        is_old = now_ms - watched.noticed_ms >= _OLD_MS
        if is_old and now_ms - since_ms >= _LACKING_MS:
            watched.suspected.add(where)
        return
    watched.lacking.pop(where, None)
    if known is not None and start > known:
        watched.suspected.add(where)
    watched.first_offsets[where] = start if known is None else min(known, start)
    if place is not None:
        watched.topic_ids[where.topic] = place[0]
        watched.ends[where] = max(place[1] or 0, start + 1, watched.ends.get(where, 0))


def _starts(
    cluster_id: int, producer_ids: Iterable[int]
) -> dict[tuple[int, int, TopicPartition], tuple[int, int]]:
    """Return start and first observation of open transactions, by producer id, epoch and partition."""
    rows = PinRecord.objects.filter(cluster_id=cluster_id, producer_id__in=list(producer_ids))
    rows = rows.exclude(verdict=PartitionVerdict.HANGING.value)
    columns = (
        "producer_id", "producer_epoch", "topic", "partition", "start_offset", "first_seen_ms",
    )  # fmt: skip
    return {
        (producer_id, epoch, TopicPartition(topic, number)): (start, first_seen_ms)
        for producer_id, epoch, topic, number, start, first_seen_ms in rows.values_list(*columns)
    }


def _places(cluster_id: int, named: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[str, int | None]]:
    """Return topic id and end of partitions with an open transaction."""
    rows = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in named})
    rows = rows.exclude(verdict=PartitionVerdict.CLEAR.value)
    columns = rows.values_list("topic", "partition", "topic_id", "high_watermark")
    return {
        TopicPartition(topic, number): (topic_id, end) for topic, number, topic_id, end in columns.iterator()
    }


def searches(ended: EndedCommit) -> Iterator[tuple[TopicPartition, int, int | None]]:
    """Yield the partitions to search for lost records: an offset before them, and a record of them."""
    for where, floor in sorted(ended.watched.floors.items()):
        if floor >= 0 and where.topic not in ended.watched.deleted:
            yield where, floor, ended.watched.first_offsets.get(where)


#: A loss is reported for this long.
_REPORTED_MS = 86_400_000
_MOST_REPORTED = 1_000


def deleted_records(ended: EndedCommit) -> Iterator[LostRecords]:
    """Yield the records in topics that were deleted before the transaction's commit, where known."""
    watched = ended.watched
    for where, first in sorted(watched.first_offsets.items()):
        note, known_ms = watched.deleted.get(where.topic, ("", 0))
        if note and known_ms <= ended.committed_ms:
            last = watched.ends[where] - 1
            yield LostRecords(*where, first, last, None, False, note, deleted=True)


@retry_write
def save_aborted_commit(lease: Lease, ended: EndedCommit, lost: Iterable[LostRecords]) -> None:
    watched = ended.watched
    with write_transaction(lease, lock_cluster=False) as write:
        AbortedCommit.objects.update_or_create(
            cluster_id=lease.cluster_id,
            key=watched.key,
            producer_id=watched.producer_id,
            started_ms=watched.started_ms,
            defaults={
                "transactional_id": watched.transactional_id,
                "application": watched.application,
                "committed_ms": ended.committed_ms,
                "lost": [list(records) for records in lost],
            },
        )
        write.notify_after_commit("recoveries")


def read_aborted_commits(cluster_id: int, now_ms: int) -> Iterator[AbortedCommitFacts]:
    """Yield the commits that lost records within a day, newest first."""
    rows = AbortedCommit.objects.filter(cluster_id=cluster_id, committed_ms__gt=now_ms - _REPORTED_MS)
    for row in rows.order_by("-committed_ms", "-pk")[:_MOST_REPORTED]:
        transaction = row.transactional_id, row.producer_id, row.started_ms, row.committed_ms
        yield AbortedCommitFacts(*transaction, tuple(written_records(row)))
