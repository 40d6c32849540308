"""Save the transactions that tails read, and the history inferred from lists and markers if
`__transaction_state` cannot be read.

Every save is one short database transaction in a fixed order (`dashboard.runtime.write_transactions`): the
lease (by its fencing token), the cluster's row, the positions (by compare-and-set), then the rows in key
order. A collector that was paused past its lease, or that repeats another one's records, writes nothing.
Pages are notified after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from django.db import connection
from django.db.models import F

from dashboard.models import ActionRecord, Collector, GapRecord, Position, Recent, StateCount, Transaction
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import RECONCILE
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions, read_rows
from dashboard.runtime.write_transactions import WriteTransaction, retry_write, write_transaction
from dashboard.transactions import attributions, topic_tallies
from dashboard.transactions import sql as transaction_sql
from dashboard.transactions.sql import recent_rings
from fenceline.decode import text
from fenceline.decode.tail_batch import TailBatch
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, NOT_REPORTED, Tombstone, TransactionRecord, TransactionState
from fenceline.kafka import transactional_ids
from fenceline.kafka.fold.aggregate import fold_inferred
from fenceline.kafka.fold.columnar import fold_table
from fenceline.kafka.fold.folded import Folded, KnownSpan, Prior
from fenceline.kafka.fold.marker_history import EndMarker, InferredRecord, infer_records
from fenceline.kafka.reconcile import Correction

log = logging.getLogger(__name__)

#: Raw SQL, because each save asks twice.
_OTHER_WRITERS = f"""
SELECT COALESCE((SELECT records FROM {Collector._meta.db_table} WHERE cluster_id = %s AND name = %s), 0),
    COALESCE((SELECT max(id) FROM {ActionRecord._meta.db_table} WHERE cluster_id = %s), 0)
"""  # noqa: S608


def save_batch(lease: Lease, batch: TailBatch, *, topic_id: str, rate: float, now_ms: int) -> int:
    """Save a tail's batch, its transitions, and its positions; return the new revision.

    Raises `LeaseLost` as `move_positions` does, or for an outdated token.
    """
    return prepare_save(lease, batch, topic_id=topic_id, rate=rate, now_ms=now_ms)()


def prepare_save(
    lease: Lease, batch: TailBatch, *, topic_id: str, rate: float, now_ms: int
) -> Callable[[], int]:
    """Fold a batch with the known state of its ids; return a function that saves it as `save_batch` does.

    It saves in one database transaction. The positions compared there prove that no other tail has saved in
    between. If a row was corrected in between, the batch is folded again.
    """
    if batch.is_empty:
        return partial(_save_progress, lease, batch, rate, now_ms)
    derived = _derive(lease.cluster_id, batch)

    def save() -> int:
        current = derived
        while (rev := _save(lease, batch, *current, topic_id=topic_id, rate=rate, now_ms=now_ms)) is None:
            current = _derive(lease.cluster_id, batch)
        return rev

    return save


def _derive(cluster_id: int, batch: TailBatch) -> tuple[Folded, _OtherWriters]:
    writers = _other_writers(cluster_id)
    folded = _fold(cluster_id, batch, writers)
    _log_strange(folded)
    return folded, writers


@retry_write
def _save_progress(lease: Lease, batch: TailBatch, rate: float, now_ms: int) -> int:
    columns = collector_store.progress_columns(batch, rate)
    with write_transaction(lease, columns, lock_cluster=False) as write:
        collector_store.record_tail(write.collector, batch, now_ms)
        write.notify_after_commit("collectors")
        return write.next_rev()


@retry_write
def _save(
    lease: Lease,
    batch: TailBatch,
    folded: Folded,
    writers: _OtherWriters,
    *,
    topic_id: str,
    rate: float,
    now_ms: int,
) -> int | None:
    """Save in one transaction; return None without saving if another writer changed the read rows."""
    stamps = ((new.partition, new.record.updated_ms) for new in folded.newest.values() if new.record)
    clocks = collector_store.clocks_ahead(lease, stamps, now_ms)
    columns = collector_store.progress_columns(batch, rate)
    # Before the transaction, during which no other writer of SQLite can write.
    newest = transaction_sql.stage_newest(folded.newest)
    with write_transaction(lease, columns, read=batch.count, lock_cluster=False) as write:
        # This locks the cluster's row, so corrections and attributions are either done or waiting.
        rev = write.next_rev()
        if _other_writers(lease.cluster_id) != writers:
            write.cancel()
            return None
        collector_store.move_positions(lease, topic_id, batch.moves, now_ms=now_ms, clocks=clocks)
        transaction_sql.write_newest(lease.cluster_id, rev, newest)
        transaction_sql.mark_lost(lease.cluster_id, folded.lost)
        transaction_sql.write_transitions(lease.cluster_id, rev, topic_id, folded.notable.values(), now_ms)
        transaction_sql.add_tallies(lease.cluster_id, lease.shard, folded.tallies)
        topic_tallies.add_topic_tallies(lease.cluster_id, lease.shard, folded.links)
        transaction_sql.add_states(lease.cluster_id, lease.shard, folded.states)
        if batch.cold and batch.seen_through_ms is not None:
            transaction_sql.count_again(lease.cluster_id, lease.shard)
        collector_store.count_undecoded(write.collector, folded.undecoded)
        if batch.compacted:
            _count_compacted(lease, batch.compacted, now_ms)
        collector_store.record_tail(write.collector, batch, now_ms)
        _ring(write, batch, folded)
    return rev


class _OtherWriters(NamedTuple):
    """Progress of the other writers of a tail's rows: every write changes one of these numbers."""

    #: The number of rows ever written from the coordinators' lists
    #: (`dashboard.transactions.reconcile_store`).
    corrected: int
    #: The newest record of an action (`dashboard.transactions.attributions`), 0 before the first.
    attributed: int


def _other_writers(cluster_id: int) -> _OtherWriters:
    with connection.cursor() as cursor:
        cursor.execute(_OTHER_WRITERS, [cluster_id, RECONCILE, cluster_id])
        return _OtherWriters(*cursor.fetchone())


def _fold(cluster_id: int, batch: TailBatch, writers: _OtherWriters) -> Folded:
    """Fold records with the stored state of their ids.

    For a partition that was never read, stored states are skipped unless a coordinator has listed ids. If an
    id is in two partitions that is wrong, and `transaction_sql.count_again` corrects the counts.
    """
    folded, records = Folded(), batch.records
    of_topic = {"cluster_id": cluster_id, "topic": collector_store.TRANSACTION_STATE}
    moved = [move.partition for move in batch.moves]
    holes = {move.partition: move.holes for move in batch.moves if move.holes}
    for partition, edge in read_rows(Position, ("partition", "hole_offset"), **of_topic, partition=moved):
        if edge is not None:
            holes[partition] = (edge, *holes.get(partition, ()))
    fresh = set() if writers.corrected else {move.partition for move in batch.moves if move.is_first}
    known = {p: keys for p, keys in records.items() if not (batch.cold and p in fresh)}
    priors = transaction_sql.read_priors(cluster_id, known)
    causes = attributions.action_causes(cluster_id) if writers.attributed else {}
    hashed = {key: transactional_ids.key_of(key[4:]) for key in records.keys_in_order} if causes else {}
    own_causes = {key: causes[short] for key, short in hashed.items() if short in causes}
    fold_table(folded, records, priors, holes, own_causes)
    inferred = inferred_span(cluster_id) if batch.cold else None
    return folded if inferred is None else folded.outside(inferred)


def _log_strange(folded: Folded) -> None:
    for reason, (partition, offset, detail) in folded.strange.items():
        where = f"{collector_store.TRANSACTION_STATE}-{partition}@{offset}"
        log.warning("%s cannot be decoded: %s (%s)", where, reason, detail)


@retry_write
def forget_topic(lease: Lease, reason: str, topic_id: str, now_ms: int) -> None:
    """Delete all ids and positions of a topic that was replaced by another; save a gap about it.

    The history is kept. Nothing is deleted if another shard already did it: `topic_id` is the replaced topic,
    and then the positions are of the new one.
    """
    with write_transaction(lease, {"seen_through_ms": None, "behind": None}) as write:
        if not Position.objects.filter(cluster_id=lease.cluster_id, topic_id=topic_id).exists():
            return
        Position.objects.filter(cluster_id=lease.cluster_id, topic=collector_store.TRANSACTION_STATE).delete()
        Transaction.objects.filter(cluster_id=lease.cluster_id).delete()
        Recent.objects.filter(cluster_id=lease.cluster_id).delete()
        StateCount.objects.filter(cluster_id=lease.cluster_id).delete()
        collector_store.add_gap(lease, "history", reason, now_ms)
        write.notify_after_commit("transactions")


def _count_compacted(lease: Lease, count: int, now_ms: int) -> None:
    holes = GapRecord.objects.filter(cluster_id=lease.cluster_id, source=lease.name, scope="compaction")
    if not holes.update(count=F("count") + count, until_ms=now_ms):
        reason = "older records were compacted away before they were read; newest states are complete"
        collector_store.add_gap(lease, "compaction", reason, now_ms, count)


def _ring(write: WriteTransaction, batch: TailBatch, folded: Folded) -> None:
    if folded.newest:
        write.notify_after_commit(
            "transactions", [folded_id.transactional_id for folded_id in folded.newest.values()]
        )
    if folded.notable:
        write.notify_after_commit("transitions")
    if batch.seen_through_ms is not None or not folded.newest:
        write.notify_after_commit("collectors")


#: Offsets reserved for the inferred records of one revision: they need unique offsets that no log has.
_PLACES = 1 << 20
#: The four bytes before the id in a key of the log.
_BEFORE_THE_ID = bytes(4)


class InferredCorrection(NamedTuple):
    """A correction, the id's previous state, and the inferred records in between."""

    key: bytes
    correction: Correction
    prior: Prior
    inferred: Sequence[InferredRecord]


def infer_corrections(
    cluster_id: int,
    corrections: Sequence[tuple[bytes, Correction]],
    markers: Mapping[int, Sequence[EndMarker]],
) -> Sequence[InferredCorrection]:
    """Return corrections by key with the history inferred from `markers` (by producer id)."""
    priors = _known_records(cluster_id, [key for key, _ in corrections])
    inferred_corrections = []
    for key, correction in corrections:
        prior = priors.get(key, Prior())
        own = () if prior.record is None else markers.get(prior.record.producer_id, ())
        inferred = () if correction.hidden else infer_records(prior.record, correction.record, own)
        last = inferred[-1].record if inferred else prior.record
        inferred_corrections.append(InferredCorrection(key, _with_version(correction, last), prior, inferred))
    return inferred_corrections


def _with_version(correction: Correction, last: TransactionRecord | Tombstone | None) -> Correction:
    """Return a correction with the previous record's protocol version, because reports omit it."""
    if not isinstance(correction.record, TransactionRecord) or not isinstance(last, TransactionRecord):
        return correction
    return correction._replace(record=correction.record._replace(client_version=last.client_version))


def save_history(lease: Lease, rev: int, changes: Sequence[InferredCorrection], now_ms: int) -> bool:
    """Save the inferred history of ids; return whether it has notable transitions.

    Call it in a write transaction.
    """
    folded = Folded()
    causes = attributions.action_causes(lease.cluster_id)
    place = rev * _PLACES
    for key, correction, prior, inferred in changes:
        name = correction.record.transactional_id
        log_key = _BEFORE_THE_ID + text.unescape_text(name)
        fold_inferred(folded, log_key, name, prior, inferred, place, causes.get(key, {}))
        place += len(inferred)
    transaction_sql.write_recents(lease.cluster_id, folded.newest)
    transaction_sql.write_transitions(lease.cluster_id, rev, "", folded.notable.values(), now_ms)
    transaction_sql.add_tallies(lease.cluster_id, lease.shard, folded.tallies)
    topic_tallies.add_topic_tallies(lease.cluster_id, lease.shard, folded.links)
    return bool(folded.notable)


def inferred_span(cluster_id: int) -> KnownSpan | None:
    """Return the time span with inferred history; None if history was never inferred."""
    details = Collector.objects.filter(cluster_id=cluster_id, name=RECONCILE).values_list("detail", flat=True)
    inferred = (detail for detail in details if "inferred_ms" in detail)
    return next(
        (KnownSpan(detail.get("inferred_since_ms", 0), detail["inferred_ms"]) for detail in inferred), None
    )


def _known_records(cluster_id: int, keys: Collection[bytes]) -> Mapping[bytes, Prior]:
    """Return the ids' state known from reports, with their last transitions."""
    priors = {key: Prior(packed=ring.packed) for key, ring in recent_rings(cluster_id, keys).items()}
    known = Transaction.objects.filter(cluster_id=cluster_id, log_offset=NOT_FROM_LOG)
    for transactions in in_portions(known, "key", keys):
        for row in transactions.defer("recent"):
            key, packed = bytes(row.key), priors.get(bytes(row.key), Prior()).packed
            priors[key] = Prior(TransactionState(row.state), _record_of(row), packed=packed)
    return priors


def _record_of(row: Transaction) -> TransactionRecord | None:
    """Return the report behind a row; None for a row known only from a list."""
    if row.producer_epoch == NOT_REPORTED:
        return None
    partitions = transaction_sql.unpacked_partitions(row.partitions) if row.partitions else ()
    return record_of(TransactionRecord, row, state=TransactionState(row.state), partitions=partitions)
