"""Groups and their offsets for pages to show."""

import json

from dashboard.models import AddedOffsetsRecord, Cluster, Group, GroupOffset, PinRecord, Transaction
from fenceline.decode import text
from fenceline.kafka.added_offsets import AddedOffset, pack_offsets
from fenceline.kafka.groups import family_of
from fenceline.kafka.transactional_ids import key_of
from tests.web.factories.clusters import MINUTE_MS, now_ms


def group(of: Cluster, raw: bytes | str = b"billing", status: str = "OK", **fields: object) -> Group:
    """Return a group without partitions."""
    name = raw.encode() if isinstance(raw, str) else raw
    now = now_ms()
    defaults: dict[str, object] = {
        "family": family_of(text.escape_bytes(name)).name,
        "state": "Stable",
        "kind": "Classic",
        "coordinator": 2,
        "log_partition": 17,
        "members": 3,
        "partitions": 1,
        "lag_lso": 12,
        "lag_hw": 12,
        "lag_ms": 850,
        "trend": json.dumps([[now - n * 10_000, 12, 12 + (n * 7) % 30] for n in range(20, -1, -1)]),
        "seen_ms": now,
        "rev": 1,
    }
    return Group.objects.create(
        cluster=of, key=key_of(name), group_id=text.escape_bytes(name), status=status, **(defaults | fields)
    )


def added_offsets(
    row: Transaction, group: str = "enrich", *, age_ms: int = 1_000, **fields: object
) -> AddedOffsetsRecord:
    """Return what was read of a transaction: offsets 100 and 101 of a group for payments-0 and -1.

    They were added `age_ms` ago, which is after the transaction began and before it ended.
    """
    at_ms, log_partition = now_ms() - age_ms, int(str(fields.pop("log_partition", 12)))
    offsets = [AddedOffset(group, "payments", n, 100 + n, at_ms, log_partition, 40 + n) for n in range(2)]
    defaults: dict[str, object] = {
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "offsets": pack_offsets(offsets),
        "total": 2,
        "unread": 0,
        "read_ms": now_ms(),
    }
    return AddedOffsetsRecord.objects.create(
        cluster=row.cluster, log_partition=log_partition, **(defaults | fields)
    )


def spark_group_id(number: int) -> str:
    """Return the id of a group that Spark generated."""
    return f"spark-kafka-source-{number:08x}-4f1c-4a77-9d51-0c1d2e3f4a5b-{number}-driver-0"


def group_offset(of: Group, topic: str = "payments", number: int = 0, **fields: object) -> GroupOffset:
    """Return what a group committed for a partition: it is consuming, but for `fields`."""
    now = now_ms()
    defaults: dict[str, object] = {
        "offset": 48_199,
        "commit_ms": now - 900,
        "log_start": 1_204,
        "lso": 48_211,
        "high_watermark": 48_211,
        "lag_ms": 850,
        "status": "OK",
        "points": json.dumps([[now - n * 10_000, 48_199 - n * 40, 12 + n % 5] for n in range(9, -1, -1)]),
    }
    return GroupOffset.objects.create(group=of, topic=topic, partition=number, **(defaults | fields))


def blocked_offset(of: Group, pin: PinRecord, *, age_ms: int = MINUTE_MS) -> GroupOffset:
    """Return the offset of a group that is blocked at the LSO by a transaction."""
    blocker = {
        "producer_id": pin.producer_id,
        "producer_epoch": pin.producer_epoch,
        "transactional_id": pin.transactional_id,
        "start_offset": pin.start_offset,
    }
    return group_offset(
        of,
        pin.topic,
        pin.partition,
        offset=pin.start_offset,
        high_watermark=49_981,
        status="BLOCKED",
        waiting="probably",
        waiting_ms=now_ms() - age_ms,
        blockers=[blocker],
        lag_ms=age_ms,
    )
