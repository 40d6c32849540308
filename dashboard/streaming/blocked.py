"""Find the streaming queries at an LSO that a transaction blocks.

They wait if they use read_committed, which their rows do not show.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from django.db.models import F

from dashboard.models import Batch, PinRecord
from dashboard.partitions import queries as partition_queries
from fenceline.decode.checkpoint import parse_positions

#: The most queries, and so finished batches, that a page reads.
_MOST_QUERIES = 500


class BlockedQuery(NamedTuple):
    """A query at the LSO of a partition: its newest finished batch has read up to that offset."""

    cluster: str
    ident: str
    name: str
    topic: str
    partition: int
    #: The time since which it may wait there.
    since_ms: int


def blocked_queries(pins: Collection[PinRecord]) -> Mapping[int, Sequence[BlockedQuery]]:
    """Return the queries at the LSO that a transaction blocks in a partition, by the pin's key."""
    rows = partition_queries.partitions_by_name((pin.cluster_id, pin.topic, pin.partition) for pin in pins)
    held = {
        (pin.cluster_id, pin.topic, pin.partition): pin
        for pin in pins
        if (row := rows.get((pin.cluster_id, pin.topic, pin.partition))) is not None
        and row.pinned_ms is not None
        and row.lso == pin.start_offset
    }
    blocked: dict[int, list[BlockedQuery]] = defaultdict(list)
    for batch in _finished({name[0] for name in held}):
        for where, position in _positions(batch).items():
            pin = held.get((batch.query.cluster_id, *where))
            if pin is not None and position == pin.start_offset:
                pinned_ms = rows[pin.cluster_id, *where].pinned_ms or 0
                who = batch.query.cluster.name, batch.query.ident, str(batch.query)
                blocked[pin.pk].append(BlockedQuery(*who, *where, max(pinned_ms, batch.committed_ms or 0)))
    return blocked


def _finished(clusters: Collection[int]) -> Sequence[Batch]:
    """Return the newest finished batch of each query."""
    if not clusters:
        return []
    rows = Batch.objects.filter(query__cluster__in=clusters, batch_id=F("query__finished"))
    wanted = rows.select_related("query__cluster").only(
        "offsets", "committed_ms", "query__ident", "query__name", "query__checkpoint", "query__cluster__name"
    )
    return list(wanted[:_MOST_QUERIES])


def _positions(batch: Batch) -> Mapping[tuple[str, int], int]:
    return {where: at for _, raw in batch.offsets for where, at in (parse_positions(raw) or {}).items()}
