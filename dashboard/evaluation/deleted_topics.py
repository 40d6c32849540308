"""Find deleted partitions that groups had not read to the end, for the rules."""

from collections.abc import Iterator

from dashboard.models import DeletedPartition, DroppedOffset, GroupOffset, PartitionRecord
from fenceline.facts import TopicPartition
from fenceline.snapshot import DeletedRead

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
            yield _read(dropped_offset.group_id, row, dropped_offset.offset)
    again = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=topics)
    gone = topics - set(again.values_list("topic", flat=True))
    kept = GroupOffset.objects.filter(group__cluster_id=cluster_id, topic__in=gone)
    for offset in kept.exclude(offset=None).select_related("group"):
        row = deleted.get(TopicPartition(offset.topic, offset.partition))
        if row is not None and offset.offset != row.high_watermark:
            yield _read(offset.group.group_id, row, offset.offset or 0)


def _read(group_id: str, row: DeletedPartition, offset: int) -> DeletedRead:
    end = row.high_watermark
    unread = None if end is None else max(0, end - max(offset, row.log_start or 0))
    return DeletedRead(group_id, row.topic, row.partition, unread, row.deleted_ms)
