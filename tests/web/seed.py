"""Rows for pages to show: clusters that are calm, busy, blind, or new."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from django.db.models import F

from dashboard.models import (
    Cluster,
    Collector,
    FindingRecord,
    GapRecord,
    Incident,
    IncidentFinding,
    Position,
    StateCount,
    Transaction,
)
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.kafka.applications import application_of
from fenceline.kafka.transactional_ids import key_of

#: Ids that break pages which do not escape.
NASTY = (
    b"<script>alert(1)</script>",
    b"\"quoted\" & 'quoted'",
    b"new\nline\x00nul\x1b[31m",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd".encode(),
    b"a/b/../c?d=e#f%2Fg",
    b"..",
    b".",
    b"~" + b"0" * 64,
    b"back\\slash",
    b"\xff\xfe not UTF-8",
    b"{{ 7|add:7 }}{% csrf_token %}",
)
LONG = b"long-" + b"x" * 32_000


def now_ms() -> int:
    """Return the present, in milliseconds."""
    return time.time_ns() // 1_000_000


def cluster(name: str = "prod") -> Cluster:
    """Return a configured cluster."""
    return Cluster.objects.get_or_create(name=name, defaults={"rev": 1})[0]


def collector(of: Cluster, name: str = "transaction_state", **fields: object) -> Collector:
    """Return a collector that is alive and up to date, but for `fields`."""
    now = datetime.now(UTC)
    defaults: dict[str, object] = {
        "token": 7,
        "holder": "4017-7f21c0",
        "expires_at": now + timedelta(hours=1),
        "seen_through_ms": now_ms() - 200,
        "behind": 0,
        "records": 1_204_311,
        "rate": 512.4,
        "since_ms": now_ms() - 3_600_000,
    }
    return Collector.objects.create(cluster=of, name=name, **(defaults | fields))


def seen(of: Cluster) -> None:
    """Let a cluster be watched and judged, up to now."""
    collector(of)
    collector(of, "judge", behind=None, records=0, rate=0)
    for partition in range(50):
        Position.objects.create(
            cluster=of,
            topic="__transaction_state",
            partition=partition,
            next_offset=24_000 + partition * 7,
            end_offset=24_000 + partition * 7,
            topic_id="Zr8RkY4nQ0m1w2p3c4v5bg",
        )


def transaction(
    of: Cluster,
    raw: bytes | str = b"orders-gateway-1",
    state: TransactionState = TransactionState.ONGOING,
    *,
    age_ms: int = 2_000,
    partitions: dict[str, list[int]] | None = None,
    **fields: object,
) -> Transaction:
    """Return a row of one transactional id that began `age_ms` ago."""
    name = raw.encode() if isinstance(raw, str) else raw
    named = {"orders": [0, 1]} if partitions is None else partitions
    begun = now_ms() - age_ms
    defaults: dict[str, object] = {
        "key": key_of(name),
        "transactional_id": text.escape_bytes(name),
        "application": application_of(text.escape_bytes(name)).application,
        "state": state.value,
        "producer_id": 2051,
        "producer_epoch": 17,
        "timeout_ms": 60_000,
        "started_ms": None if state is TransactionState.EMPTY else begun,
        "updated_ms": begun + min(age_ms, 40),
        "partitions": json.dumps(list(named.items())) if named else "",
        "partition_count": sum(map(len, named.values())),
        "client_version": 2,
        "log_partition": 7,
        "log_offset": 24_049,
        "rev": 1,
    }
    row = Transaction.objects.create(cluster=of, **(defaults | fields))
    counted(of, row.state, 1)
    return row


def counted(of: Cluster, state: str, by: int) -> None:
    """Keep the number of ids in a state, as a flush does."""
    StateCount.objects.get_or_create(cluster=of, shard=0, state=state, defaults={"n": 0})
    StateCount.objects.filter(cluster=of, shard=0, state=state).update(n=F("n") + by)


def finding(of: Cluster, subject: str, severity: str = "warning", **fields: object) -> FindingRecord:
    """Return an open finding."""
    defaults: dict[str, object] = {
        "rule": "open_too_long",
        "subject": subject,
        "fingerprint": key_of(f"{of.name}{subject}".encode()),
        "severity": severity,
        "summary": f"{subject.partition(':')[2]} has been open since 10:21:14",
        "evidence": "read_committed consumers of stock-1, stock-4 are blocked at its first record; "
        "its coordinator aborts it at 12:17:31 UTC, after 15 min",
        "next_step": "Find its producer; if that is gone, only the timeout or a fence ends it.",
        "since_ms": now_ms() - 842_000,
        "seen_at": datetime.now(UTC),
    }
    return FindingRecord.objects.create(cluster=of, **(defaults | fields))


def incident(of: Cluster, **fields: object) -> Incident:
    """Return an open incident without findings."""
    defaults: dict[str, object] = {
        "rule": "open_too_long",
        "subject": "transaction:payments-7",
        "severity": "warning",
        "opened_ms": now_ms() - 842_000,
        "impact": dict.fromkeys(("transactions", "partitions", "groups", "queries"), 1)
        | {"backlog": None, "records_lost": None},
    }
    return Incident.objects.create(cluster=of, **(defaults | fields))


def grouped(of: Cluster, cause: FindingRecord | None, *effects: FindingRecord, **fields: object) -> Incident:
    """Return an open incident of these findings."""
    row = incident(of, **fields)
    roles = [(effect, IncidentFinding.Role.EFFECT) for effect in effects]
    for found, role in [(cause, IncidentFinding.Role.CAUSE), *roles] if cause else roles:
        IncidentFinding.objects.create(
            incident=row,
            finding=found.pk,
            rule=found.rule,
            subject=found.subject,
            role=role,
            severity=found.severity,
            summary=found.summary,
            since_ms=row.opened_ms,
        )
    return row


def gap(of: Cluster, **fields: object) -> GapRecord:
    """Return an open gap of the tail."""
    defaults: dict[str, object] = {
        "source": "transaction_state",
        "scope": "cluster",
        "since_ms": now_ms() - 95_000,
        "reason": "broker 127.0.0.1:9092: connection refused. Is it running, and is bootstrap.servers right?",
    }
    return GapRecord.objects.create(cluster=of, **(defaults | fields))


def busy(of: Cluster, ids: int = 300) -> None:
    """Fill a watched cluster with ids in every state, two of which need somebody."""
    seen(of)
    done = {"partitions": {}}
    states = [TransactionState.COMPLETE_COMMIT] * 12 + [
        TransactionState.COMPLETE_ABORT,
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
    ]
    names = (
        "orders-gateway",
        "payments",
        "inventory-sync",
        "connect-cluster-jdbc-sink",
        "orders_enrich-3f9c11d2-p",
    )
    for n in range(ids):
        state = states[n % len(states)]
        extra = {} if state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT) else done
        transaction(
            of,
            f"{names[n % len(names)]}-{n}",
            state,
            age_ms=300 + n * 37,
            producer_id=2000 + n,
            producer_epoch=n % 40,
            log_partition=n % 50,
            **extra,  # type: ignore[arg-type]
        )
    stuck = {"stock": [1, 4], "stock-audit": list(range(12)), "__consumer_offsets": [17]}
    transaction(of, "inventory-sync-stuck-3", age_ms=842_000, timeout_ms=900_000, partitions=stuck)
    transaction(of, "payments-ledger-7", age_ms=3_900_000, timeout_ms=60_000, partitions={"payments": [0]})
    transaction(of, "orders-aborting", TransactionState.PREPARE_ABORT, age_ms=4_000)
    finding(of, "transaction:inventory-sync-stuck-3")
    finding(
        of,
        "transaction:payments-ledger-7",
        "critical",
        evidence="read_committed consumers of payments-0 are blocked; its timeout of 1 min passed",
        next_step="Look at its coordinator: it should have aborted this transaction.",
        since_ms=now_ms() - 3_900_000,
    )
