"""Queries for consumer groups, the transactions that block them, a transaction's blocked consumers, and the
state stores of a Kafka Streams application.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.db.models.expressions import Expression, OrderBy

from dashboard.models import Group, GroupOffset, GroupRecord, PartitionRecord, PinRecord, Transaction
from dashboard.runtime.criteria import (
    Criteria,
    Name,
    Number,
    Page,
    Search,
    Sorted,
    page_of,
    rank_of,
    sorted_columns,
)
from dashboard.runtime.visibility import count_by_cluster, rows_in
from fenceline.decode.typed import read_json
from fenceline.engines.status import StreamsStore, named_stores
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import WORST_STATUSES, GroupStatus, Waiting, family_of
from fenceline.kafka.producer_identity import THREAD
from fenceline.kafka.transactional_ids import keys_named

#: The topic in which coordinators store the groups' commits.
OFFSETS_TOPIC = "__consumer_offsets"
#: The filter for every group with a pending transactional commit, whatever its status.
PENDING = "pending"
#: Maximum rows of offsets that one page reads for blockers or for blocked groups.
MOST_WAITING = 5_000
#: Maximum listed groups for which a transaction may commit.
_MOST_CANDIDATES = 10
_RANK = rank_of("status", [status.value for status in WORST_STATUSES])
#: The figures of a group that a family sums; of lags in time it has the longest.
_FIGURES = ("lag_lso", "lag_hw", "lag_ms", "blocked", "unstable", "members")
_SORTED_BY = {"lag": "lag_hw", "unread": "lag_lso", "behind": "lag_ms"}
#: The longest wait first, with an explicit place for NULL, which databases sort differently.
_LONGEST = OrderBy(F("waiting_ms"), nulls_first=True)


class GroupCriteria(Criteria):
    cluster: Name = ""
    status: Literal["", "BLOCKED", "STOP", "STALL", "REWIND", "WARN", "UNKNOWN", "OK", "LEFT", "pending"] = ""
    #: One family, its groups one by one; "" for all families, each folded into one row.
    family: Name = ""
    #: A part of a group's id.
    q: Search = ""


class SortedGroups(Sorted, GroupCriteria):
    sort: Literal["worst", "name", "lag", "unread", "behind"] = "worst"


@dataclass(frozen=True, slots=True)
class BlockedReader:
    """A group that waits for a transaction in a partition, or for its own commit (`pending`)."""

    group: str
    cluster: str
    topic: str
    partition: int
    pending: bool
    certain: bool
    since_ms: int | None
    #: Offsets between its commit and the end of the log, None if unknown.
    behind: int | None


def status_counts(cluster: str) -> Mapping[str, int]:
    """Return the number of groups by status, worst first, and the number with a pending commit."""
    is_pending = Count("id", filter=Q(unstable__gt=0))
    rows = rows_in(Group, cluster).values_list("status").annotate(n=Count("id"), pending_too=is_pending)
    counts = {status: (n, pending) for status, n, pending in rows}
    by_status = {status.value: counts.get(status.value, (0, 0))[0] for status in WORST_STATUSES}
    return {**by_status, PENDING: sum(pending for _, pending in counts.values())}


def blocked_by_cluster() -> Mapping[str, int]:
    """Return the number of blocked groups by cluster, without clusters that have none."""
    return count_by_cluster(rows_in(Group).filter(status=GroupStatus.BLOCKED.value))


def group_page(wanted: SortedGroups, *, page: Number, size: int) -> Page[dict[str, Any]]:
    """Return one page of families, or of the groups of one family.

    A row is a single `group`, or the folded groups of a family with random ids. Sums omit unknown figures;
    then `partial` is set.
    """
    rows = _filtered(wanted)
    if wanted.family:
        groups = page_of(rows.select_related("cluster").order_by(*_order(wanted, alone=True)), page, size)
        return groups.with_items(_with_blockers(map(_alone, groups.items)))
    folded = page_of(_folded(rows).order_by(*_order(wanted, alone=False)), page, size)
    singles = [row for row in folded.items if row["number"] == 1]
    named = [row["any"] for row in singles if not family_of(row["one"]).explanation]
    alone = Group.objects.select_related("cluster").in_bulk(named)
    families = [_alone(alone[row["any"]]) if row["any"] in alone else _family(row) for row in folded.items]
    return folded.with_items(_with_blockers(families))


def groups_after(wanted: GroupCriteria, *, place: int, limit: int) -> Sequence[Group]:
    """Return the next groups after a row's key, in the order in which they were first seen."""
    return list(_filtered(wanted).filter(pk__gt=place).select_related("cluster").order_by("pk")[:limit])


def find_group(cluster: str, name: str) -> Group | None:
    """Return a group of a configured cluster by its id's text, or by its key as `~` and 64 hex digits."""
    for key in keys_named(name):
        rows = Group.objects.filter(cluster__name=cluster, cluster__configured=True, key=key)
        if row := rows.select_related("cluster").first():
            return row
    return None


def offset_page(group: Group, *, page: Number, size: int) -> Page[GroupOffset]:
    """Return one page of a group's commits, the worst partition first."""
    lag = OrderBy(F("high_watermark") - F("offset"), descending=True, nulls_last=True)
    rows = GroupOffset.objects.filter(group=group)
    return page_of(rows.order_by(_RANK, "-unstable", lag, "topic", "partition"), page, size)


def partition_readers(cluster_id: int, topic: str, partition: int, *, most: int) -> Sequence[GroupOffset]:
    """Return the groups that read a partition, waiting groups first."""
    rows = GroupOffset.objects.filter(topic=topic, partition=partition, group__cluster=cluster_id)
    order = rank_of("waiting", [waiting.value for waiting in Waiting])
    return list(rows.select_related("group").order_by("-unstable", order, _LONGEST, "id")[:most])


def blocked_offsets(row: Group, *, most: int) -> Sequence[GroupOffset]:
    """Return a group's offsets at a blocked LSO, past one, or pending; the longest wait first."""
    stuck = Q(waiting__in=[Waiting.PROBABLY.value, Waiting.READS_PAST.value]) | Q(unstable=True)
    return list(GroupOffset.objects.filter(stuck, group=row).order_by(_LONGEST, "id")[:most])


def transaction_waiters(
    rows: Sequence[Transaction],
    open_in: Mapping[int, Sequence[PinRecord]],
    log_partitions: Mapping[int, Sequence[int]],
) -> Mapping[int, Sequence[BlockedReader]]:
    """Return the groups that wait for transactions of ids, by the key of the id's row.

    `open_in` has the partitions in which each id is open (`partitions.pins_of`). `log_partitions` has each
    id's partitions of `__consumer_offsets`, where its groups' commits are pending.
    """
    readers: dict[int, list[BlockedReader]] = defaultdict(list)
    standing = _standing(pin for pins in open_in.values() for pin in pins)
    for offset in [*standing, *_pending(rows, log_partitions)]:
        for row in rows:
            if row.cluster_id == offset.group.cluster_id and (blocker := _naming(row, offset)):
                readers[row.pk].append(_waiter(offset, blocker))
    return {pk: list(dict.fromkeys(waiters)) for pk, waiters in readers.items()}


def candidate_groups(row: Transaction, log_partitions: Sequence[int]) -> Sequence[Group]:
    """Return groups with offsets in the partitions of `__consumer_offsets` in a transaction's record.

    The transaction may commit for any of them, because its record does not name the groups.
    """
    rows = Group.objects.filter(cluster=row.cluster_id, log_partition__in=list(log_partitions))
    return list(rows.select_related("cluster").order_by("group_id")[: _MOST_CANDIDATES + 1])


def blocking_transactions(offset: GroupOffset) -> Sequence[GroupBlocker]:
    return [GroupBlocker(**packed) for packed in offset.blockers]


def distinct_blockers(blockers: Iterable[GroupBlocker]) -> Sequence[GroupBlocker]:
    """Return blockers without duplicates: a transaction may block many partitions."""
    return list({blocker.transactional_id or blocker.producer_id: blocker for blocker in blockers}.values())


def lag_trend(row: Group) -> Sequence[Mapping[str, int | None]]:
    """Return a group's lag over its last polls, oldest first, None if unknown."""
    columns = ("at_ms", "lag_lso", "lag_hw")
    return [dict(zip(columns, point, strict=True)) for point in json.loads(row.trend or "[]")]


def history_points(text: str, which: int) -> Sequence[tuple[int, int]]:
    """Return one column of a history in JSON text, with its instants, without unknown values."""
    return [(point[0], point[which]) for point in json.loads(text or "[]") if point[which] is not None]


def _filtered(wanted: GroupCriteria) -> QuerySet[Group]:
    rows = rows_in(Group, wanted.cluster)
    if wanted.status == PENDING:
        rows = rows.filter(unstable__gt=0)
    elif wanted.status:
        rows = rows.filter(status=wanted.status)
    if wanted.family:
        rows = rows.filter(family=wanted.family)
    return rows.filter(group_id__icontains=wanted.q) if wanted.q else rows


def _folded(rows: QuerySet[Group]) -> QuerySet[Any, Any]:
    return (
        rows.order_by()
        .values("cluster__name", "family")
        .annotate(
            any=Max("id"),
            one=Max("group_id"),
            number=Count("id"),
            rank=Min(_RANK),
            known=Count("lag_hw"),
            **{f"all_{name}": (Max if name == "lag_ms" else Sum)(name) for name in _FIGURES},
        )
    )


def _family(folded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cluster": folded["cluster__name"],
        "name": folded["family"],
        "number": folded["number"],
        "status": WORST_STATUSES[folded["rank"]].value,
        "partial": folded["known"] < folded["number"],
        "group": None,
        **{name: folded[f"all_{name}"] for name in _FIGURES},
    }


def _alone(row: Group) -> dict[str, Any]:
    shown = {name: getattr(row, name) for name in ("status", *_FIGURES)}
    return {"cluster": row.cluster.name, "name": row.group_id, "number": 1, "group": row, **shown}


def _with_blockers(families: Iterable[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return families; single groups get their blockers."""
    listed = list(families)
    groups = [family["group"] for family in listed if family["group"]]
    stuck = [group.pk for group in groups if group.blocked or group.unstable]
    waits = Q(waiting=Waiting.PROBABLY.value) | Q(unstable=True)
    rows = GroupOffset.objects.filter(waits, group__in=stuck)[:MOST_WAITING] if stuck else ()
    by_group: dict[int, list[GroupBlocker]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id] += blocking_transactions(row)
    return [
        {**family, "blockers": distinct_blockers(by_group[family["group"].pk] if family["group"] else ())}
        for family in listed
    ]


def _standing(pins: Iterable[PinRecord]) -> Sequence[GroupOffset]:
    """Return the offsets of groups that probably wait in the partitions of open transactions."""
    names = {(pin.cluster_id, pin.topic, pin.partition) for pin in pins}
    if not names:
        return []
    clusters, topics, numbers = (set(values) for values in zip(*names, strict=True))
    rows = GroupOffset.objects.filter(
        topic__in=topics, partition__in=numbers, group__cluster__in=clusters, waiting=Waiting.PROBABLY.value
    )
    waiting = rows.select_related("group__cluster").order_by(_LONGEST, "id")[:MOST_WAITING]
    return [row for row in waiting if (row.group.cluster_id, row.topic, row.partition) in names]


def _pending(
    rows: Sequence[Transaction], log_partitions: Mapping[int, Sequence[int]]
) -> Sequence[GroupOffset]:
    """Return the pending commits in the ids' partitions of `__consumer_offsets`."""
    named = {(row.cluster_id, number) for row in rows for number in log_partitions.get(row.pk, ())}
    if not named:
        return []
    clusters, numbers = (set(values) for values in zip(*named, strict=True))
    pending = GroupOffset.objects.filter(
        unstable=True, group__cluster__in=clusters, group__log_partition__in=numbers
    )
    return list(pending.select_related("group__cluster").order_by(_LONGEST, "id")[:MOST_WAITING])


def _naming(row: Transaction, offset: GroupOffset) -> GroupBlocker | None:
    """Return the group's blocker that is this id's transaction, or None."""
    for blocker in blocking_transactions(offset):
        unnamed = not blocker.transactional_id and blocker.producer_id == row.producer_id
        if blocker.transactional_id == row.transactional_id or unnamed:
            return blocker
    return None


def _waiter(offset: GroupOffset, blocker: GroupBlocker) -> BlockedReader:
    return BlockedReader(
        group=offset.group.group_id,
        cluster=offset.group.cluster.name,
        topic=offset.topic,
        partition=offset.partition,
        pending=blocker.pending,
        certain=blocker.certain,
        since_ms=offset.waiting_ms,
        behind=offset.lag_hw,
    )


def _order(wanted: SortedGroups, *, alone: bool) -> Sequence[OrderBy]:
    """Return the order of groups, or of families, whose columns are sums."""
    figures = {name: F(name if alone else f"all_{name}") for name in _FIGURES}
    by: list[Expression | F] = (
        [F("group_id"), F("cluster_id")] if alone else [F("family"), F("cluster__name")]
    )
    if wanted.sort == "worst":
        by = [_RANK if alone else F("rank"), figures["blocked"] * -1, figures["lag_hw"] * -1, *by]
    elif wanted.sort != "name":
        by.insert(0, figures[_SORTED_BY[wanted.sort]])
    return sorted_columns(wanted, *by)


def group_stores(row: Group) -> Sequence[Mapping[str, Any]]:
    """Return the stores of a group: from the brokers' description, else from the names of topics.

    `offsets` is the most that a rebuild reads, None if unknown.
    """
    members = GroupRecord.objects.filter(cluster=row.cluster_id, key=row.key)
    # A client id of a Kafka Streams thread shows that the group has stores.
    if not row.stores and not any(THREAD in packed for packed in members.values_list("members", flat=True)):
        return ()
    logs = _changelogs(row)
    stores: Sequence[StreamsStore] = (
        [read_json(StreamsStore, store) for store in json.loads(row.stores)]
        if row.stores
        else named_stores(row.group_id, logs)
    )
    return [
        {**store._asdict(), "name": store.name_in(row.group_id), "offsets": logs.get(store.changelog)}
        for store in stores
    ]


def _changelogs(row: Group) -> Mapping[str, int | None]:
    """Return the number of offsets by topic of a group, None if unknown.

    A topic that begins with another group's longer id belongs to that group.
    """
    start = f"{row.group_id}-"
    others = Group.objects.filter(cluster=row.cluster_id, group_id__startswith=start)
    longer = tuple(f"{name}-" for name in others.values_list("group_id", flat=True))
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__startswith=start)
    held = Sum(F("high_watermark") - F("log_start"))
    counted = rows.values_list("topic").annotate(
        n=Count("pk"), known=Count(F("high_watermark") - F("log_start")), held=held
    )
    return {
        topic: held if known == n else None
        for topic, n, known, held in counted.order_by("topic")
        if not topic.startswith(longer)
    }
