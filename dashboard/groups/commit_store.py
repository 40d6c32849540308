"""Save the commits that the tail of `__consumer_offsets` read: the newest of each group and partition.

A save writes the lease, the positions, then the rows in key order, in one database transaction, like
`dashboard.transactions.store`. The lease guards the rows of its partitions, so the cluster's row is locked
last. Pages are not notified, because the collector of groups reads these rows.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db import connection

from dashboard.models import Collector, CommitRecord, GapRecord, GroupOffset, GroupRecord, Position
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import GROUPS, OFFSETS
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions, portions, write_rows
from dashboard.runtime.visibility import absence_doubt
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.system.capabilities import shortfall
from fenceline.decode.consumer_offsets import Member
from fenceline.decode.tail_batch import TailBatch
from fenceline.kafka import commits
from fenceline.kafka.commits import TOPIC, CommitBatch, CommitKey, Gone, Joined, KeptCommits
from fenceline.kafka.groups import SHARE, Commit
from fenceline.kafka.transactional_ids import key_of_name

log = logging.getLogger(__name__)

NAME = OFFSETS
_COMMIT_KEY = ("cluster_id", "key", "topic", "partition")
_commit_table = CommitRecord._meta.db_table
_DELETE_COMMIT = (
    f"DELETE FROM {_commit_table} WHERE cluster_id = %s AND key = %s AND topic = %s AND partition = %s"  # noqa: S608
)
_HISTORIES = (
    f"SELECT key, topic, partition, commits FROM {_commit_table} "  # noqa: S608 - our own constants
    "WHERE cluster_id = %s AND (key, topic, partition) IN (VALUES"
)
#: Rows in one SQL query, three parameters each: SQLite allows 32,766, and 500 rows of VALUES.
_ASK_AT_ONCE = 500

_HELD = (
    "commits behind an open transaction are not read until it ends; what groups have committed there is "
    "still known from their coordinator"
)

#: The key of a commit's row: its group's key, topic and partition.
_Row = tuple[bytes, str, int]


def absence_reason(cluster_id: int, now_ms: int) -> str | None:
    """Return why a missing topic is a blind spot; "" if no group has committed, None before that is known."""
    committed = GroupOffset.objects.filter(group__cluster_id=cluster_id, offset__isnull=False)
    if committed.exclude(group__kind=SHARE).exists():
        return f"this broker keeps no {TOPIC}: offsets are those that coordinators answer"
    poller = Collector.objects.filter(cluster_id=cluster_id, name=GROUPS).first()
    gaps = GapRecord.objects.filter(cluster_id=cluster_id, source=GROUPS, until_ms=None)
    unseen = "; ".join(gaps.order_by("scope").values_list("reason", flat=True)[:3])
    unseen = unseen or shortfall(cluster_id, "groups")
    return absence_doubt(TOPIC, poller, unseen, now_ms)


@retry_write
def save_commits(
    lease: Lease, batch: TailBatch, *, topic_id: str, rate: float, held: Mapping[int, int], now_ms: int
) -> None:
    """Save the commits of a batch from the tail, and its end position.

    `held` are partitions with a stuck last stable offset, with its start by our clock. Raises `LeaseLost` if
    the token is outdated, or a position is not at the batch's start.
    """
    read = CommitBatch()
    for number, records in batch.records.items():
        commits.read_commits(read, number, records)
    for reason, (number, offset, detail) in read.strange.items():
        log.warning("%s-%s@%s cannot be decoded: %s (%s)", TOPIC, number, offset, reason, detail)
    newest, joined = _merge_with_known(lease.cluster_id, batch, read)
    written = (kept for _, kept in newest.values() if isinstance(kept, KeptCommits))
    stamps = ((kept.log_partition, kept.commit_ms) for kept in written)
    clocks = collector_store.clocks_ahead(lease, stamps, now_ms) if newest else {}
    columns = collector_store.progress_columns(batch, rate)
    with write_transaction(lease, columns, read=batch.count, lock_cluster=False) as write:
        collector_store.move_positions(
            lease, topic_id, batch.moves, now_ms=now_ms, topic=TOPIC, clocks=clocks
        )
        _write(lease.cluster_id, newest, joined)
        collector_store.count_undecoded(write.collector, read.undecoded)
        _count_newer(write.collector, read.newer)
        collector_store.save_gaps(
            lease, {f"{TOPIC}-{n}": (since_ms, _HELD) for n, since_ms in held.items()}, now_ms
        )
        collector_store.record_tail(write.collector, batch, now_ms)
        if batch.seen_through_ms is not None:
            write.notify_after_commit("collectors")


@retry_write
def forget_topic(lease: Lease, reason: str, topic_id: str, now_ms: int) -> None:
    """Delete all commits and positions of a topic that was replaced by another; save a gap.

    Nothing is deleted if another shard already did it: `topic_id` is the replaced topic.
    """
    # The rows of all shards are deleted, so all their leases are locked.
    shards = Collector.objects.filter(cluster_id=lease.cluster_id, name__startswith=NAME)
    guards = list(shards.values_list("name", flat=True))
    columns = {"seen_through_ms": None, "behind": None}
    with write_transaction(lease, columns, lock_cluster=False, guards=guards):
        of_cluster = {"cluster_id": lease.cluster_id}
        if not Position.objects.filter(topic=TOPIC, topic_id=topic_id, **of_cluster).exists():
            return
        Position.objects.filter(topic=TOPIC, **of_cluster).delete()
        CommitRecord.objects.filter(**of_cluster).delete()
        GroupRecord.objects.filter(**of_cluster).delete()
        collector_store.add_gap(lease, "history", reason, now_ms)


def _merge_with_known(
    cluster_id: int, batch: TailBatch, read: CommitBatch
) -> tuple[dict[_Row, tuple[CommitKey, KeptCommits | Gone]], dict[str, Joined]]:
    """Return the newest commits by their keys in the database, and the members of groups."""
    keys = {group: key_of_name(group) for group in {place.group for place in read.newest}}
    newest = {(keys[where.group], *where[1:]): (where, kept) for where, kept in read.newest.items()}
    # Nothing is known of partitions that are read for the first time.
    known = {move.partition for move in batch.moves if not move.is_first}
    asked = {
        row: kept
        for row, (where, kept) in newest.items()
        if isinstance(kept, KeptCommits) and kept.log_partition in known and where not in read.begun_anew
    }
    for row, before in _histories(cluster_id, list(asked)):
        newest[row] = newest[row][0], commits.merge_commits(asked[row], before)
    members = _members(cluster_id, read.changes) if known else {}
    joined = {
        group: commits.merge_members(members_now, members.get(group, {}))
        for group, members_now in read.changes.items()
    }
    return newest, joined


def _histories(cluster_id: int, rows: Sequence[_Row]) -> Iterator[tuple[_Row, tuple[Commit, ...]]]:
    with connection.cursor() as cursor:
        for portion in portions(rows, _ASK_AT_ONCE):
            values = ", ".join(["(%s, %s, %s)"] * len(portion))
            cursor.execute(
                f"{_HISTORIES} {values})", [cluster_id, *(column for row in portion for column in row)]
            )
            for key, topic, number, packed in cursor.fetchall():
                yield (bytes(key), topic, number), commits.unpack_commits(packed)


def _members(cluster_id: int, groups: Iterable[str]) -> dict[str, Mapping[str, Member]]:
    keys = [key_of_name(group) for group in groups]
    return {
        group: commits.unpack_members(packed)
        for rows in in_portions(GroupRecord.objects.filter(cluster_id=cluster_id), "key", keys)
        for group, packed in rows.values_list("group_id", "members")
    }


def _write(
    cluster_id: int, newest: Mapping[_Row, tuple[CommitKey, KeptCommits | Gone]], joined: Mapping[str, Joined]
) -> None:
    upserts = [
        _commit_row(cluster_id, row, where.group, kept)
        for row, (where, kept) in newest.items()
        if isinstance(kept, KeptCommits)
    ]
    deletes = [(cluster_id, *row) for row, (_, kept) in sorted(newest.items()) if isinstance(kept, Gone)]
    write_rows(CommitRecord, upserts, _COMMIT_KEY)
    if deletes:
        with connection.cursor() as cursor:
            cursor.executemany(_DELETE_COMMIT, deletes)
    groups = [_group_row(cluster_id, group, members) for group, members in joined.items()]
    write_rows(GroupRecord, groups, ("cluster_id", "key"))


def _commit_row(cluster_id: int, row: _Row, group: str, kept: KeptCommits) -> Mapping[str, Any]:
    key = dict(zip(_COMMIT_KEY, (cluster_id, *row), strict=True))
    return {**key, "group_id": group, **kept._asdict(), "commits": commits.pack_commits(kept.commits)}


def _group_row(cluster_id: int, group: str, joined: Joined) -> Mapping[str, Any]:
    named = {"cluster_id": cluster_id, "key": key_of_name(group), "group_id": group}
    return {**named, **joined._asdict(), "members": commits.pack_members(joined.members)}


def _count_newer(row: Collector, newer: Mapping[int, int]) -> None:
    """Add to the counts of records of newer types in a row's `detail`, which no page shows."""
    if not newer:
        return
    counts = Counter(row.detail.get("newer_types", {}))
    counts.update({str(kind): number for kind, number in newer.items()})
    row.detail |= {"newer_types": dict(counts)}
