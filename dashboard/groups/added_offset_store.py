"""Save the offsets that transactions add to groups: the newest observed transaction of each producer id.

The collector of groups writes one row for each producer id and partition of `__consumer_offsets`. Rows older
than the retention of transitions are deleted (`dashboard.runtime.retention`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.models import AddedOffsetsRecord
from dashboard.runtime.sql import write_rows
from fenceline.kafka.added_offsets import AddedOffsets, pack_offsets
from fenceline.kafka.groups import POINTS_APART_MS


def save_added_offsets(cluster_id: int, added: Sequence[AddedOffsets]) -> None:
    """Save the last offsets of each producer and partition in a poll; rewrite unchanged rows once old."""
    if not added:
        return
    newest = {(offsets.producer_id, offsets.log_partition): offsets for offsets in added}
    rows = AddedOffsetsRecord.objects.filter(
        cluster_id=cluster_id, producer_id__in={producer_id for producer_id, _ in newest}
    )
    known = {(row.producer_id, row.log_partition): row for row in rows}
    columns = (
        {**offsets._asdict(), "cluster_id": cluster_id, "offsets": pack_offsets(offsets.offsets)}
        for offsets in newest.values()
    )
    changed = [row for row in columns if _is_news(known.get((row["producer_id"], row["log_partition"])), row)]
    write_rows(AddedOffsetsRecord, changed, ("cluster_id", "producer_id", "log_partition"))


def _is_news(known: AddedOffsetsRecord | None, now: Mapping[str, Any]) -> bool:
    if known is None or now["read_ms"] - known.read_ms >= POINTS_APART_MS:
        return True
    return any(getattr(known, name) != value for name, value in now.items() if name != "read_ms")
