"""Save the offsets that transactions add to groups: the newest observed transaction of each producer id.

The collector of groups writes one row for each producer id and partition of `__consumer_offsets`. Rows older
than the retention of transitions are deleted (`dashboard.runtime.retention`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.models import AddedOffsetsRecord
from dashboard.runtime.sql import Row, Upsert, overwrite_changes
from fenceline.kafka.added_offsets import AddedOffsets, pack_offsets
from fenceline.kafka.groups import POINTS_APART_MS

_KEY = ("cluster_id", "producer_id", "log_partition")
_CHANGES = ("producer_epoch", "offsets", "total", "marker", "unread")
_COLUMNS = (*_KEY, *_CHANGES, "read_ms")
_UPSERT = Upsert(AddedOffsetsRecord._meta.db_table, _COLUMNS, _KEY, overwrite_changes(_COLUMNS[len(_KEY) :]))


def save_added_offsets(cluster_id: int, added: Sequence[AddedOffsets]) -> None:
    """Save the last offsets of each producer and partition in a poll; rewrite unchanged rows once old."""
    if not added:
        return
    newest = {
        (added_offsets.producer_id, added_offsets.log_partition): added_offsets for added_offsets in added
    }
    rows = AddedOffsetsRecord.objects.filter(
        cluster_id=cluster_id, producer_id__in={producer_id for producer_id, _ in newest}
    )
    known = {row[:2]: row[2:] for row in rows.values_list(*_COLUMNS[1:])}
    changed = [
        _row(cluster_id, newest[key]) for key in sorted(newest) if _is_news(known.get(key), newest[key])
    ]
    _UPSERT.write(changed)


def _is_news(known: Sequence[object] | None, now: AddedOffsets) -> bool:
    if known is None:
        return True
    *columns, read_ms = known
    return columns != list(_values(now)) or now.read_ms - int(str(read_ms)) >= POINTS_APART_MS


def _values(added: AddedOffsets) -> Row:
    return added.producer_epoch, pack_offsets(added.offsets), added.total, added.marker, added.unread


def _row(cluster_id: int, added: AddedOffsets) -> Row:
    return cluster_id, added.producer_id, added.log_partition, *_values(added), added.read_ms
