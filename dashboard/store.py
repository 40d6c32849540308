"""The only writer of observed state.

Every save is one short database transaction in a fixed order: the lease (by its fencing token), the
positions (by compare-and-set), the revision, then the rows in key order. A collector that was paused past
its lease, or that reads what another one has read, writes nothing at all. The doorbell rings after the
commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial

from django.db import connection, transaction
from django.db.models import F, QuerySet

from dashboard import live
from dashboard.leases import Lease, LeaseLost, collector, renew
from dashboard.models import Cluster, GapRecord, Position, Transaction
from fenceline.decode import text
from fenceline.facts import Located, Look, PositionMove, TopicPartitions, TransactionRecord

TRANSACTION_STATE = "__transaction_state"

#: The values of one statement, in its order.
_Row = tuple[int | bytes | str | None, ...]

_COLUMNS = (
    "cluster_id",
    "key",
    "transactional_id",
    "state",
    "producer_id",
    "producer_epoch",
    "timeout_ms",
    "started_ms",
    "updated_ms",
    "partitions",
    "partition_count",
    "client_version",
    "log_partition",
    "log_offset",
    "rev",
)
# SQLite and PostgreSQL share this statement; executemany of it is five times bulk_create's speed.
_UPSERT = (
    f"INSERT INTO dashboard_transaction ({', '.join(_COLUMNS)}) "  # noqa: S608 - our own constants
    f"VALUES ({', '.join(['%s'] * len(_COLUMNS))}) "
    f"ON CONFLICT (cluster_id, key) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in _COLUMNS[3:])}"
)
_DELETE = "DELETE FROM dashboard_transaction WHERE cluster_id = %s AND key = %s"
_MOVE = (
    "INSERT INTO dashboard_position (cluster_id, topic, partition, next_offset, end_offset, topic_id) "
    "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (cluster_id, topic, partition) DO UPDATE SET "
    "next_offset = excluded.next_offset, end_offset = excluded.end_offset, topic_id = excluded.topic_id"
)
_NEXT_REV = "UPDATE dashboard_cluster SET rev = rev + 1 WHERE id = %s RETURNING rev"


def key_of(raw_id: bytes) -> bytes:
    """Return the key of a transactional id, 32 bytes: ids may be 32 kB long, index entries may not."""
    return hashlib.sha256(raw_id).digest()


def sync_clusters(names: Iterable[str]) -> None:
    """Make a row for each configured cluster and mark those that the configuration no longer names."""
    wanted = set(names)
    Cluster.objects.bulk_create([Cluster(name=name) for name in sorted(wanted)], ignore_conflicts=True)
    Cluster.objects.exclude(name__in=wanted).filter(configured=True).update(configured=False)
    Cluster.objects.filter(name__in=wanted, configured=False).update(configured=True)


def positions(cluster: str, topic: str = TRANSACTION_STATE) -> tuple[str, dict[int, int]]:
    """Return the topic id that was read last ("" before the first look) and the next offset by partition."""
    rows = list(Position.objects.filter(cluster__name=cluster, topic=topic))
    return (rows[0].topic_id if rows else ""), {row.partition: row.next_offset for row in rows}


def save_look(lease: Lease, look: Look, *, topic_id: str, rate: float, now_ms: int) -> int:
    """Save what a tail saw and how far it came, in one database transaction; return the new revision.

    Raises `LeaseLost` when the token is outdated or a position is not where the look began.
    """
    with transaction.atomic():
        renew(lease, **_progress(look, rate))
        _move(lease, topic_id, look.moves)
        rev = next_rev(lease.cluster_id)
        _write_transactions(lease.cluster_id, rev, look.changes)
        _count_undecoded(lease, look.undecoded)
        if look.compacted:
            _count_compacted(lease, look.compacted, now_ms)
        _clear_error(lease, now_ms)
        transaction.on_commit(partial(_ring, lease.cluster, rev, look))
    return rev


def save_trouble(lease: Lease, reason: str, *, now_ms: int) -> bool:
    """Record that a collector cannot see, as its error and as an open gap; return whether that is news.

    Keeps the lease; raises `LeaseLost` when it is not ours.
    """
    with transaction.atomic():
        renew(lease)
        changed = collector(lease).exclude(error=reason).update(error=reason, since_ms=now_ms)
        _open_gap(lease, reason, now_ms)
        if changed:
            rev = next_rev(lease.cluster_id)
            transaction.on_commit(partial(live.ring, lease.cluster, "collectors", rev))
    return bool(changed)


def forget(lease: Lease, reason: str, *, now_ms: int) -> None:
    """Drop every row and position of a topic that is not the one we read before; leave a gap that says so."""
    with transaction.atomic():
        renew(lease, seen_through_ms=None, behind=None)
        Position.objects.filter(cluster_id=lease.cluster_id, topic=TRANSACTION_STATE).delete()
        Transaction.objects.filter(cluster_id=lease.cluster_id).delete()
        add_gap(lease, "history", reason, now_ms)
        rev = next_rev(lease.cluster_id)
        transaction.on_commit(partial(live.ring, lease.cluster, "transactions", rev))


def add_gap(lease: Lease, scope: str, reason: str, now_ms: int, count: int = 1) -> None:
    """Record something that went unseen, `count` times, and is over."""
    GapRecord.objects.create(
        cluster_id=lease.cluster_id,
        source=lease.name,
        scope=scope,
        since_ms=now_ms,
        until_ms=now_ms,
        reason=reason,
        count=count,
    )


def next_rev(cluster_id: int) -> int:
    """Raise the revision of a cluster and return it; the row lock makes its order the order of commits."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_REV, [cluster_id])
        rev: int = cursor.fetchone()[0]
    return rev


def _progress(look: Look, rate: float) -> dict[str, object]:
    fields: dict[str, object] = {"records": F("records") + look.records, "rate": rate, "behind": look.behind}
    if look.seen_through_ms is not None:
        fields["seen_through_ms"] = look.seen_through_ms
    return fields


def _move(lease: Lease, topic_id: str, moves: Iterable[PositionMove]) -> None:
    # Read, compare, write: the lease row, locked by the renewal before, keeps every other writer out.
    _, current = positions(lease.cluster)
    rows = []
    for move in moves:
        if current.get(move.partition) != move.previous:
            raise LeaseLost(f"{lease.cluster}: partition {move.partition} is not at {move.previous} any more")
        rows.append((lease.cluster_id, TRANSACTION_STATE, move.partition, move.next, move.end, topic_id))
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_MOVE, rows)


def _write_transactions(cluster_id: int, rev: int, changes: Mapping[str, Located]) -> None:
    upserts: dict[bytes, _Row] = {}
    deletes: list[tuple[int, bytes]] = []
    for name, located in changes.items():
        key = key_of(text.unescape(name))
        if isinstance(located.record, TransactionRecord):
            upserts[key] = _row(cluster_id, key, rev, located.record, located)
        else:
            deletes.append((cluster_id, key))
    with connection.cursor() as cursor:
        # In key order, so that two writers can never wait for each other in a circle.
        if upserts:
            cursor.executemany(_UPSERT, [upserts[key] for key in sorted(upserts)])
        if deletes:
            cursor.executemany(_DELETE, sorted(deletes))


def _row(cluster_id: int, key: bytes, rev: int, record: TransactionRecord, at: Located) -> _Row:
    return (
        cluster_id,
        key,
        record.transactional_id,
        record.state.value,
        record.producer_id,
        record.producer_epoch,
        record.timeout_ms,
        record.started_ms,
        record.updated_ms,
        _packed(record.partitions),
        sum(len(numbers) for _, numbers in record.partitions or ()),
        record.client_version,
        at.partition,
        at.offset,
        rev,
    )


def _packed(partitions: tuple[TopicPartitions, ...] | None) -> str:
    return json.dumps(partitions, separators=(",", ":")) if partitions else ""


def _count_undecoded(lease: Lease, undecoded: Mapping[str, int]) -> None:
    if not undecoded:
        return
    row = collector(lease).get()
    for reason, count in undecoded.items():
        row.undecoded[reason] = row.undecoded.get(reason, 0) + count
    row.save(update_fields=["undecoded"])


def _count_compacted(lease: Lease, count: int, now_ms: int) -> None:
    holes = GapRecord.objects.filter(cluster_id=lease.cluster_id, source=lease.name, scope="compaction")
    if not holes.update(count=F("count") + count, until_ms=now_ms):
        reason = "older records were compacted away before they were read; newest states are complete"
        add_gap(lease, "compaction", reason, now_ms, count)


def _blindness(lease: Lease) -> QuerySet[GapRecord]:
    """Return the open gap that says this collector cannot see its cluster."""
    return GapRecord.objects.filter(
        cluster_id=lease.cluster_id, source=lease.name, scope="cluster", until_ms=None
    )


def _open_gap(lease: Lease, reason: str, now_ms: int) -> None:
    gap = _blindness(lease)
    if not gap.update(reason=reason, count=F("count") + 1):
        gap.create(
            cluster_id=lease.cluster_id, source=lease.name, scope="cluster", since_ms=now_ms, reason=reason
        )


def _clear_error(lease: Lease, now_ms: int) -> None:
    if collector(lease).exclude(error="").update(error="", since_ms=now_ms):
        _blindness(lease).update(until_ms=now_ms)


def _ring(cluster: str, rev: int, look: Look) -> None:
    if look.changes:
        live.ring(cluster, "transactions", rev, tuple(look.changes))
    if look.seen_through_ms is not None or not look.changes:
        live.ring(cluster, "collectors", rev)
