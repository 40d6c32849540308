"""Find lost records: those of an aborted transaction, by the batch headers around its markers, and those of a
committed one into whose log another client wrote an abort marker.

It uses neither the database nor Celery. Its driver passes the places to search, and stores the result.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.losses.aborted_commits import CommittedTransaction, lost_before_commit
from fenceline.losses.recoveries import LostRecords, TopicNow, lost_in, unblocked_ms
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Bytes of one request, and maximum requests per partition.
_BYTES_AT_ONCE = 1024 * 1024
_MOST_REQUESTS = 16
#: A topic counts as deleted if brokers have not known it for this long: a broker that has just started may
#: not know it yet.
_MISSING_MS = 2_000
_FORGOTTEN_MS = 60_000
#: Bytes of one request, and requests per partition, for a suspected transaction.
_SUSPECTED_BYTES = 256 * 1024
MOST_REQUESTS = 64


class Search(NamedTuple):
    """The partition and offset at which to search for an aborted transaction, and its producer."""

    where: TopicPartition
    #: No record of it is before this offset.
    start: int
    producer_id: int
    #: The epoch of its abort.
    producer_epoch: int
    #: Whether no other abort of this producer has the same epoch: then the first one found is the right one.
    alone: bool


def find_lost(reads: ClusterReads, search: Search) -> LostRecords:
    """Return the transaction's records in a partition; bounds and a note if unknown.

    Raises `AdminUnavailable` if no broker can be asked at all.
    """
    offsets = reads.list_offsets([search.where])[search.where]
    # A transaction that ended before the LSO reached here has its marker before it: read up to there.
    lso = None if isinstance(offsets, Unseen) else offsets.lso
    batches: list[RecordBatch] = []
    at = search.start
    lost: LostRecords | None = None
    for _ in range(_MOST_REQUESTS):
        answer = reads.batch_headers(search.where, at, most_bytes=_BYTES_AT_ONCE)
        if isinstance(answer, Unseen):
            return lost or _bounds(search, None, answer.reason)
        batches += answer.batches
        lost = lost_in(search.where, batches, search.producer_id, search.producer_epoch)
        enough = min(lso or 0, answer.end) if search.alone else answer.end
        if lost is not None and answer.next >= enough:
            return _with_release(search, lost, batches, lso)
        if answer.next >= answer.end or answer.next <= at:
            return lost or _bounds(search, answer.end, "its abort marker is not in the log any more")
        at = answer.next
    return lost or _bounds(search, None, "too much was written around it to read it all")


def _with_release(
    search: Search, lost: LostRecords, batches: Sequence[RecordBatch], lso: int | None
) -> LostRecords:
    """Add the instant at which readers could pass, if they had passed before the log was read."""
    if lso is None or (lost.last is not None and lso <= lost.last):
        return lost
    return lost._replace(unblocked_ms=unblocked_ms(lost, batches, search.producer_id))


def _bounds(search: Search, end: int | None, note: str) -> LostRecords:
    last = None if end is None else max(search.start, end - 1)
    return LostRecords(*search.where, search.start, last, None, False, note)


class Topics:
    """The brokers' present topics, by name."""

    def __init__(self) -> None:
        #: The time since which topics are missing.
        self._missing: dict[str, int] = {}

    def fetch_topics(self, reads: ClusterReads, names: Set[str], now_ms: int) -> Mapping[str, TopicNow]:
        """Ask for the ids of topics; omit a topic that has only just become missing.

        Raises `AdminUnavailable`.
        """
        if not names:
            return {}
        topology = reads.describe_topology(sorted(names))
        hidden = {unseen.what: unseen.reason for unseen in topology.unseen}
        topics = {name: TopicNow(topic_id) for name, topic_id in topology.topic_ids.items() if name in names}
        for name in names - topics.keys():
            if name not in topology.missing:
                topics[name] = TopicNow(hidden=hidden.get(name, "no broker reported it"))
            elif now_ms - self._missing.setdefault(name, now_ms) >= _MISSING_MS:
                topics[name] = TopicNow(deleted=True)
        self._missing = {
            name: at_ms
            for name, at_ms in self._missing.items()
            if name in topology.missing or (name not in names and now_ms - at_ms < _FORGOTTEN_MS)
        }
        return topics


def find_lost_before_commit(
    reads: ClusterReads,
    where: TopicPartition,
    transaction: CommittedTransaction,
    *,
    floor: int,
    first_offset: int | None,
    requests: int,
) -> LostRecords | None:
    """Return the lost records of a partition; None if the log does not show the commit marker within bounds.

    No record of the transaction is before `floor`; `first_offset` is that of a record that was seen open. If
    the log after the floor is too long, the search starts there. Raises `AdminUnavailable`.
    """
    lost = _search(reads, where, transaction, first_offset, floor, requests)
    if lost is None and first_offset is not None and first_offset > floor:
        lost = _search(reads, where, transaction, first_offset, first_offset, requests)
    return lost


def _search(
    reads: ClusterReads,
    where: TopicPartition,
    transaction: CommittedTransaction,
    first_offset: int | None,
    start: int,
    requests: int,
) -> LostRecords | None:
    batches: list[RecordBatch] = []
    at = start
    for _ in range(requests):
        answer = reads.batch_headers(where, at, most_bytes=_SUSPECTED_BYTES)
        if isinstance(answer, Unseen):
            return None
        batches += (batch for batch in answer.batches if batch.producer_id == transaction.producer_id)
        lost = lost_before_commit(where, batches, transaction, first_offset)
        if lost is not None or answer.next <= at:
            return lost
        at = answer.next
    return None
