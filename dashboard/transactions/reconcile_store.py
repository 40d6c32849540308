"""Read the rows for the comparison with the coordinators' lists, and save the corrections.

A correction is saved only if the row is still the compared one, so records of the tail always win. If the
topic may not be read or does not exist, the lists are the only source. Then every listed id becomes a row,
until the first position of a tail is saved.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from django.db import connection
from django.db.models import F, QuerySet

from dashboard.models import IS_OPEN, Collector, PartitionRecord, Position, Recent, Transaction
from dashboard.runtime import collector_store, sql
from dashboard.runtime.leases import Lease, collector_row
from dashboard.runtime.visibility import absence_doubt
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.system.capabilities import shortfall
from dashboard.transactions import sql as transaction_sql
from dashboard.transactions.store import infer_corrections, save_history
from fenceline.facts import NOT_FROM_LOG, Tombstone, TransactionRecord, TransactionState
from fenceline.formatting import fit_name
from fenceline.kafka.applications import application_of
from fenceline.kafka.reconcile import Correction, KnownTransaction, Reconciliation
from fenceline.kafka.transactional_ids import key_of_name

NAME = "reconcile"
#: Maximum ids in one save, so that other writers wait only briefly.
_SAVE_AT_ONCE = 2_000
#: The most open transactions with their own gap.
_MOST_GAPS = 100
#: The error of a tail without a topic while coordinators list ids.
NOT_KEPT = f"this broker keeps no {collector_store.TRANSACTION_STATE}"
_HIDDEN = (
    f"transactions are open in partitions, but there is no {collector_store.TRANSACTION_STATE} and no list "
    "has an id: all ids may be hidden from us"
)
#: Consecutive lists with entries that prove it: one list may be older than the topic.
_PROVED = 2
_KNOWN = ("transactional_id", "state", "producer_id", "log_offset", "producer_epoch", "started_ms")
_TABLE = Transaction._meta.db_table
_SET = (
    "state", "producer_id", "producer_epoch", "timeout_ms", "started_ms", "updated_ms", "partitions",
    "partition_count", "client_version", "log_offset", "rev",
)  # fmt: skip
_NEW = ("cluster_id", "key", "transactional_id", "application", "log_partition", *_SET)
# Matches only the compared row: the offset identifies its record, the state its counter.
_COMPARED = "cluster_id = %s AND key = %s AND log_offset = %s AND state = %s"
_UPDATE = f"UPDATE {_TABLE} SET {', '.join(f'{c} = %s' for c in _SET)} WHERE {_COMPARED}"  # noqa: S608
_DELETE = f"DELETE FROM {_TABLE} WHERE {_COMPARED}"  # noqa: S608 - our own constants
_KEEP = (
    f"INSERT INTO {Recent._meta.db_table} (cluster_id, key, packed) "  # noqa: S608
    f"SELECT cluster_id, key, recent FROM {_TABLE} WHERE {_COMPARED} AND length(recent) > 0 "
    "ON CONFLICT (cluster_id, key) DO UPDATE SET packed = excluded.packed"
)
_INSERT = (
    f"INSERT INTO {_TABLE} ({', '.join(_NEW)}) VALUES ({', '.join(['%s'] * len(_NEW))}) "  # noqa: S608
    "ON CONFLICT (cluster_id, key) DO NOTHING"
)


class ReconciledRows:
    """The rows of one cluster for `collectors.kafka.reconcile`; `tails` names the tails' collectors."""

    def __init__(self, lease: Lease, tails: Collection[str] = ("transaction_state",)) -> None:
        self._cluster_id = lease.cluster_id
        self._tails = tails

    def without_tail(self) -> bool:
        """Whether the tails cannot read the topic, and have never read it."""
        reasons = (f"READ on {collector_store.TRANSACTION_STATE}", NOT_KEPT)
        is_blind = any(reason in error for _, error in self._progress() for reason in reasons)
        return is_blind and not _was_read(self._cluster_id)

    def read_through_ms(self) -> int | None:
        """Return the instant up to which all records are in the rows, None while a tail has no such instant.

        It is also None for a topic that was never read: then a list does not prove a missed record.
        """
        if not _was_read(self._cluster_id):
            return None
        seen = [seen_through_ms for seen_through_ms, _ in self._progress()]
        if len(seen) < len(self._tails) or None in seen:
            return None
        return min(instant_ms for instant_ms in seen if instant_ms is not None)

    def open_rows(self) -> dict[str, KnownTransaction]:
        return dict(_known(self._rows().filter(IS_OPEN)))

    def known_rows(self, names: Collection[str]) -> dict[str, KnownTransaction]:
        keys = [key_of_name(name) for name in names]
        known: dict[str, KnownTransaction] = {}
        for rows in sql.in_portions(self._rows(), "key", keys):
            known |= _known(rows)
        return known

    def all_rows(self) -> Iterator[tuple[str, KnownTransaction]]:
        """Yield every row, unordered."""
        return _known(self._rows())

    def _rows(self) -> QuerySet[Transaction]:
        return Transaction.objects.filter(cluster_id=self._cluster_id)

    def _progress(self) -> Sequence[tuple[int | None, str]]:
        """Return how far each tail has read, and its error."""
        of_tails = {"cluster_id": self._cluster_id, "name": list(self._tails)}
        return sql.read_rows(Collector, ("seen_through_ms", "error"), **of_tails)


def absence_reason(cluster_id: int, now_ms: int) -> str | None:
    """Return why a missing topic is a blind spot; "" if complete lists have no id, None before such lists."""
    poller = Collector.objects.filter(cluster_id=cluster_id, name=NAME).first()
    detail = poller.detail if poller else {}
    listed = detail.get("listed_in_a_row", 0)
    if listed >= _PROVED:
        return f"{NOT_KEPT}: pages show what coordinators list, and history from markers in topics"
    if listed:
        return None
    if PartitionRecord.objects.filter(cluster_id=cluster_id, pinned_ms__isnull=False).exists():
        return _HIDDEN
    unseen = "; ".join(detail.get("unseen", ())) or shortfall(cluster_id, "transactions")
    return absence_doubt(collector_store.TRANSACTION_STATE, poller, unseen, now_ms)


def save_reconciliation(lease: Lease, observed: Reconciliation, *, now_ms: int) -> int:
    """Save the result and the cost of a poll; return the number of changed rows of visible ids.

    Raises `LeaseLost` for an outdated token. Many corrections are saved in several transactions; the last one
    saves the poll's progress.
    """
    # In key order, so that writers cannot deadlock.
    ordered = sorted(
        (
            (key_of_name(_name(correction)), correction)
            for correction in (*observed.corrections, *observed.outside)
        ),
        key=itemgetter(0),
    )
    parts = sql.portions(ordered, _SAVE_AT_ONCE)
    written = sum(_save_some(lease, observed, part, now_ms) for part in parts)
    _save_rest(lease, observed, written, now_ms)
    return written


@retry_write
def _save_rest(lease: Lease, observed: Reconciliation, written: int, now_ms: int) -> None:
    seen_ms = observed.seen_through_ms
    progress = {} if seen_ms is None else {"seen_through_ms": seen_ms}
    with write_transaction(lease, progress, lock_cluster=False) as write:
        collector_store.save_gaps(lease, _gaps_of(observed.lost, now_ms), now_ms)
        row = write.collector
        news = _take_figures(row, observed, written) or bool(written)
        if collector_store.record_poll(row, observed, now_ms) or news:
            write.notify_after_commit("collectors")


@retry_write
def _save_some(
    lease: Lease, observed: Reconciliation, part: Sequence[tuple[bytes, Correction]], now_ms: int
) -> int:
    with write_transaction(lease) as write:
        if observed.alone and _was_read(lease.cluster_id):
            return 0
        rev = write.next_rev()
        if observed.alone:
            inferred = infer_corrections(lease.cluster_id, part, observed.markers)
            changes = [
                change for change in inferred if _write(lease.cluster_id, change.key, rev, change.correction)
            ]
            written = [change.correction for change in changes]
            if save_history(lease, rev, changes, now_ms):
                write.notify_after_commit("transitions")
        else:
            written = [
                correction for key, correction in part if _write(lease.cluster_id, key, rev, correction)
            ]
        _count_states(lease, written)
        collector_row(lease).update(records=F("records") + len(written))
        _forget(lease.cluster_id, written, now_ms)
        if written:
            write.notify_after_commit("transactions", [_name(correction) for correction in written])
    return sum(not correction.hidden for correction in written)


def _write(cluster_id: int, key: bytes, rev: int, correction: Correction) -> bool:
    """Write one row if it is still the compared one; return whether it was."""
    record, known, _ = correction
    compared = () if known is None else (cluster_id, key, known.log_offset, known.state.value)
    with connection.cursor() as cursor:
        if isinstance(record, Tombstone):
            cursor.execute(_KEEP, compared)
            cursor.execute(_DELETE, compared)
        elif known is None:
            application = application_of(record.transactional_id).application
            new = (cluster_id, key, record.transactional_id, application, NOT_FROM_LOG)
            cursor.execute(_INSERT, (*new, *_values(record, rev)))
        else:
            cursor.execute(_UPDATE, (*_values(record, rev), *compared))
        return bool(cursor.rowcount)


def _values(record: TransactionRecord, rev: int) -> sql.Row:
    return (
        record.state.value,
        record.producer_id,
        record.producer_epoch,
        record.timeout_ms,
        record.started_ms,
        record.updated_ms,
        transaction_sql.packed_partitions(record.partitions) if record.partitions else "",
        sum(len(numbers) for _, numbers in record.partitions or ()),
        record.client_version,
        NOT_FROM_LOG,
        rev,
    )


def _count_states(lease: Lease, written: Sequence[Correction]) -> None:
    """Update the number of ids in each state; this writer changes it only here."""
    changes: Counter[TransactionState] = Counter()
    for record, known, _ in written:
        if known is not None:
            changes[known.state] -= 1
        if isinstance(record, TransactionRecord):
            changes[record.state] += 1
    transaction_sql.add_states(lease.cluster_id, lease.shard, changes)


def _forget(cluster_id: int, written: Sequence[Correction], now_ms: int) -> None:
    """Set the expiry of the last transitions of deleted ids."""
    keys = [
        key_of_name(_name(correction)) for correction in written if isinstance(correction.record, Tombstone)
    ]
    Recent.objects.filter(cluster_id=cluster_id, key__in=keys).update(expired_ms=now_ms)


def _gaps_of(lost: Mapping[str, str], now_ms: int) -> dict[str, tuple[int, str]]:
    """Return a gap for each open transaction that became unobservable; a single gap if there are too many."""
    if len(lost) > _MOST_GAPS:
        return {"transactions": (now_ms, next(iter(lost.values())))}
    return {fit_name(f"transaction:{name}"): (now_ms, reason) for name, reason in lost.items()}


def _take_figures(row: Collector, observed: Reconciliation, written: int) -> bool:
    """Set the poll's figures in a row's detail; return whether a lasting figure has changed.

    `compared` and `agreed` are for the full list, `open_…` for the list of open transactions.
    """
    before = dict(row.detail)
    which = "" if observed.full else "open_"
    row.detail |= {
        f"{which}compared": observed.compared_ids,
        f"{which}agreed": observed.agreed,
        f"{which}pending": observed.pending,
        f"{which}hidden": observed.hidden,
        "corrected": before.get("corrected", 0) + (0 if observed.alone else written),
        "alone": observed.alone,
        "listed_in_a_row": _listed_in_a_row(before.get("listed_in_a_row", 0), observed),
        "unseen": list(observed.unseen),
        "may_hide": observed.may_hide,
        "markers_unseen": dict(observed.markers_unseen),
        "shortest_ms": observed.shortest_ms,
    }
    if observed.alone:
        row.detail.setdefault("inferred_since_ms", observed.at_ms)
        row.detail["inferred_ms"] = observed.at_ms
    return _lasting(before) != _lasting(row.detail)


def _listed_in_a_row(before: int, observed: Reconciliation) -> int:
    """Return the number of consecutive lists with ids; incomplete lists, and any after proof, keep it."""
    if observed.listed or before >= _PROVED:
        return min(before + 1, _PROVED)
    return 0 if observed.full and not observed.unseen else before


def _lasting(detail: Mapping[str, object]) -> dict[str, object]:
    """Return a detail without the figures that change from poll to poll."""
    return {
        key: value
        for key, value in detail.items()
        if not key.endswith(("compared", "agreed", "pending", "shortest_ms", "inferred_ms"))
    }


def _was_read(cluster_id: int) -> bool:
    topic = collector_store.TRANSACTION_STATE
    return bool(sql.read_rows(Position, ["id"], cluster_id=cluster_id, topic=topic))


def _known(rows: QuerySet[Transaction]) -> Iterator[tuple[str, KnownTransaction]]:
    columns = rows.values_list(*_KNOWN, "partition_count")
    for name, state, *others in columns.iterator(chunk_size=sql.KEYS_AT_ONCE):
        yield name, KnownTransaction(TransactionState(state), *others)


def _name(correction: Correction) -> str:
    return correction.record.transactional_id
