"""Facts for the rules that follow from rows of several collectors: unread records of deleted partitions, and
groups and queries that open transactions block.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from dashboard.models import DeletedPartition, DroppedOffset, GroupOffset, PartitionRecord
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Waiting
from fenceline.rules.blocking import waits_since
from fenceline.snapshot import BlockedGroup, BlockedQueryFacts, DeletedRead, PinnedPartition
from fenceline.spark.queries import QueryStatus

_DAY_MS = 86_400_000
#: Coordinators drop the offsets of a deleted topic; two collectors notice both within this time.
_TOGETHER_MS = 120_000


def deleted_reads(cluster_id: int, now_ms: int) -> Iterator[DeletedRead]:
    """Yield the unread records of partitions that were deleted within a day."""
    rows = DeletedPartition.objects.filter(cluster_id=cluster_id, deleted_ms__gte=now_ms - _DAY_MS)
    deleted = {TopicPartition(row.topic, row.partition): row for row in rows}
    if not deleted:
        return
    topics = {where.topic for where in deleted}
    dropped = DroppedOffset.objects.filter(cluster_id=cluster_id, dropped_ms__gte=now_ms - 2 * _DAY_MS)
    for dropped_offset in dropped.filter(topic__in=topics):
        row = deleted.get(TopicPartition(dropped_offset.topic, dropped_offset.partition))
        if row is not None and abs(row.deleted_ms - dropped_offset.dropped_ms) <= _TOGETHER_MS:
            yield _deleted_read(dropped_offset.group_id, row, dropped_offset.offset)
    again = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=topics)
    gone = topics - set(again.values_list("topic", flat=True))
    kept = GroupOffset.objects.filter(group__cluster_id=cluster_id, topic__in=gone)
    for offset in kept.exclude(offset=None).select_related("group"):
        row = deleted.get(TopicPartition(offset.topic, offset.partition))
        if row is not None and offset.offset != row.high_watermark:
            yield _deleted_read(offset.group.group_id, row, offset.offset or 0)


def _deleted_read(group_id: str, row: DeletedPartition, offset: int) -> DeletedRead:
    end = row.high_watermark
    unread = None if end is None else max(0, end - max(offset, row.log_start or 0))
    return DeletedRead(group_id, row.topic, row.partition, unread, row.deleted_ms)


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
