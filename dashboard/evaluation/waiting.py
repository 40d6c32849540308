"""Find groups and queries blocked by open transactions, from the facts about groups and partitions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fenceline.kafka.groups import Waiting
from fenceline.rules.blocking import waits_since
from fenceline.snapshot import BlockedGroup, BlockedQueryFacts, PinnedPartition
from fenceline.spark.queries import QueryStatus


def blocked_groups(groups: Iterable[BlockedGroup]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups at an LSO by the blocking id."""
    groups_by_id: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        for offset in group.offsets:
            if offset.waiting is Waiting.PROBABLY:
                for blocker in offset.blockers:
                    groups_by_id[blocker.transactional_id].add(group.group_id)
    return {name: tuple(sorted(group_ids)) for name, group_ids in groups_by_id.items()}


def blocked_queries(
    queries: Iterable[QueryStatus], partitions: Iterable[PinnedPartition]
) -> Mapping[str, tuple[BlockedQueryFacts, ...]]:
    """Return the queries at an LSO by the blocking id, that of the first open transaction there."""
    held = {(partition.topic, partition.partition): partition for partition in partitions if partition.pins}
    queries_by_id: dict[str, dict[BlockedQueryFacts, None]] = defaultdict(dict)
    for query in queries:
        for position in query.positions:
            pinned = held.get((position.topic, position.partition))
            if pinned is not None and waits_since(position, pinned) is not None:
                queries_by_id[pinned.pins[0].transactional_id][BlockedQueryFacts(query.ident, query.name)] = (
                    None
                )
    return {name: tuple(blocked) for name, blocked in queries_by_id.items()}
