"""Who waits at the LSO of partitions, and whose commits are part of transactions, as collectors saw it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from django.db.models import Q

from dashboard.models import GroupOffset, PinRecord
from dashboard.streaming import blocked as blocked_queries
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Waiting

#: Rows that one plan reads, and parameters of one query: SQLite takes 32,766.
_MOST = 5_000


class BlockedReaders(NamedTuple):
    """Groups, and streaming queries by name, that are at a partition's LSO."""

    groups: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


NOBODY = BlockedReaders()


def readers_at(
    cluster_id: int, lsos: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, BlockedReaders]:
    """Return the consumers at these offsets."""
    if not lsos:
        return {}
    groups, queries = _groups(cluster_id, lsos), _queries(cluster_id, lsos)
    return {
        where: BlockedReaders(tuple(sorted(groups.get(where, ()))), tuple(sorted(queries.get(where, ()))))
        for where in {*groups, *queries}
    }


def committing_groups(cluster_id: int, names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups whose pending commits are part of these ids' transactions, by the id."""
    found: dict[str, set[str]] = defaultdict(set)
    rows = GroupOffset.objects.filter(group__cluster_id=cluster_id, unstable=True).select_related("group")
    for row in rows[:_MOST]:
        for each in row.blockers:
            if each.get("pending") and each.get("transactional_id") in names:
                found[each["transactional_id"]].add(row.group.group_id)
    return {name: tuple(sorted(each)) for name, each in found.items()}


def _groups(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    found: dict[TopicPartition, set[str]] = defaultdict(set)
    offsets = list(dict.fromkeys(lsos.values()))[:_MOST]
    rows = GroupOffset.objects.filter(
        Q(waiting=Waiting.PROBABLY.value) | Q(offset__in=offsets),
        group__cluster_id=cluster_id,
        topic__in={where.topic for where in lsos},
    )
    names = rows.values_list("group__group_id", "topic", "partition", "offset", "waiting")
    for name, topic, number, offset, waiting in names[:_MOST]:
        where = TopicPartition(topic, number)
        if where in lsos and (offset == lsos[where] or waiting == Waiting.PROBABLY):
            found[where].add(name)
    return found


def _queries(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    found: dict[TopicPartition, set[str]] = defaultdict(set)
    rows = PinRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in lsos})
    pins = {row.pk: row for row in rows if TopicPartition(row.topic, row.partition) in lsos}
    for pk, queries in blocked_queries.blocked_queries(list(pins.values())).items():
        where = TopicPartition(pins[pk].topic, pins[pk].partition)
        found[where].update(each.name for each in queries)
    return found
