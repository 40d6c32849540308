"""Save a poll of consumer groups: a row for each group, and a row for each of its committed partitions.

Only changes are written, in key order: the lease first, then groups and offsets, in database transactions of
some thousand rows. Rows of unreadable groups are kept, with an error and a gap; rows of deleted groups are
deleted. The offsets that the newest observed transaction of each producer id added to groups are a row for
each partition of `__consumer_offsets`; older ones than transitions are kept are deleted
(`dashboard.runtime.retention`).
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import F, QuerySet

from dashboard.groups.previous_state import GroupRows, PreviousGroups, packed_points
from dashboard.models import AddedOffsetsRecord, DroppedOffset, Group, GroupOffset
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import GROUPS as NAME
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions, weighted_portions, write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.series.store import SeriesSample, extend_span, save_samples
from fenceline.facts import TopicPartition
from fenceline.kafka.added_offsets import AddedOffsets, pack_offsets
from fenceline.kafka.commits import subscribed_topics
from fenceline.kafka.group_observation import (
    Around,
    GroupBlocker,
    ObservedGroups,
    SeenGroup,
    Stood,
    has_changed,
    observe_partition,
)
from fenceline.kafka.groups import MOST_POINTS, POINTS_APART_MS, STREAMS, GroupStatus, family_of, worst_status
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.series.points import GROUP

__all__ = ["NAME", "GroupRows", "save_groups"]

_OFFSET_KEY = ("group_id", "topic", "partition")
_DELETE_OFFSET = (
    f"DELETE FROM {GroupOffset._meta.db_table} WHERE group_id = %s AND topic = %s AND partition = %s"  # noqa: S608
)
#: Columns whose change alone writes no row: they are written with the others, or once they are old.
_NO_NEWS = ("key", "lag_ms", "trend", "seen_ms")
_SERIES = tuple(column.name for column in GROUP.columns)
#: States of groups without members; their logged members are outdated.
_WITHOUT_MEMBERS = ("", "Empty", "Dead")
#: Maximum rows in one save, so that other writers wait only briefly.
_SAVE_AT_ONCE = 4_000


@dataclass(frozen=True, slots=True)
class _Changed:
    """A group with changes in its row or its offsets, to be saved."""

    key: bytes
    name: str
    #: The columns of its row, except the revision.
    row: Mapping[str, Any]
    offsets: Mapping[TopicPartition, Stood]
    gone: Sequence[TopicPartition]
    #: The partitions in `gone` with unread records, and their offsets.
    dropped: Sequence[tuple[TopicPartition, int]]
    sample: SeriesSample


def save_groups(lease: Lease, observed: ObservedGroups, rows: GroupRows, *, now_ms: int) -> int:
    """Save a poll; return the number of changed groups. Raises `LeaseLost` for an outdated token."""
    known = rows.known_groups()
    changed = [
        change
        for name, observed_group in observed.groups.items()
        if (change := _changed(lease.cluster_id, name, observed_group, observed, known)) is not None
    ]
    in_order = sorted(changed, key=lambda change: change.key)
    for part in weighted_portions(in_order, lambda change: len(change.offsets) + 1, _SAVE_AT_ONCE):
        _save_some(lease, part, observed.at_ms)
    missing = {name: row.pk for name, row in known.groups.items() if name not in observed.groups}
    _save_rest(lease, observed, missing, now_ms)
    return len(changed)


@retry_write
def _save_rest(lease: Lease, observed: ObservedGroups, missing: Mapping[str, int], now_ms: int) -> None:
    with write_transaction(lease, {"seen_through_ms": observed.at_ms}) as write:
        _miss(list(missing.values()), observed.partial, observed.at_ms)
        unseen = [SeriesSample(name, None, ended=not observed.partial) for name in missing]
        save_added_offsets(lease.cluster_id, observed.added)
        save_samples(lease.cluster_id, GROUP, unseen, at_ms=observed.at_ms)
        extend_span(lease.cluster_id, NAME, at_ms=observed.at_ms)
        collector_store.record_poll(write.collector, observed, now_ms)
        collector_store.save_gaps(
            lease, {scope: (now_ms, why) for scope, why in observed.gaps.items()}, now_ms
        )
        if missing:
            write.notify_after_commit("groups")
        write.notify_after_commit("collectors")


def _changed(
    cluster_id: int, name: str, observed_group: SeenGroup, observed: ObservedGroups, known: PreviousGroups
) -> _Changed | None:  # fmt: skip
    before = known.stood.get(name, {})
    now = before if observed_group.unseen else dict(_stands(name, observed_group, observed, known))
    offsets = {where: stood for where, stood in now.items() if has_changed(before.get(where), stood)}
    gone = sorted(before.keys() - now.keys())
    key, old = key_of_name(name), known.groups.get(name)
    asked = {topic: group_id for (group, topic), group_id in observed.committers.items() if group == name}
    committers = _committers(old.committers if old else "", asked, {where.topic for where in now})
    joined = known.members.get(name)
    members = None if joined is None else len(joined)
    row = {
        "cluster_id": cluster_id,
        "key": key,
        "group_id": name,
        "family": family_of(name).name,
        "members": members,
        "committers": committers,
        **_group_columns(observed_group, now.values(), observed.at_ms, old),
    }
    if old is not None and not offsets and not gone and not _is_news(old, row):
        return None
    dropped = [
        (where, offset)
        for where in gone
        if (offset := before[where].offset) is not None and before[where].lag_hw != 0
    ]
    # No figures if one of the group's partitions could not be read.
    sample = SeriesSample(name, None if observed_group.error else tuple(row[column] for column in _SERIES))
    return _Changed(key, name, row, offsets, gone, dropped, sample)


def _stands(
    name: str, observed_group: SeenGroup, observed: ObservedGroups, known: PreviousGroups
) -> Iterator[tuple[TopicPartition, Stood]]:
    before, logged = known.stood.get(name, {}), known.logged.get(name, {})
    members = known.members.get(name, {}) if observed_group.state not in _WITHOUT_MEMBERS else {}
    topics = subscribed_topics(members)
    for where, committed in observed_group.committed.items():
        unstable = where in observed_group.unstable
        around = Around(
            offsets=observed.offsets.get(where),
            only_markers=committed is not None and (where, committed.offset) in observed.only_markers,
            ends=known.ends_of(where),
            holders=known.holders.get(where, ()),
            pending=_pending(name, where, observed_group, observed, known) if unstable else (),
            isolation=observed_group.isolation,
            is_assigned=topics is None or where.topic in topics,
        )
        earlier, log = before.get(where), logged.get(where)
        yield (
            where,
            observe_partition(
                earlier,
                committed,
                unstable,
                log,
                around,
                now_ms=observed.at_ms,
                blocked_after_ms=settings.FENCELINE.limits.blocked_after_ms,
            ),
        )


def _pending(
    name: str,
    where: TopicPartition,
    observed_group: SeenGroup,
    observed: ObservedGroups,
    known: PreviousGroups,
) -> Sequence[GroupBlocker]:
    """Return the transactions of a pending commit: from the log, else the possible ones."""
    read = [
        GroupBlocker(*added[1:], pending=True, offset=added.offset)
        for added in observed.pending.get((name, where), ())
    ]
    if read or observed_group.log_partition is None:
        return read
    return known.committing.get(observed_group.log_partition, ())


def _group_columns(
    observed_group: SeenGroup, stands: Collection[Stood], at_ms: int, old: Group | None
) -> Mapping[str, Any]:
    """Return the columns of a group that follow from its state in its partitions."""
    read = [stood for stood in stands if stood.status is not GroupStatus.LEFT] or stands
    lso, hw = _sum(stood.lag_lso for stood in read), _sum(stood.lag_hw for stood in read)
    # A group keeps its state if its coordinator does not answer.
    was = old if observed_group.error else None
    coordinator = observed_group.coordinator
    return {
        "state": observed_group.state or (was.state if was else ""),
        "kind": observed_group.kind or (was.kind if was else ""),
        "coordinator": was.coordinator if was and coordinator is None else coordinator,
        "log_partition": observed_group.log_partition,
        "partitions": len(stands),
        "lag_lso": lso,
        "lag_hw": hw,
        "lag_ms": max((stood.lag_ms for stood in read if stood.lag_ms is not None), default=None),
        "trend": _trend(old.trend if old else "", at_ms, lso, hw),
        "status": worst_status([stood.status for stood in stands]).value,
        "blocked": sum(stood.status is GroupStatus.BLOCKED for stood in stands),
        "unstable": sum(stood.unstable for stood in stands),
        "stores": _stores(observed_group, old),
        "seen_ms": at_ms,
        "error": observed_group.error,
    }


def _stores(observed_group: SeenGroup, old: Group | None) -> str:
    if observed_group.stores is None:
        is_streams = observed_group.kind in ("", STREAMS)
        return old.stores if old and is_streams else ""
    return json.dumps(observed_group.stores, separators=(",", ":"))


def _committers(packed: str, asked: Mapping[str, str | None], topics: Collection[str]) -> str:
    """Return the applications that commit a group's offsets, by topic: from this poll, else as known."""
    known = {**(json.loads(packed) if packed else {}), **asked}
    kept = {topic: transactional_id for topic, transactional_id in sorted(known.items()) if topic in topics}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None without numbers, or if one is unknown."""
    known = list(numbers)
    return None if not known or None in known else sum(number for number in known if number is not None)


def _trend(packed: str, at_ms: int, lso: int | None, hw: int | None) -> str:
    """Return the lags of the last polls with the new one, spaced like a partition's points."""
    points = json.loads(packed) if packed else []
    if len(points) > 1 and points[-1][0] - points[-2][0] < POINTS_APART_MS:
        points.pop()
    return packed_points([*points, [at_ms, lso, hw]][-MOST_POINTS:])


def _is_news(old: Group, row: Mapping[str, Any]) -> bool:
    differs = any(getattr(old, name) != value for name, value in row.items() if name not in _NO_NEWS)
    return differs or row["seen_ms"] - old.seen_ms >= POINTS_APART_MS


@retry_write
def _save_some(lease: Lease, part: Sequence[_Changed], at_ms: int) -> None:
    with write_transaction(lease) as write:
        rev = write.next_rev()
        write_rows(Group, [{**change.row, "rev": rev} for change in part], ("cluster_id", "key"))
        ids = _ids(lease.cluster_id, [change.key for change in part])
        offsets = [
            _offset_row(ids[change.key], where, stood)
            for change in part
            for where, stood in change.offsets.items()
        ]
        write_rows(GroupOffset, offsets, _OFFSET_KEY)
        if gone := [(ids[change.key], *where) for change in part for where in change.gone]:
            with connection.cursor() as cursor:
                cursor.executemany(_DELETE_OFFSET, gone)
        DroppedOffset.objects.bulk_create(
            DroppedOffset(
                cluster_id=lease.cluster_id, group_id=change.name, topic=topic, partition=number,
                offset=offset, dropped_ms=at_ms,
            )
            for change in part
            for (topic, number), offset in change.dropped
        )  # fmt: skip
        save_samples(lease.cluster_id, GROUP, [change.sample for change in part], at_ms=at_ms)
        names = [change.name for change in part]
        write.notify_after_commit("groups", names)


def _ids(cluster_id: int, keys: Sequence[bytes]) -> dict[bytes, int]:
    portions = in_portions(Group.objects.filter(cluster_id=cluster_id), "key", keys)
    return {bytes(key): pk for rows in portions for key, pk in rows.values_list("key", "id")}


def _offset_row(group: int, where: TopicPartition, stood: Stood) -> Mapping[str, Any]:
    return {
        "group_id": group,
        **where._asdict(),
        **stood._asdict(),
        "status": stood.status.value,
        "waiting": stood.waiting.value if stood.waiting else "",
        "blockers": [blocker._asdict() for blocker in stood.blockers],
        "points": packed_points(stood.points),
    }


def _miss(missing: Sequence[int], partial_because: str, at_ms: int) -> None:
    """Delete groups that are no longer listed; keep them, with an error, if the list is incomplete."""
    for rows in in_portions(Group.objects.all(), "pk", missing):
        if partial_because:
            rows.exclude(error=partial_because).update(error=partial_because)
        else:
            _drop(GroupOffset.objects.filter(group__in=rows), at_ms)
            rows.delete()


def _drop(rows: QuerySet[GroupOffset], at_ms: int) -> None:
    """Save the offsets of deleted groups that have unread records."""
    unread = rows.exclude(offset=None).exclude(offset=F("high_watermark")).select_related("group")
    DroppedOffset.objects.bulk_create(
        DroppedOffset(
            cluster_id=row.group.cluster_id, group_id=row.group.group_id, topic=row.topic,
            partition=row.partition, offset=row.offset or 0, dropped_ms=at_ms,
        )
        for row in unread
    )  # fmt: skip


def save_added_offsets(cluster_id: int, added: Sequence[AddedOffsets]) -> None:
    """Save the last offsets of each producer and partition in a poll; rewrite unchanged rows once old."""
    if not added:
        return
    newest = {(offsets.producer_id, offsets.log_partition): offsets for offsets in added}
    rows = AddedOffsetsRecord.objects.filter(
        cluster_id=cluster_id, producer_id__in={producer_id for producer_id, _ in newest}
    )
    known = {(row.producer_id, row.log_partition): row for row in rows}
    columns = (
        {**offsets._asdict(), "cluster_id": cluster_id, "offsets": pack_offsets(offsets.offsets)}
        for offsets in newest.values()
    )
    changed = [
        row for row in columns if _is_newer(known.get((row["producer_id"], row["log_partition"])), row)
    ]
    write_rows(AddedOffsetsRecord, changed, ("cluster_id", "producer_id", "log_partition"))


def _is_newer(known: AddedOffsetsRecord | None, now: Mapping[str, Any]) -> bool:
    if known is None or now["read_ms"] - known.read_ms >= POINTS_APART_MS:
        return True
    return any(getattr(known, name) != value for name, value in now.items() if name != "read_ms")
