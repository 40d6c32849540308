"""The state stores of an application of Kafka Streams, and what their changelogs hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Sum

from dashboard.models import Group, PartitionRecord
from fenceline.decode.typed import read_json
from fenceline.engines.streams import StreamsStore, named_stores


@dataclass(frozen=True, slots=True)
class ShownStore:
    """A store with its changelog; `offsets` bounds what a rebuild reads, None where it is not known."""

    name: str
    store: StreamsStore
    partitions: int
    offsets: int | None


def group_stores(row: Group) -> Sequence[ShownStore]:
    """Return the stores of a group: as brokers describe them, else as the names of topics show them."""
    logs = _changelogs(row)
    stores: Sequence[StreamsStore] = (
        [read_json(StreamsStore, each) for each in json.loads(row.stores)]
        if row.stores
        else named_stores(row.group_id, logs)
    )
    return [
        ShownStore(store.name_in(row.group_id), store, *logs.get(store.changelog, (0, None)))
        for store in stores
    ]


def _changelogs(row: Group) -> Mapping[str, tuple[int, int | None]]:
    """Return the number of partitions and of offsets of each topic that begins with a group's id."""
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__startswith=f"{row.group_id}-")
    counted = rows.values_list("topic").annotate(
        n=Count("pk"), held=Sum(F("high_watermark") - F("log_start"))
    )
    return {topic: (n, held) for topic, n, held in counted.order_by("topic")}
