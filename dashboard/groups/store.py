"""Saves a poll of consumer groups: a row for each group, and one for each partition it has committed for.

Only what has changed is written, in key order: the lease first, then groups and offsets, in database
transactions of some thousand rows each. What could not be seen keeps its rows, with an error and a gap; what
is gone goes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from dashboard.groups.added_offset_store import save_added_offsets
from dashboard.groups.previous_state import GroupRows, PreviousGroups, packed_blockers, packed_points
from dashboard.models import Group, GroupOffset
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import GROUPS as NAME
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import Row, overwrite_changes, upsert_statement
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.series.store import SeriesSample, extend_span, save_samples
from fenceline.decode import text
from fenceline.facts import TopicPartition
from fenceline.kafka.families import family_of, fit_name
from fenceline.kafka.group_observation import (
    Around,
    GroupBlocker,
    ObservedGroups,
    SeenGroup,
    Stood,
    has_changed,
    observe_partition,
)
from fenceline.kafka.groups import MOST_POINTS, POINTS_APART_MS, GroupStatus, worst_status
from fenceline.kafka.transactional_ids import key_of
from fenceline.series.points import GROUP

__all__ = ["NAME", "GroupRows", "save_groups"]

_GROUP = (
    "cluster_id", "key", "group_id", "family", "state", "kind", "coordinator", "log_partition", "members",
    "partitions", "lag_lso", "lag_hw", "lag_ms", "trend", "status", "blocked", "unstable", "committers",
    "seen_ms", "error", "rev",
)  # fmt: skip
_OFFSET = (
    "group_id", "topic", "partition", '"offset"', "leader_epoch", "metadata", "commit_ms", "unstable",
    "log_start", "lso", "high_watermark", "lag_ms", "only_markers", "status", "waiting", "waiting_ms",
    "blockers", "points",
)  # fmt: skip
_offsets = GroupOffset._meta.db_table
_UPSERT_GROUP = upsert_statement(Group._meta.db_table, _GROUP, _GROUP[:2], overwrite_changes(_GROUP[2:]))
_UPSERT_OFFSET = upsert_statement(_offsets, _OFFSET, _OFFSET[:3], overwrite_changes(_OFFSET[3:]))
_DELETE_OFFSET = f"DELETE FROM {_offsets} WHERE group_id = %s AND topic = %s AND partition = %s"  # noqa: S608
#: Columns whose change writes a group's row; ages and points are written with it, or when they are old.
_NEWS = tuple(
    name for name in _GROUP if name not in ("cluster_id", "key", "lag_ms", "trend", "seen_ms", "rev")
)
#: The columns of its series.
_SERIES = tuple(column.name for column in GROUP.columns)
#: Rows in one save, so that no other writer waits for long.
_SAVE_AT_ONCE = 4_000
_ASK_AT_ONCE = 5_000
_LONGEST_SCOPE = 300


@dataclass(frozen=True, slots=True)
class _Changed:
    """A group whose row, or some of whose offsets, are to be written."""

    key: bytes
    name: str
    #: In the order of `_GROUP`, up to the revision.
    row: Row
    offsets: Mapping[TopicPartition, Stood]
    gone: Sequence[TopicPartition]
    sample: SeriesSample


def save_groups(lease: Lease, observed: ObservedGroups, rows: GroupRows, *, now_ms: int) -> int:
    """Save what a poll found; return how many groups it changed. Raises `LeaseLost` for an outdated token."""
    known = rows.known_groups()
    changed = [
        each
        for name, seen in observed.groups.items()
        if (each := _changed(lease.cluster_id, name, seen, observed, known)) is not None
    ]
    for part in _parts(sorted(changed, key=lambda each: each.key)):
        _save_some(lease, part, observed.at_ms)
    missing = {name: row.pk for name, row in known.groups.items() if name not in observed.groups}
    _save_rest(lease, observed, missing, now_ms)
    return len(changed)


@retry_write
def _save_rest(lease: Lease, observed: ObservedGroups, missing: Mapping[str, int], now_ms: int) -> None:
    with write_transaction(lease, {"seen_through_ms": observed.at_ms}) as write:
        _miss(list(missing.values()), observed.partial)
        unseen = [SeriesSample(name, None, ended=not observed.partial) for name in missing]
        save_added_offsets(lease.cluster_id, observed.added)
        save_samples(lease.cluster_id, GROUP, unseen, at_ms=observed.at_ms)
        extend_span(lease.cluster_id, NAME, at_ms=observed.at_ms)
        collector_store.add_cost(lease, observed.requests, round(observed.broker_ms), now_ms)
        collector_store.save_gaps(
            lease, {_scope(scope): (now_ms, why) for scope, why in observed.gaps.items()}, now_ms
        )
        collector_store.clear_error(lease, now_ms)
        if missing:
            write.notify_after_commit("groups")
        write.notify_after_commit("collectors")


def _changed(
    cluster_id: int, name: str, seen: SeenGroup, observed: ObservedGroups, known: PreviousGroups
) -> _Changed | None:  # fmt: skip
    """Return what is to be written of a group; None where nothing is new."""
    before = known.stood.get(name, {})
    now = before if seen.unseen else dict(_stands(name, seen, observed, known))
    offsets = {where: each for where, each in now.items() if has_changed(before.get(where), each)}
    gone = sorted(before.keys() - now.keys())
    key, old = key_of(text.unescape_text(name)), known.groups.get(name)
    head = cluster_id, key, name, family_of(name).name
    asked = {topic: of for (group, topic), of in observed.committers.items() if group == name}
    committers = _committers(old.committers if old else "", asked, {where.topic for where in now})
    row = (
        *head,
        *_group_columns(seen, now.values(), observed.at_ms, old, known.members.get(name), committers),
    )
    if old is not None and not offsets and not gone and not _is_news(old, row):
        return None
    return _Changed(key, name, row, offsets, gone, _sample(name, seen, row))


def _sample(name: str, seen: SeenGroup, row: Row) -> SeriesSample:
    """Return the figures of a row; none where some of the group's partitions could not be seen."""
    columns = dict(zip(_GROUP, row, strict=False))
    values = None if seen.error else tuple(columns[column] for column in _SERIES)
    return SeriesSample(name, values)  # type: ignore[arg-type] # numbers all


def _stands(
    name: str, seen: SeenGroup, observed: ObservedGroups, known: PreviousGroups
) -> Iterator[tuple[TopicPartition, Stood]]:
    before, logged = known.stood.get(name, {}), known.logged.get(name, {})
    for where, committed in seen.committed.items():
        unstable = where in seen.unstable
        around = Around(
            offsets=observed.offsets.get(where),
            only_markers=committed is not None and (where, committed.offset) in observed.only_markers,
            ends=known.ends_of(where),
            holders=known.holders.get(where, ()),
            pending=_pending(name, where, seen, observed, known) if unstable else (),
            isolation=seen.isolation,
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
                blocked_after_ms=_blocked_after_ms(),
            ),
        )


def _blocked_after_ms() -> int:
    """Return for how long a group is at an LSO before it counts as blocked: never later than its finding."""
    limits = settings.FENCELINE.limits
    return int(1_000 * min(limits.group_blocked_s, limits.group_stalled_s))


def _pending(
    name: str, where: TopicPartition, seen: SeenGroup, observed: ObservedGroups, known: PreviousGroups
) -> Sequence[GroupBlocker]:
    """Return the owners of a pending commit: by the log itself, else the possible ones."""
    read = [
        GroupBlocker(*each[1:], pending=True, offset=each.offset)
        for each in observed.pending.get((name, where), ())
    ]
    if read or seen.log_partition is None:
        return read
    return known.committing.get(seen.log_partition, ())


def _group_columns(
    seen: SeenGroup,
    stands: Collection[Stood],
    at_ms: int,
    old: Group | None,
    members: int | None,
    committers: str,
) -> Row:
    """Return a group's columns from its state on, without the revision."""
    lso, hw = _sum(each.lag_lso for each in stands), _sum(each.lag_hw for each in stands)
    # Without an answer of its coordinator it is as it was.
    was = old if seen.error else None
    return (
        seen.state or (was.state if was else ""),
        seen.kind or (was.kind if was else ""),
        was.coordinator if was and seen.coordinator is None else seen.coordinator,
        seen.log_partition,
        members,
        len(stands),
        lso,
        hw,
        max((each.lag_ms for each in stands if each.lag_ms is not None), default=None),
        _trend(old.trend if old else "", at_ms, lso, hw),
        worst_status([each.status for each in stands]).value,
        sum(each.status is GroupStatus.BLOCKED for each in stands),
        sum(each.unstable for each in stands),
        committers,
        at_ms,
        seen.error,
    )


def _committers(packed: str, asked: Mapping[str, str | None], topics: Collection[str]) -> str:
    """Return whose transactions commit a group's offsets, by topic: as asked now, else as known."""
    known = {**(json.loads(packed) if packed else {}), **asked}
    kept = {topic: of for topic, of in sorted(known.items()) if topic in topics}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Add up; None of nothing, and where one is not known."""
    found = list(numbers)
    return None if not found or None in found else sum(each for each in found if each is not None)


def _trend(packed: str, at_ms: int, lso: int | None, hw: int | None) -> str:
    """Return the lags of the last polls with a new one, spaced as a partition's points are."""
    points = json.loads(packed) if packed else []
    if len(points) > 1 and points[-1][0] - points[-2][0] < POINTS_APART_MS:
        points.pop()
    return packed_points([*points, [at_ms, lso, hw]][-MOST_POINTS:])


def _is_news(old: Group, row: Row) -> bool:
    columns = dict(zip(_GROUP, row, strict=False))
    return any(getattr(old, name) != columns[name] for name in _NEWS) or (
        int(columns["seen_ms"] or 0) - old.seen_ms >= POINTS_APART_MS
    )


def _parts(changed: Sequence[_Changed]) -> Iterator[Sequence[_Changed]]:
    part: list[_Changed] = []
    size = 0
    for each in changed:
        if part and size + len(each.offsets) + 1 > _SAVE_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.offsets) + 1
    if part:
        yield part


@retry_write
def _save_some(lease: Lease, part: Sequence[_Changed], at_ms: int) -> None:
    with write_transaction(lease) as write:
        rev = write.next_rev()
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT_GROUP, [(*each.row, rev) for each in part])
            ids = _ids(lease.cluster_id, [each.key for each in part])
            offsets = [
                _offset_row(ids[each.key], where, stood)
                for each in part
                for where, stood in sorted(each.offsets.items())
            ]
            gone = [(ids[each.key], *where) for each in part for where in each.gone]
            if offsets:
                cursor.executemany(_UPSERT_OFFSET, offsets)
            if gone:
                cursor.executemany(_DELETE_OFFSET, gone)
        save_samples(lease.cluster_id, GROUP, [each.sample for each in part], at_ms=at_ms)
        names = [each.name for each in part]
        write.notify_after_commit("groups", names)


def _ids(cluster_id: int, keys: Sequence[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for start in range(0, len(keys), _ASK_AT_ONCE):
        rows = Group.objects.filter(cluster_id=cluster_id, key__in=keys[start : start + _ASK_AT_ONCE])
        found |= {bytes(key): pk for key, pk in rows.values_list("key", "id")}
    return found


def _offset_row(group: int, where: TopicPartition, stood: Stood) -> Row:
    *first, status, waiting, waiting_ms, blockers, points = stood
    last = packed_blockers(blockers), packed_points(points)
    return (group, *where, *first, status.value, waiting.value if waiting else "", waiting_ms, *last)


def _miss(missing: Sequence[int], partial_because: str) -> None:
    """Let groups go that are not listed any more; keep them where a list could not be seen whole."""
    for start in range(0, len(missing), _ASK_AT_ONCE):
        rows = Group.objects.filter(pk__in=missing[start : start + _ASK_AT_ONCE])
        if partial_because:
            rows.exclude(error=partial_because).update(error=partial_because)
        else:
            rows.delete()


def _scope(scope: str) -> str:
    return scope if len(scope) <= _LONGEST_SCOPE else fit_name(scope)
