"""Who is blocked by which open transaction, by what groups and partitions show. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fenceline.kafka.groups import Waiting
from fenceline.rules.blocking import waits_since
from fenceline.snapshot import BlockedGroup, BlockedQueryFacts, PinnedPartition
from fenceline.spark.queries import QueryStatus


def blocked_groups(groups: Iterable[BlockedGroup]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups at an LSO by the id that holds it."""
    found: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        for offset in group.offsets:
            if offset.waiting is Waiting.PROBABLY:
                for blocker in offset.blockers:
                    found[blocker.transactional_id].add(group.group_id)
    return {name: tuple(sorted(each)) for name, each in found.items()}


def blocked_queries(
    queries: Iterable[QueryStatus], partitions: Iterable[PinnedPartition]
) -> Mapping[str, tuple[BlockedQueryFacts, ...]]:
    """Return the queries at an LSO by the id that holds it: the first that is open there."""
    held = {(each.topic, each.partition): each for each in partitions if each.pins}
    found: dict[str, dict[BlockedQueryFacts, None]] = defaultdict(dict)
    for query in queries:
        for each in query.positions:
            pinned = held.get((each.topic, each.partition))
            if pinned is not None and waits_since(each, pinned) is not None:
                found[pinned.pins[0].transactional_id][BlockedQueryFacts(query.ident, query.name)] = None
    return {name: tuple(each) for name, each in found.items()}
