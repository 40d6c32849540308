"""Partitions, groups and episodes for pages to show: calm ones, held ones, thousands of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from dashboard.config import Config
from dashboard.models import (
    Cluster,
    Group,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Recovery,
    ReplicaLook,
)
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.kafka.applications import application_of
from fenceline.kafka.families import family_of
from fenceline.kafka.transactional_ids import key_of
from fenceline.owners import Owner
from tests.web import seed

MINUTE_MS = 60_000


def watched(of: Cluster) -> None:
    """Let the collectors of partitions, groups and episodes be up to date."""
    for name in ("partitions", "groups", "recoveries"):
        if not of.collector_set.filter(name=name).exists():
            seed.collector(of, name, behind=None)


def partition(of: Cluster, topic: str = "payments", number: int = 0, **fields: object) -> PartitionRecord:
    """Return a partition that nothing holds back, but for `fields`."""
    now = seed.now_ms()
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


def pinned(
    of: Cluster, topic: str, number: int = 0, verdict: str = "open", *, age_ms: int = MINUTE_MS, **pin: object
) -> PinRecord:
    """Return what holds a partition back: its only open transaction, but for fields of the `pin`."""
    now = seed.now_ms()
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


def looked(
    of: Cluster, topic: str, number: int, broker: int, producers: Sequence[object] = (), **fields: object
) -> None:
    """Let a replica have told of its producers."""
    defaults: dict[str, object] = {"leads": broker == 1, "seen_ms": seed.now_ms(), "producers": producers}
    ReplicaLook.objects.create(
        cluster=of, topic=topic, partition=number, broker=broker, **(defaults | fields)
    )


def producer(
    producer_id: int, start_offset: int | None = None, transactional_id: str = ""
) -> dict[str, object]:
    """Return a producer as a replica tells of it."""
    return {
        "producer_id": producer_id,
        "producer_epoch": 3,
        "last_sequence": 62,
        "last_timestamp_ms": seed.now_ms() - 4_000,
        "coordinator_epoch": 14 if transactional_id else None,
        "start_offset": start_offset,
        "transactional_id": transactional_id,
    }


def group(of: Cluster, raw: bytes | str = b"billing", status: str = "OK", **fields: object) -> Group:
    """Return a group without partitions."""
    name = raw.encode() if isinstance(raw, str) else raw
    now = seed.now_ms()
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


def spark(number: int) -> str:
    """Return the id of a group that Spark made up."""
    return f"spark-kafka-source-{number:08x}-4f1c-4a77-9d51-0c1d2e3f4a5b-{number}-driver-0"


def offset(of: Group, topic: str = "payments", number: int = 0, **fields: object) -> GroupOffset:
    """Return what a group committed for a partition: it reads on, but for `fields`."""
    now = seed.now_ms()
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


def waits(of: Group, pin: PinRecord, *, age_ms: int = MINUTE_MS) -> GroupOffset:
    """Let a group stand at the LSO that a transaction holds."""
    blocker = {
        "producer_id": pin.producer_id,
        "producer_epoch": pin.producer_epoch,
        "transactional_id": pin.transactional_id,
        "start_offset": pin.start_offset,
    }
    return offset(
        of,
        pin.topic,
        pin.partition,
        offset=pin.start_offset,
        high_watermark=49_981,
        status="BLOCKED",
        waiting="probably",
        waiting_ms=seed.now_ms() - age_ms,
        blockers=[blocker],
        lag_ms=age_ms,
    )


def episode(of: Cluster, raw: bytes | str = b"payments-7", **fields: object) -> Recovery:
    """Return an episode that is over, but for `fields`."""
    name = raw.encode() if isinstance(raw, str) else raw
    opened = seed.now_ms() - 600_000
    number = Recovery.objects.count()
    defaults: dict[str, object] = {
        "application": application_of(text.escape_bytes(name)).application,
        "cause": "timeout",
        "confidence": "probable",
        "producer_id": 4017,
        "producer_epoch": 3,
        "topic_id": "Zr8RkY4nQ0m1w2p3c4v5bg",
        "log_partition": 7,
        "log_offset": 24_100 + number,
        "opened_ms": opened - number * 1_000,
        "begun_ms": opened - 60_900,
        "completed_ms": opened + 30,
        "released_ms": opened + 120,
        "resumed_ms": opened + 4_120,
        "resumed_by": text.escape_bytes(name),
        "closed_ms": opened + 4_120,
        "outcome": "resumed",
        "records_released": 1_770,
        "partitions": [["payments", [0, 1]]],
        "waited": [["billing", "payments", 0, 48_211, opened - 58_000, opened + 900]],
        "lost": [
            ["payments", 0, 48_211, 48_273, 63, True, ""],
            ["payments", 1, 7_000, 7_110, None, False, "the log was cut before it was read"],
            ["payments", 2, None, None, 0, True, ""],
        ],
        "lost_complete": True,
        "rev": 1,
    }
    return Recovery.objects.create(
        cluster=of, key=key_of(name), transactional_id=text.escape_bytes(name), **(defaults | fields)
    )


def busy(of: Cluster) -> None:
    """Fill a cluster with what every page has something to say of; `seed.busy` comes before it."""
    watched(of)
    now = seed.now_ms()
    for number in range(50):
        partition(of, "__transaction_state", number, lso=24_000, high_watermark=24_000)
    for topic in ("orders", "orders_enriched", "clicks", "stock", "inventory-changes"):
        for number in range(12):
            partition(
                of, topic, number, lso=9_000 + number * 811, high_watermark=9_000 + number * 811 + number % 3
            )
    hanging = pinned(
        of,
        "payments",
        0,
        "hanging",
        age_ms=712_000,
        ground="not_its_partition",
        transactional_id="payments-ledger-7",
    )
    late = pinned(
        of,
        "payments",
        1,
        "late",
        age_ms=3_900_000,
        producer_id=2051,
        ground="past_timeout",
        transactional_id="payments-ledger-7",
    )
    pinned(
        of,
        "stock-audit",
        1,
        "open",
        age_ms=42_000,
        producer_id=2051,
        transactional_id="inventory-sync-stuck-3",
    )
    pinned(of, "stock-audit", 4, "unknown", producer_id=9001, transactional_id="", ground="may_be_hidden")
    partition(of, "lost-leader", 0, leader=None, error="broker 3: leader not available since 12:04:11 UTC")
    pinned(of, "__consumer_offsets", 17, "open", producer_id=2051, transactional_id="inventory-sync-stuck-3")
    producers = [producer(4017, 48_211, "payments-ledger-7"), *(producer(5000 + n) for n in range(8))]
    looked(of, "payments", 0, 1, producers)
    looked(of, "payments", 0, 2, producers[:5])
    looked(of, "payments", 0, 3, error="broker 3: connection refused")
    billing = group(
        of,
        "billing",
        "BLOCKED",
        blocked=2,
        lag_lso=0,
        lag_hw=3_540,
        lag_ms=712_000,
        partitions=3,
        trend=json.dumps([[now - n * 10_000, 0, 3_540 - n * 90] for n in range(20, -1, -1)]),
    )
    waits(billing, hanging, age_ms=712_000)
    waits(billing, late, age_ms=3_900_000)
    offset(billing, "orders", 3)
    past = group(of, "payments-mirror", lag_lso=0, lag_hw=0)
    offset(
        past,
        "payments",
        0,
        offset=49_981,
        high_watermark=49_981,
        waiting="reads_past",
        waiting_ms=now - 90_000,
    )
    commits = group(of, "inventory-sync", "UNKNOWN", unstable=1, lag_lso=None, lag_hw=None, lag_ms=None)
    pending = {
        "transactional_id": "inventory-sync-stuck-3",
        "producer_id": 2051,
        "pending": True,
        "certain": True,
    }
    offset(commits, "stock", 1, unstable=True, offset=None, status="UNKNOWN", blockers=[pending])
    group(of, "audit", "STOP", lag_hw=90_210, lag_lso=90_210, lag_ms=7_200_000, state="Empty", members=0)
    group(of, "search-index", "WARN", lag_hw=8_900, lag_lso=8_900, lag_ms=61_000)
    group(of, "replay", "REWIND", lag_hw=1_204_311, lag_lso=1_204_311, lag_ms=None)
    for n in range(14):
        name = spark(n)
        group(of, name, "OK" if n else "UNKNOWN", members=None, state="Empty")
    for n in range(20):
        group(of, f"clicks-{n}", lag_lso=n * 17, lag_hw=n * 17, lag_ms=n * 120)
    episode(of, "payments-ledger-7")
    episode(of, "orders-gateway-0", cause="takeover", confidence="certain", waited=[], lost=[])
    episode(
        of,
        "inventory-sync-stuck-3",
        outcome="open",
        released_ms=None,
        resumed_ms=None,
        closed_ms=None,
        records_released=None,
        lost=[],
        lost_complete=False,
        resumed_by="",
    )
    episode(
        of, "orders-gateway-2", outcome="not_resumed", resumed_ms=None, resumed_by="", cause="admin_fence"
    )
    episode(
        of, "connect-9", outcome="unseen", released_ms=None, resumed_ms=None, resumed_by="", cause="abort"
    )
    seed.transaction(
        of,
        "hangs-elsewhere",
        TransactionState.COMPLETE_ABORT,
        producer_id=4017,
        partitions={},
        log_offset=24_900,
    )
    findings(of)


def findings(of: Cluster) -> None:
    """Let rules have found something about a partition, and about a group that follows from it."""
    hanging = seed.finding(
        of,
        "partition:payments-0",
        "critical",
        rule="hanging",
        summary="payments-0 has a hanging transaction: its coordinator will not complete it",
        evidence="read_committed consumers cannot read up to 1,770 records after it",
        next_step="Write an abort marker.",
        since_ms=seed.now_ms() - 712_000,
    )
    stalled = seed.finding(
        of,
        "group:billing",
        "warning",
        rule="group_stalled",
        summary="billing is blocked at the LSO of payments-0 and payments-1",
        evidence="payments-0 at 48,211, payments-1 at 48,211",
        next_step="End the transactions it waits for.",
        since_ms=seed.now_ms() - 700_000,
    )
    about = {"rule": hanging.rule, "subject": hanging.subject, "owner": "Payments"}
    row = seed.grouped(of, hanging, stalled, severity="critical", **about)
    seed.incident(of, closed_ms=seed.now_ms())
    seed.grouped(of, None, stalled, cause_over_ms=seed.now_ms())
    note = {"kind": "note", "actor": "ada", "text": "Its producer was restarted.\nTicket 4411."}
    row.events.create(at_ms=seed.now_ms(), **note)


def many(of: Cluster, partitions: int) -> None:
    """Fill a cluster with partitions, one in forty of them held."""
    watched(of)
    now = seed.now_ms()
    kept = json.dumps([[now - n * 5_000, 9_000, 9_000 + n] for n in range(60, -1, -1)])
    rows = []
    for n in range(partitions):
        held = n % 40 == 0
        rows.append(
            PartitionRecord(
                cluster=of,
                topic=f"topic-{n % 100}",
                partition=n // 100,
                leader=1,
                replicas=[1, 2, 3],
                log_start=0,
                lso=9_000,
                high_watermark=9_000 + n % 7 + 1_000 * held,
                seen_ms=now,
                ends=kept,
                pinned_ms=now - n * 1_000 if held else None,
                verdict="open" if held else "clear",
                rev=1,
            )
        )
    PartitionRecord.objects.bulk_create(rows, batch_size=500)
    PinRecord.objects.bulk_create(
        PinRecord(
            cluster=of,
            topic=row.topic,
            partition=row.partition,
            producer_id=7_000 + n,
            producer_epoch=1,
            start_offset=9_000,
            last_sequence=1,
            last_timestamp_ms=now,
            first_seen_ms=now,
            seen_ms=now,
            transactional_id=f"orders-gateway-{n}",
            verdict="open",
            ground="owned",
        )
        for n, row in enumerate(row for row in rows if row.pinned_ms)
    )


def owner(match: str, *, runbook: str = "") -> Owner:
    """Return an owner called Payments."""
    return Owner(match, "Payments", "#payments-oncall", runbook)


def owned(config: Config, *owners: Owner) -> Config:
    """Return a configuration with owners."""
    return replace(config, owners=owners)
