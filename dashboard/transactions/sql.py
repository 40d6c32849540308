"""The SQL of `store`: write the results of a fold as rows, and read the last transitions of ids. Call the
functions that write in its database transaction.

The SQL is raw, for SQLite and PostgreSQL alike (`dashboard.runtime.sql`). Every table is written in key
order, so that writers cannot deadlock.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from django.db import connection
from django.db.models import BigIntegerField, Count, Sum, Value

from dashboard.models import Recent, StateCount, Tally, Transaction, TransitionRecord
from dashboard.runtime.sql import (
    Row,
    StagedRows,
    Upsert,
    overwrite_changes,
    portions,
    read_rows,
    write_rows,
)
from fenceline.decode.typed import fields_of, record_of
from fenceline.facts import (
    NOT_FROM_LOG,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
)
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.counting import MinuteTally as Folded
from fenceline.kafka.fold.folded import Newest, NotableTransition, Prior
from fenceline.kafka.transactional_ids import key_of
from fenceline.series import histograms

HOUR_MS = 3_600_000

_TRANSACTION = (
    "cluster_id", "rev", "key", "transactional_id", "application", "state", "producer_id", "producer_epoch",
    "timeout_ms", "started_ms", "updated_ms", "partitions", "partition_count", "client_version",
    "log_partition", "log_offset", "recent",
)  # fmt: skip
_TRANSITION_KEY = ("cluster_id", "topic_id", "log_partition", "log_offset")
_TALLY_KEY = ("cluster_id", "span_s", "start_ms", "application", "shard")
_STATE_KEY = ("cluster_id", "shard", "state")

_transition = TransitionRecord._meta.db_table
#: A revised transition keeps its first kind, and the partitions of its first version.
_FIRST_VERDICT = {
    "partitions": (
        f"CASE WHEN excluded.partitions = '' THEN {_transition}.partitions ELSE excluded.partitions END"
    ),
    "revised_ms": (
        f"CASE WHEN excluded.revised_from = '' THEN {_transition}.revised_ms ELSE excluded.revised_ms END"
    ),
    "revised_from": (
        f"CASE WHEN {_transition}.revised_from = '' THEN excluded.revised_from "
        f"ELSE {_transition}.revised_from END"
    ),
    "action_id": f"COALESCE(excluded.action_id, {_transition}.action_id)",
}
_UPSERT_TRANSACTION = Upsert(
    Transaction._meta.db_table, _TRANSACTION, ("cluster_id", "key"),
    overwrite_changes(["rev", *_TRANSACTION[5:]]),
)  # fmt: skip
_ADDED = {"n": f"{StateCount._meta.db_table}.n + excluded.n"}
_DELETE = f"DELETE FROM {Transaction._meta.db_table} WHERE cluster_id = %s AND key = %s"  # noqa: S608
_REVISE = f"UPDATE {Transaction._meta.db_table} SET recent = %s WHERE cluster_id = %s AND key = %s"  # noqa: S608
_LOSE = f"UPDATE {Transaction._meta.db_table} SET log_offset = %s WHERE cluster_id = %s AND key = %s"  # noqa: S608
_PRIOR = "t.key, t.state, t.producer_id, t.producer_epoch, t.timeout_ms, t.updated_ms, t.started_ms, "
#: An ending transaction is counted for its topics when its last marker is written.
_PREPARED = "CASE WHEN t.state IN ('PrepareCommit', 'PrepareAbort') THEN t.partitions END"
_PRIORS = f"SELECT {_PRIOR} t.client_version, t.log_partition, t.log_offset, {_PREPARED}, t.recent FROM"
_GONE = "SELECT r.key, r.packed FROM"
_IN_KEYS = "WHERE {0}.cluster_id = %s AND {0}.key IN"
_OF_KEY = "LATERAL (SELECT * FROM {} WHERE (cluster_id, key) = (asked.cluster_id, asked.key) OFFSET 0)"
_transaction, _recent = Transaction._meta.db_table, Recent._meta.db_table
#: PostgreSQL looks keys up one by one here: without statistics it scans a whole table for an `IN`.
_ASKED = "(SELECT %s AS cluster_id, unnest(%s) AS key) asked CROSS JOIN"
_SOURCES = {
    ("sqlite", _PRIORS): f"{_transaction} t {_IN_KEYS.format('t')}",
    ("sqlite", _GONE): f"{_recent} r {_IN_KEYS.format('r')}",
    ("postgresql", _PRIORS): f"{_ASKED} {_OF_KEY.format(_transaction)} t",
    ("postgresql", _GONE): f"{_ASKED} {_OF_KEY.format(_recent)} r",
}
_STATES = {state.value: state for state in TransactionState}


def read_priors(cluster_id: int, log_keys: Mapping[int, Iterable[bytes]]) -> dict[int, dict[bytes, Prior]]:
    """Return the known state of ids by partition and key of `__transaction_state`, without unknown ids.

    If an id's newest record is in another partition, only its state is returned: the topic got more
    partitions, and records of two partitions have no order. Only records of ending transactions have their
    partitions, because no transition is derived from the partitions of earlier records.
    """
    wanted = {partition: {key_of(key[4:]): key for key in keys} for partition, keys in log_keys.items()}
    asked = list(dict.fromkeys(chain.from_iterable(wanted.values())))
    rows = {bytes(row[0]): row for row in _asked(_PRIORS, cluster_id, asked)}
    # An id that its coordinator has removed still has its last transitions.
    missing = [key for key in asked if key not in rows or not rows[key][-1]]
    gone = {bytes(key): bytes(packed) for key, packed in _asked(_GONE, cluster_id, missing)}
    priors: dict[int, dict[bytes, Prior]] = {partition: {} for partition in wanted}
    for partition, keys in wanted.items():
        for key in keys.keys() & (rows.keys() | gone.keys()):
            if key in rows:
                prior = _prior(rows[key], partition)
            else:
                prior = Prior(offset=transition_ring.expiry_offset(gone[key]))
            priors[partition][keys[key]] = prior._replace(packed=gone.get(key, prior.packed))
    return priors


def _asked(columns: str, cluster_id: int, keys: Sequence[bytes]) -> Iterator[Sequence[Any]]:
    """Yield the rows of keys, a portion of the keys at a time."""
    statement = f"{columns} {_SOURCES[connection.vendor, columns]}"
    with connection.cursor() as cursor:
        for portion in portions(keys):
            if connection.vendor == "postgresql":
                cursor.execute(statement, [cluster_id, portion])
            else:
                cursor.execute(f"{statement} ({', '.join(['%s'] * len(portion))})", [cluster_id, *portion])
            yield from cursor.fetchall()


def _prior(row: Sequence[Any], partition: int) -> Prior:
    _, word, producer_id, epoch, timeout_ms, updated_ms, started_ms, version, where, offset, *rest = row
    prepared, packed = rest
    state = _STATES[word]
    if offset == NOT_FROM_LOG:
        return Prior(state, packed=bytes(packed))
    if where != partition:
        return Prior(state)
    partitions = unpacked_partitions(prepared) if prepared else None
    record = TransactionRecord(
        "", state, producer_id, epoch, timeout_ms, partitions, updated_ms, started_ms, version
    )  # fmt: skip
    return Prior(state, record, offset, bytes(packed))


#: The newest states of ids, sorted by their keys in the database: the columns of existing ids from `key` on,
#: and the removed ids.
NewestRows: TypeAlias = tuple[Sequence[Row] | StagedRows, Sequence[tuple[bytes, Newest]]]


def stage_newest(newest: Mapping[bytes, Newest]) -> NewestRows:
    """Return the rows for `write_newest`, by the ids' keys in `__transaction_state`.

    Call it before the transaction, with the same connection.
    """
    ordered = _by_key(newest)
    existing = [_transaction_row(key, folded, folded.record) for key, folded in ordered if folded.record]
    return _UPSERT_TRANSACTION.stage(existing), [
        (key, folded) for key, folded in ordered if not folded.record
    ]


def write_newest(cluster_id: int, rev: int, rows: NewestRows) -> None:
    """Write the newest state and the last transitions of ids."""
    existing, removed = rows
    _UPSERT_TRANSACTION.write(existing, (cluster_id, rev))
    if removed:
        with connection.cursor() as cursor:
            cursor.executemany(_DELETE, [(cluster_id, key) for key, _ in removed])
    _keep_forgotten(cluster_id, removed)


def write_recents(cluster_id: int, newest: Mapping[bytes, Newest]) -> None:
    """Write only the last transitions of ids whose rows are already written or deleted."""
    ordered = _by_key(newest)
    if rows := [(folded.packed, cluster_id, key) for key, folded in ordered if folded.record]:
        with connection.cursor() as cursor:
            cursor.executemany(_REVISE, rows)
    _keep_forgotten(cluster_id, [(key, folded) for key, folded in ordered if not folded.record])


def _by_key(newest: Mapping[bytes, Newest]) -> Sequence[tuple[bytes, Newest]]:
    """Return ids with their keys in the database, sorted by key."""
    ids = [(key_of(log_key[4:]), folded) for log_key, folded in newest.items()]
    return sorted(ids, key=itemgetter(0))


def _keep_forgotten(cluster_id: int, removed: Iterable[tuple[bytes, Newest]]) -> None:
    rows = (
        {"cluster_id": cluster_id, "key": key, "packed": folded.packed, "expired_ms": folded.expired_ms}
        for key, folded in removed
    )
    write_rows(Recent, rows, ("cluster_id", "key"))


def mark_lost(cluster_id: int, log_keys: Iterable[bytes]) -> None:
    """Mark ids whose last record could not be decoded: their next record has no predecessor."""
    rows = sorted((NOT_FROM_LOG, cluster_id, key_of(key[4:])) for key in log_keys)
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_LOSE, rows)


def _transaction_row(key: bytes, newest: Newest, record: TransactionRecord) -> Row:
    # Unpacked, because attribute access costs half as much again, and a cold start makes a row of each id.
    name, application, _, _, partition, offset, packed = newest
    _, state, producer_id, epoch, timeout_ms, partitions, updated_ms, started_ms, version = record[:9]
    return (
        key, name, application, state.value, producer_id, epoch, timeout_ms, started_ms,
        updated_ms, packed_partitions(partitions) if partitions else "",
        sum([len(numbers) for _, numbers in partitions]) if partitions else 0,
        version, partition, offset, packed,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def unpacked_partitions(packed: str) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in json.loads(packed))


def packed_partitions(partitions: tuple[TopicPartitions, ...]) -> str:
    """Return partitions as the JSON text of their column."""
    # Producers write repeatedly to the same few partitions; lists of thousands are not cached.
    few = sum([len(numbers) for _, numbers in partitions]) <= _FEW_PARTITIONS
    return _packed_again(partitions) if few else _packed_partitions(partitions)


def _packed_partitions(partitions: tuple[TopicPartitions, ...]) -> str:
    return json.dumps(partitions, separators=(",", ":")) if partitions else ""


_FEW_PARTITIONS = 200
_packed_again = lru_cache(maxsize=4096)(_packed_partitions)


def write_transitions(
    cluster_id: int, rev: int, topic_id: str, transitions: Iterable[NotableTransition], now_ms: int
) -> None:
    """Write notable transitions, and replace revised ones."""
    rows = [_transition_row(cluster_id, rev, topic_id, transition, now_ms) for transition in transitions]
    write_rows(TransitionRecord, rows, _TRANSITION_KEY, merge=_FIRST_VERDICT)


def _transition_row(
    cluster_id: int, rev: int, topic_id: str, notable: NotableTransition, now_ms: int
) -> Mapping[str, Any]:
    columns = fields_of(notable.transition)
    return {
        "log_partition": columns.pop("partition"),
        "log_offset": columns.pop("offset"),
        **columns,
        "cluster_id": cluster_id,
        "topic_id": topic_id,
        "rev": rev,
        "key": key_of(notable.key[4:]),
        "transactional_id": notable.transactional_id,
        "application": notable.application,
        "partitions": json.dumps(notable.partitions) if notable.partitions else "",
        "revised_ms": now_ms if notable.revised_from else None,
        "revised_from": notable.revised_from,
        "action_id": notable.action,
    }


def transition_of(row: TransitionRecord) -> Transition:
    return record_of(Transition, row, partition=row.log_partition, offset=row.log_offset)


def add_tallies(cluster_id: int, shard: int, tallies: Mapping[tuple[str, int], Folded]) -> None:
    """Add tallies by application and minute to the rows of minutes, hours and the total."""
    wanted: dict[tuple[int, int, str], list[Folded]] = {}
    for (application, minute_ms), tally in tallies.items():
        for name in (application, Tally.EVERY):
            wanted.setdefault((60, minute_ms, name), []).append(tally)
            wanted.setdefault((3600, minute_ms - minute_ms % HOUR_MS, name), []).append(tally)
        wanted.setdefault((Tally.FOR_EVER_S, 0, Tally.EVERY), []).append(_grown(tally))
    if not wanted:
        return
    for span, start, application, *packed in _stored(cluster_id, shard, wanted):
        if (span, start, application) in wanted:
            wanted[span, start, application].append(_unpacked(*packed))
    rows = (
        {**dict(zip(_TALLY_KEY, (cluster_id, *where, shard), strict=True)), **_packed(parts)}
        for where, parts in wanted.items()
    )
    write_rows(Tally, rows, _TALLY_KEY)


def _grown(tally: Folded) -> Folded:
    """Return a tally's increases without its decreases, because a Prometheus counter never decreases."""
    return replace(tally, counts={kind: n for kind, n in tally.counts.items() if n > 0})


def _stored(cluster_id: int, shard: int, wanted: Iterable[tuple[int, int, str]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the wanted spans, and possibly other rows with the same starts."""
    spans, starts = {span for span, _, _ in wanted}, {start for _, start, _ in wanted}
    columns = ("span_s", "start_ms", "application", "counts", "open_times", "marker_times")
    of_spans = {"cluster_id": cluster_id, "shard": shard, "span_s": list(spans)}
    for portion in portions(sorted(starts)):
        yield from read_rows(Tally, columns, **of_spans, start_ms=portion)


def _unpacked(counts: str, open_times: str, marker_times: str) -> Folded:
    kinds = {TransitionKind(kind): n for kind, n in json.loads(counts).items()}
    return Folded(kinds, histograms.unpack_histogram(open_times), histograms.unpack_histogram(marker_times))


def _packed(parts: Sequence[Folded]) -> Mapping[str, str]:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update({kind.value: n for kind, n in part.counts.items()})
    times = {
        name: histograms.pack_histogram(histograms.merge_histograms(getattr(part, name) for part in parts))
        for name in ("open_times", "marker_times")
    }
    return {
        "counts": json.dumps({kind: n for kind, n in sorted(counts.items()) if n}, separators=(",", ":")),
        **times,
    }


def count_again(cluster_id: int, shard: int) -> None:
    """Correct the numbers of ids by state if their sum is not the number of rows."""
    ids, counts = (table.objects.filter(cluster_id=cluster_id) for table in (Transaction, StateCount))
    if ids.count() == (counts.aggregate(n=Sum("n"))["n"] or 0):
        return
    missing = Counter(dict(ids.values_list("state").annotate(n=Count("id"))))
    missing.subtract(dict(counts.values_list("state").annotate(sum=Sum("n"))))
    add_states(cluster_id, shard, {TransactionState(word): n for word, n in missing.items()})


def add_states(cluster_id: int, shard: int, changes: Mapping[TransactionState, int]) -> None:
    """Add the changes to the numbers of ids by state."""
    rows = (
        {"cluster_id": cluster_id, "shard": shard, "state": state.value, "n": by}
        for state, by in changes.items()
        if by
    )
    write_rows(StateCount, rows, _STATE_KEY, merge=_ADDED)


_FORGOTTEN, _KNOWN, _NEVER = Value(0), Value(1), Value(None, output_field=BigIntegerField())


class RecentRing(NamedTuple):
    """The last transitions of an id, packed by `transition_ring.pack_ring`."""

    packed: bytes
    #: When its coordinator removed the id; None while it is known.
    expired_ms: int | None = None


def recent_rings(cluster_id: int, keys: Collection[bytes]) -> dict[bytes, RecentRing]:
    """Return the last transitions by key, without ids that have no transitions."""
    rings: dict[bytes, RecentRing] = {}
    for portion in portions(keys):
        forgotten = Recent.objects.filter(cluster_id=cluster_id, key__in=portion)
        known = Transaction.objects.filter(cluster_id=cluster_id, key__in=portion).exclude(recent=b"")
        rows = forgotten.values_list("key", "packed", "expired_ms", _FORGOTTEN).union(
            known.values_list("key", "recent", _NEVER, _KNOWN), all=True
        )
        for key, packed, expired_ms, is_known in rows:
            if is_known or bytes(key) not in rings:
                rings[bytes(key)] = RecentRing(bytes(packed), expired_ms)
    return rings


def recent_ring(cluster_id: int, key: bytes) -> RecentRing | None:
    """Return the last transitions of an id, None without any."""
    return recent_rings(cluster_id, [key]).get(key)
