"""Partitions, their replicas and the transactions that block them, for pages to show."""

import json
from collections.abc import Sequence

from dashboard.models import Cluster, PartitionRecord, PinRecord, ReplicaLook
from tests.web.factories.clusters import MINUTE_MS, now_ms


def partition(of: Cluster, topic: str = "payments", number: int = 0, **fields: object) -> PartitionRecord:
    """Return a partition that nothing blocks, but for `fields`."""
    now = now_ms()
    lso, high = int(fields.get("lso", 48_211)), int(fields.get("high_watermark", 48_211))  # type: ignore[call-overload]
    ends = [[now - n * 5_000, lso, max(lso, high - n * 31)] for n in range(24, -1, -1)]
    defaults: dict[str, object] = {
        "leader": 1 + number % 3,
        "leader_epoch": 14,
        "replicas": [1, 2, 3],
        "log_start": 1_204,
        "lso": lso,
        "high_watermark": high,
        "seen_ms": now - 300,
        "ends": json.dumps(ends),
        "rev": 1,
    }
    return PartitionRecord.objects.create(cluster=of, topic=topic, partition=number, **(defaults | fields))


def lso_blocker(
    of: Cluster, topic: str, number: int = 0, verdict: str = "open", *, age_ms: int = MINUTE_MS, **pin: object
) -> PinRecord:
    """Make a blocked partition; return its only open transaction, but for fields of the `pin`."""
    now = now_ms()
    row = partition(
        of, topic, number, verdict=verdict, pinned_ms=now - age_ms, lso=48_211, high_watermark=49_981
    )
    defaults: dict[str, object] = {
        "producer_id": 4017,
        "producer_epoch": 3,
        "start_offset": row.lso,
        "last_sequence": 62,
        "last_timestamp_ms": now - age_ms,
        "coordinator_epoch": 14,
        "first_seen_ms": now - age_ms,
        "seen_ms": now,
        "transactional_id": "payments-7",
        "verdict": verdict,
        "ground": "owned",
    }
    return PinRecord.objects.create(cluster=of, topic=topic, partition=number, **(defaults | pin))


def replica(
    of: Cluster, topic: str, number: int, broker: int, producers: Sequence[object] = (), **fields: object
) -> None:
    """Make what a replica reported of its producers."""
    defaults: dict[str, object] = {"leads": broker == 1, "seen_ms": now_ms(), "producers": producers}
    ReplicaLook.objects.create(
        cluster=of, topic=topic, partition=number, broker=broker, **(defaults | fields)
    )


def replica_producer(
    producer_id: int, start_offset: int | None = None, transactional_id: str = ""
) -> dict[str, object]:
    """Return a producer as a replica reports it."""
    return {
        "producer_id": producer_id,
        "producer_epoch": 3,
        "last_sequence": 62,
        "last_timestamp_ms": now_ms() - 4_000,
        "coordinator_epoch": 14 if transactional_id else None,
        "start_offset": start_offset,
        "transactional_id": transactional_id,
    }
