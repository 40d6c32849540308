"""Find readers at the LSO of partitions, and groups with commits in transactions, in collectors' rows."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from django.db.models import Q

from dashboard.models import GroupOffset, PinRecord
from dashboard.streaming import lag as blocked_queries
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Waiting

#: Maximum rows that one plan reads, and parameters of one SQL query: SQLite allows 32,766.
_MOST = 5_000


class BlockedReaders(NamedTuple):
    """Groups, and streaming queries by name, at a partition's LSO."""

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
    """Return the groups with pending commits in the transactions of these ids, by id."""
    groups: dict[str, set[str]] = defaultdict(set)
    rows = GroupOffset.objects.filter(group__cluster_id=cluster_id, unstable=True).select_related("group")
    for row in rows[:_MOST]:
        for blocker in row.blockers:
            if blocker.get("pending") and blocker.get("transactional_id") in names:
                groups[blocker["transactional_id"]].add(row.group.group_id)
    return {name: tuple(sorted(group_ids)) for name, group_ids in groups.items()}


def _groups(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    groups: dict[TopicPartition, set[str]] = defaultdict(set)
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
            groups[where].add(name)
    return groups


def _queries(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    names: dict[TopicPartition, set[str]] = defaultdict(set)
    rows = PinRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in lsos})
    pins = {row.pk: row for row in rows if TopicPartition(row.topic, row.partition) in lsos}
    for pk, queries in blocked_queries.blocked_queries(list(pins.values())).items():
        where = TopicPartition(pins[pk].topic, pins[pk].partition)
        names[where].update(query.name for query in queries)
    return names
