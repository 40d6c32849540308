"""The streaming queries at an LSO that a transaction holds: a reader beside `groups`.

They wait if they read read_committed, which is not visible from outside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from django.db.models import F

from dashboard.models import Batch, PinRecord
from dashboard.partitions import queries as partition_queries
from fenceline.decode.checkpoint import parse_positions

#: Finished batches that one page reads: one for each query.
_MOST_QUERIES = 500


class BlockedQuery(NamedTuple):
    """A query that is at the LSO of a partition: its newest finished batch has read up to there."""

    cluster: str
    ident: str
    name: str
    topic: str
    partition: int
    #: Since when it may wait there.
    since_ms: int


def blocked_queries(pins: Collection[PinRecord]) -> Mapping[int, Sequence[BlockedQuery]]:
    """Return the queries at the LSO that a transaction holds in a partition, by the key of that pin's row."""
    seen = partition_queries.partitions_by_name((pin.cluster_id, pin.topic, pin.partition) for pin in pins)
    held = {
        (pin.cluster_id, pin.topic, pin.partition): pin
        for pin in pins
        if (row := seen.get((pin.cluster_id, pin.topic, pin.partition))) is not None
        and row.pinned_ms is not None
        and row.lso == pin.start_offset
    }
    found: dict[int, list[BlockedQuery]] = defaultdict(list)
    for batch in _finished({name[0] for name in held}):
        for where, position in _positions(batch).items():
            pin = held.get((batch.query.cluster_id, *where))
            if pin is not None and position == pin.start_offset:
                pinned_ms = seen[pin.cluster_id, *where].pinned_ms or 0
                who = batch.query.cluster.name, batch.query.ident, str(batch.query)
                found[pin.pk].append(BlockedQuery(*who, *where, max(pinned_ms, batch.committed_ms or 0)))
    return found


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
