"""Read the rows that a poll of groups starts from: commits, ends, transactions, groups' previous states."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.models import (
    IS_OPEN,
    Collector,
    CommitRecord,
    Group,
    GroupOffset,
    GroupRecord,
    PartitionRecord,
    PinRecord,
    Position,
    TopicTally,
    Transaction,
)
from dashboard.runtime.collector_names import OFFSETS
from dashboard.runtime.leases import Lease
from fenceline.decode.consumer_offsets import Member
from fenceline.facts import TopicPartition, expand_partitions
from fenceline.grouping import grouped
from fenceline.kafka import offset_histories as ends
from fenceline.kafka.commits import TOPIC, unpack_commits, unpack_members
from fenceline.kafka.fold.counting import LINK_SPAN_MS
from fenceline.kafka.group_observation import GroupBlocker, Logged, LoggedCommit, Stood
from fenceline.kafka.groups import SHARE, Commit, Committed, GroupStatus, Point, Waiting
from fenceline.kafka.offset_histories import EndOffset

#: Maximum age of a tail's data for the log to replace a coordinator that may not be asked.
_LIVE_MS = 15_000
#: Maximum age of transactions that show which groups commit in transactions.
_NAMED_MS = 86_400_000
_STOOD = ("group__group_id", "topic", "partition", *Stood._fields)
_LOGGED = (
    "group_id", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_ms", "commits",
    "log_partition",
)  # fmt: skip


@dataclass(slots=True)
class PreviousGroups:
    groups: Mapping[str, Group]
    stood: Mapping[str, Mapping[TopicPartition, Stood]]
    logged: Mapping[str, Mapping[TopicPartition, Logged]]
    members: Mapping[str, Mapping[str, Member]]
    #: Packed histories of ends, and the newest end.
    ends: Mapping[TopicPartition, tuple[str, EndOffset | None]]
    #: Blockers by partition, oldest first: from the leaders' answers, else from open transactions' records.
    holders: Mapping[TopicPartition, Sequence[GroupBlocker]]
    #: Open transactions by partition of `__consumer_offsets`.
    committing: Mapping[int, Sequence[GroupBlocker]]
    _unpacked: dict[TopicPartition, Sequence[EndOffset]] = field(default_factory=dict)

    def ends_of(self, where: TopicPartition) -> Sequence[EndOffset]:
        """Return the history of a partition's end offset, oldest first."""
        if where not in self._unpacked:
            packed, newest = self.ends.get(where, ("", None))
            history = list(ends.unpack_ends(packed))
            if newest is not None and (not history or history[-1].at_ms < newest.at_ms):
                history.append(newest)
            self._unpacked[where] = history
        return self._unpacked[where]


class GroupRows:
    """The rows of one cluster, for `collectors.kafka.groups` and for the save after its poll."""

    def __init__(self, lease: Lease, now_ms: int) -> None:
        self._cluster_id = lease.cluster_id
        self._now_ms = now_ms

    def logged_groups(self) -> Collection[str]:
        """Return the groups whose commits the tail has read, and the groups with a row.

        A list silently omits groups that we may no longer describe.
        """
        rows = CommitRecord.objects.filter(cluster_id=self._cluster_id)
        known = Group.objects.filter(cluster_id=self._cluster_id).exclude(kind=SHARE)
        names = set(rows.values_list("group_id", flat=True).distinct())
        return names.union(known.values_list("group_id", flat=True))

    def logged_commits(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, Committed]]:
        """Return the newest logged commits of the groups; empty unless all tails are up to date."""
        if not self._tail_lives():
            return {}
        wanted = set(groups)
        commits: dict[str, dict[TopicPartition, Committed]] = {name: {} for name in groups}
        for name, where, logged in self._logged_rows():
            if name in wanted:
                commits[name][where] = logged.committed
        return commits

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the known transactional ids by producer id."""
        rows = Transaction.objects.filter(cluster_id=self._cluster_id, producer_id__in=list(producer_ids))
        return dict(rows.values_list("producer_id", "transactional_id"))

    def commits_beside_transactions(self) -> Sequence[LoggedCommit]:
        """Return the newest commit of each group and topic in partitions that transactions wrote to."""
        named = TopicTally.objects.filter(
            cluster_id=self._cluster_id,
            span_s=LINK_SPAN_MS // 1_000,
            start_ms__gte=self._now_ms - _NAMED_MS,
            topic=TOPIC,
        )
        numbers = list(named.values_list("partition", flat=True).distinct())
        rows = CommitRecord.objects.filter(cluster_id=self._cluster_id, log_partition__in=numbers)
        columns = ("group_id", "topic", "log_partition", "log_offset")
        newest: dict[tuple[str, str], tuple[int, int]] = {}
        for group, topic, number, offset in rows.values_list(*columns).iterator(5_000) if numbers else ():
            newest[group, topic] = max((number, offset), newest.get((group, topic), (number, -1)))
        return [LoggedCommit(*key, *place) for key, place in sorted(newest.items())]

    def known_groups(self) -> PreviousGroups:
        logged: defaultdict[str, dict[TopicPartition, Logged]] = defaultdict(dict)
        for name, where, logged_commit in self._logged_rows():
            logged[name][where] = logged_commit
        open_in, pinned = grouped(self._open_in()), grouped(self._pinned())
        return PreviousGroups(
            groups={row.group_id: row for row in Group.objects.filter(cluster_id=self._cluster_id)},
            stood=self._stood(),
            logged=logged,
            members=self._members(),
            ends=self._ends(),
            holders={where: _one_of(blockers) for where, blockers in open_in.items()} | pinned,
            committing={
                where.partition: _one_of([blocker._replace(pending=True) for blocker in blockers])
                for where, blockers in open_in.items()
                if where.topic == TOPIC
            },
        )

    def _tail_lives(self) -> bool:
        """Whether all tails of `__consumer_offsets` are up to date; False without the topic."""
        if not Position.objects.filter(cluster_id=self._cluster_id, topic=TOPIC).exists():
            return False
        rows = Collector.objects.filter(cluster_id=self._cluster_id, name__startswith=OFFSETS)
        progress = list(rows.values_list("seen_through_ms", "error"))
        return bool(progress) and all(
            ms and self._now_ms - ms < _LIVE_MS and not error for ms, error in progress
        )

    def _logged_rows(self) -> Iterator[tuple[str, TopicPartition, Logged]]:
        positions = Position.objects.filter(cluster_id=self._cluster_id, topic=TOPIC)
        clocks = dict(positions.values_list("partition", "clock_ms"))
        rows = CommitRecord.objects.filter(cluster_id=self._cluster_id).values_list(*_LOGGED)
        for name, topic, number, offset, epoch, metadata, commit_ms, packed, log in rows.iterator(5_000):
            commits = unpack_commits(packed) or (Commit(commit_ms, offset),)
            committed = Committed(offset, epoch, metadata)
            logged = Logged(committed, commit_ms, commits, log, clocks.get(log))
            yield name, TopicPartition(topic, number), logged

    def _stood(self) -> Mapping[str, Mapping[TopicPartition, Stood]]:
        stood_by_group: defaultdict[str, dict[TopicPartition, Stood]] = defaultdict(dict)
        rows = GroupOffset.objects.filter(group__cluster_id=self._cluster_id).values_list(*_STOOD)
        for name, topic, number, *others in rows.iterator(5_000):
            stood_by_group[name][TopicPartition(topic, number)] = _stood(others)
        return stood_by_group

    def _members(self) -> Mapping[str, Mapping[str, Member]]:
        rows = GroupRecord.objects.filter(cluster_id=self._cluster_id).values_list("group_id", "members")
        return {name: unpack_members(packed) for name, packed in rows}

    def _ends(self) -> Mapping[TopicPartition, tuple[str, EndOffset | None]]:
        rows = PartitionRecord.objects.filter(cluster_id=self._cluster_id)
        columns = rows.values_list("topic", "partition", "ends", "seen_ms", "lso", "high_watermark")
        return {
            TopicPartition(topic, number): (packed, _end(seen_ms, lso, high_watermark))
            for topic, number, packed, seen_ms, lso, high_watermark in columns.iterator(5_000)
        }

    def _pinned(self) -> Iterator[tuple[TopicPartition, GroupBlocker]]:
        for pin in PinRecord.objects.filter(cluster_id=self._cluster_id).order_by("start_offset"):
            who = pin.producer_id, pin.producer_epoch, pin.transactional_id
            yield TopicPartition(pin.topic, pin.partition), GroupBlocker(*who, pin.start_offset)

    def _open_in(self) -> Iterator[tuple[TopicPartition, GroupBlocker]]:
        opened = Transaction.objects.filter(IS_OPEN, cluster_id=self._cluster_id)
        for row in opened.exclude(partitions=""):
            blocker = GroupBlocker(row.producer_id, row.producer_epoch, row.transactional_id)
            for where in expand_partitions(json.loads(row.partitions)):
                yield where, blocker


def _one_of(blockers: Sequence[GroupBlocker]) -> Sequence[GroupBlocker]:
    """Mark several blockers as uncertain, because the record does not show which of them blocks."""
    return [blocker._replace(certain=len(blockers) == 1) for blocker in blockers]


def _end(seen_ms: int | None, lso: int | None, high_watermark: int | None) -> EndOffset | None:
    if seen_ms is None or lso is None or high_watermark is None:
        return None
    return EndOffset(seen_ms, lso, high_watermark)


def _stood(columns: Sequence[Any]) -> Stood:
    *first, status, waiting, waiting_ms, blockers, packed = columns
    waits = Waiting(waiting) if waiting else None
    holders = tuple(GroupBlocker(**blocker) for blocker in blockers)
    points = tuple(Point(*point) for point in json.loads(packed or "[]"))
    return Stood._make([*first, GroupStatus(status), waits, waiting_ms, holders, points])


def packed_points(points: Iterable[Sequence[int | None]]) -> str:
    """Return points as the JSON text of their column."""
    return json.dumps(list(points), separators=(",", ":"))
