"""Read the state stores of a Kafka Streams application, and the sizes of their changelogs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Sum

from dashboard.models import Group, GroupRecord, PartitionRecord
from fenceline.decode.typed import read_json
from fenceline.engines.streams import StreamsStore, named_stores
from fenceline.kafka.producer_identity import THREAD


@dataclass(frozen=True, slots=True)
class ShownStore:
    """A store with its changelog; `offsets` is the most that a rebuild reads, None if unknown."""

    name: str
    store: StreamsStore
    offsets: int | None


def group_stores(row: Group) -> Sequence[ShownStore]:
    """Return the stores of a group: from the brokers' description, else from the names of topics."""
    if not (row.stores or _is_streams(row)):
        return ()
    logs = _changelogs(row)
    stores: Sequence[StreamsStore] = (
        [read_json(StreamsStore, store) for store in json.loads(row.stores)]
        if row.stores
        else named_stores(row.group_id, logs)
    )
    return [ShownStore(store.name_in(row.group_id), store, logs.get(store.changelog)) for store in stores]


def _is_streams(row: Group) -> bool:
    """Whether a member's client id is from a Kafka Streams thread."""
    members = GroupRecord.objects.filter(cluster=row.cluster_id, key=row.key).values_list(
        "members", flat=True
    )
    return any(THREAD in packed for packed in members)


def _changelogs(row: Group) -> Mapping[str, int | None]:
    """Return the number of offsets by topic of a group, None if unknown.

    A topic that begins with another group's longer id belongs to that group.
    """
    start = f"{row.group_id}-"
    others = Group.objects.filter(cluster=row.cluster_id, group_id__startswith=start)
    longer = tuple(f"{name}-" for name in others.values_list("group_id", flat=True))
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__startswith=start)
    held = Sum(F("high_watermark") - F("log_start"))
    counted = rows.values_list("topic").annotate(
        n=Count("pk"), known=Count(F("high_watermark") - F("log_start")), held=held
    )
    return {
        topic: held if known == n else None
        for topic, n, known, held in counted.order_by("topic")
        if not topic.startswith(longer)
    }
