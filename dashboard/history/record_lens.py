"""One record of a partition: its leader's present answer, and our rows about its transaction.

Nothing is stored. The record's key and value are returned if a cluster's `payloads` allows it.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from django.conf import settings

from collectors.kafka.record_lens import SeenRecord, find_key, look_at_offset
from dashboard.groups import queries as group_queries
from dashboard.models import Batch, GroupOffset, Query, SinkDecision, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.streaming import lag
from dashboard.streaming.batch_state import owner_query
from dashboard.streaming.batches import BatchOfQuery
from dashboard.transactions.producers import transaction_offsets
from dashboard.transactions.queries import find_transaction
from dashboard.transactions.sql import recent_ring
from fenceline.decode import text
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition, Transition
from fenceline.formatting import count_noun
from fenceline.kafka.added_offsets import TransactionOffsets
from fenceline.kafka.applications import application_of
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

#: A leader must answer one request within this time, because a user waits for the page.
ANSWER_S = 5.0
#: The largest offset of Kafka.
LARGEST_OFFSET = 2**63 - 1
#: Maximum readers, and maximum batches and decisions of a query, to search.
_MOST_READERS, _MOST_SEARCHED = 50, 500
#: A marker is written at once, by another broker's clock: a decision this far from it belongs to another one.
_MARKER_WITHIN_MS = 60_000
#: Maximum shown bytes of a key or value.
MOST_PAYLOAD = 16 * 1024


class CannotLook(Exception):
    """An offset cannot be examined; the text has the problem, `status` is the HTTP status."""

    def __init__(self, text: str, status: int = 404) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class RecordLens:
    """One record: its fate, its transaction, and its readers."""

    cluster: str
    where: TopicPartition
    look: OffsetLook
    fate: RecordFate
    #: None without a record there, or for an unreadable one.
    record: SeenRecord | None
    unreadable: str
    #: The present id of its producer id, as escaped text; "" without one or if it was not requested.
    transactional_id: str
    #: The end of the record's transaction, from the history of its id.
    ending: Transition | None
    #: The offsets of groups that its transaction moved; None if the id has continued since.
    offsets: TransactionOffsets | None
    written_by: BatchOfQuery | None
    read_by: Sequence[BatchOfQuery]
    #: The groups that committed for the partition.
    groups: Sequence[GroupOffset]

    @property
    def batch(self) -> RecordBatch | None:
        """Return the batch that spans the offset."""
        return self.look.batch

    @property
    def application(self) -> str:
        """Return the application of its id, "" without one."""
        return application_of(self.transactional_id).application if self.transactional_id else ""

    @property
    def neighbours(self) -> Sequence[RecordBatch]:
        """Return some batches around it, in the order of the log."""
        following = [batch for batch in self.look.batches if batch.last >= self.look.offset]
        return [*self.look.before[-3:], *following[:4]]


def look_at_record(cluster: str, where: TopicPartition, offset: int) -> RecordLens:
    """Ask a partition's leader about one offset, and add our known facts. Raises `CannotLook`."""
    with _reads(cluster, where) as reads:
        seen = look_at_offset(reads, where, offset)
        if isinstance(seen, Unseen):
            raise CannotLook(f"{where.topic}-{where.partition} cannot be read: {seen.reason}.")
        look, record, unreadable = seen
        return _lens(cluster, where, look, record, unreadable, _id_of(reads, look.batch))


def find_record(cluster: str, where: TopicPartition, key: str) -> int:
    """Return the offset of the newest record with a key (escaped text). Raises `CannotLook` without one."""
    try:
        raw = text.unescape_text(key)
    except ValueError as error:
        raise CannotLook(
            f"This is no key: {error}. Write a backslash as \\\\, a byte as \\xNN.", 422
        ) from error
    with _reads(cluster, where) as reads:
        searched = find_key(reads, where, raw)
    name = f"{where.topic}-{where.partition}"
    if isinstance(searched, Unseen):
        raise CannotLook(f"{name} cannot be read: {searched.reason}.")
    if searched.offset is None:
        raise CannotLook(
            f"No record of {name} has this key among offsets {searched.from_offset:,} to "
            f"{searched.to_offset:,}; others are not searched."
            + (f" {count_noun(searched.unreadable, 'batch')} cannot be read." if searched.unreadable else "")
        )
    return searched.offset


@contextmanager
def _reads(cluster: str, where: TopicPartition) -> Iterator[ClusterReads]:
    """Connect to a cluster to read one partition. Raises `CannotLook`."""
    config = settings.FENCELINE.clusters.get(cluster)
    if config is None:
        raise CannotLook(f"No cluster {cluster} is configured (fenceline.toml).")
    if not config.scope.has_topic(where.topic):
        raise CannotLook(f"Topic {where.topic} is outside the scope of cluster {cluster} (fenceline.toml).")
    try:
        with closing(ClusterReads(config.properties, ANSWER_S, config.scope)) as reads:
            yield reads
    except (AdminUnavailable, CannotTranslate) as error:
        raise CannotLook(str(error), 503) from error


def _id_of(reads: ClusterReads, batch: RecordBatch | None) -> str:
    """Return the transactional id that has a producer id, from the coordinators' lists."""
    if batch is None or batch.producer_id < 0 or not (batch.transactional or batch.marker):
        return ""
    try:
        return reads.transactional_ids([batch.producer_id]).get(batch.producer_id, "")
    except AdminUnavailable:
        # A silent coordinator may have it: then it is unknown.
        return ""


def _lens(
    cluster: str,
    where: TopicPartition,
    look: OffsetLook,
    record: SeenRecord | None,
    unreadable: str,
    name: str,
) -> RecordLens:
    row = find_transaction(cluster, name) if name else None
    kept = recent_ring(row.cluster_id, bytes(row.key)) if row else None
    ring = transition_ring.unpack_ring(kept.packed, row.log_partition) if kept and row else ()
    ending = _ending(ring, look)
    watched = partition_queries.find_partition(cluster, *where)
    queries = lag.partition_readers(watched, most=_MOST_READERS) if watched else ()
    read_by = [BatchOfQuery(query, _reading_batch(query, where, look.offset)) for query, _ in queries]
    return RecordLens(
        cluster,
        where,
        look,
        fate_of(look),
        record,
        unreadable,
        name,
        ending,
        _moved_offsets(row, look, ring, ending),
        _written_by(row, look),
        [batch for batch in read_by if batch.batch_id is not None],
        group_queries.partition_readers(watched.cluster_id, *where, most=_MOST_READERS) if watched else (),
    )


def _ending(ring: Sequence[Transition], look: OffsetLook) -> Transition | None:
    """Return the decision of a record's marker: the last decision of its producer before the marker."""
    marker = look.batch if look.batch and look.batch.marker else look.marker
    if marker is None:
        return None
    ends = (end for end in ring if end.producer_id == marker.producer_id and end.open_ms is not None)
    near = (end for end in ends if abs(end.at_ms - marker.max_timestamp_ms) <= _MARKER_WITHIN_MS)
    return min(near, key=lambda each: abs(each.at_ms - marker.max_timestamp_ms), default=None)


def _moved_offsets(
    row: Transaction | None, look: OffsetLook, ring: Sequence[Transition], ending: Transition | None
) -> TransactionOffsets | None:
    """Return the offsets that its transaction committed, while this is the id's newest one."""
    if row is None or look.batch is None or row.producer_id != look.batch.producer_id:
        return None
    newest = ending is not None and not row.is_open and next((e for e in ring if e.open_ms is not None), None)
    is_newest = newest == ending if newest else row.is_open and fate_of(look) is RecordFate.OPEN
    return transaction_offsets(row) if is_newest else None


def _written_by(row: Transaction | None, look: OffsetLook) -> BatchOfQuery | None:
    """Return the batch whose exactly-once sink wrote the record; its number if only one decision matches."""
    query = owner_query(row.cluster_id, row.transactional_id) if row else None
    if row is None or query is None or look.batch is None:
        return None
    decisions = SinkDecision.objects.filter(query=query).order_by("-batch_id", "-round")[:_MOST_SEARCHED]
    wanted = (row.transactional_id, look.batch.producer_id, look.batch.producer_epoch)
    fitting = {
        decision.batch_id
        for decision in decisions
        for sent in decision.transactions
        if (sent["transactional_id"], sent["producer_id"], sent["producer_epoch"]) == wanted
    }
    return BatchOfQuery(query, next(iter(fitting)) if len(fitting) == 1 else None)


def _reading_batch(query: Query, where: TopicPartition, offset: int) -> int | None:
    """Return the batch that read an offset: the first one beyond it, if the batch before is known."""
    following = None
    for batch in Batch.objects.filter(query=query).order_by("-batch_id")[:_MOST_SEARCHED]:
        position = max((lag.source_positions(raw).get(where, -1) for _, raw in batch.offsets), default=-1)
        if position < 0:
            continue
        if position <= offset:
            return following
        following = batch.batch_id
    return None


def shown_payload(data: bytes | None) -> str | None:
    """Return a key or value as text; for a large one its first bytes and a note. None for null."""
    if data is None:
        return None
    cut = f" … (the first {MOST_PAYLOAD:,} of {len(data):,} bytes)" if len(data) > MOST_PAYLOAD else ""
    return text.escape_bytes(data[:MOST_PAYLOAD]) + cut
