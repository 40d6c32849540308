"""Clusters with partitions, groups and recoveries of every kind."""

import json

from dashboard.models import Cluster, PinRecord
from fenceline.facts import TransactionState
from tests.web import factories


def busy_partitions(of: Cluster) -> None:
    """Fill a cluster with partitions, groups and recoveries of every kind, after `busy_transactions`."""
    factories.partition_collectors(of)
    _clear_partitions(of)
    hanging, late = _blocked_partitions(of)
    _replicas(of)
    _blocked_group(of, hanging, late)
    _group_past_a_blocker(of)
    _group_with_a_pending_commit(of)
    _other_groups(of)
    _recoveries(of)
    factories.transaction(
        of,
        "hangs-elsewhere",
        TransactionState.COMPLETE_ABORT,
        producer_id=4017,
        partitions={},
        log_offset=24_900,
    )
    _blocked_partition_findings(of)


def _clear_partitions(of: Cluster) -> None:
    for number in range(50):
        factories.partition(of, "__transaction_state", number, lso=24_000, high_watermark=24_000)
    for topic in ("orders", "orders_enriched", "clicks", "stock", "inventory-changes"):
        for number in range(12):
            factories.partition(
                of, topic, number, lso=9_000 + number * 811, high_watermark=9_000 + number * 811 + number % 3
            )


def _blocked_partitions(of: Cluster) -> tuple[PinRecord, PinRecord]:
    """Make partitions whose LSO is blocked, and one without a leader; return a hanging and a late blocker."""
    hanging = factories.lso_blocker(
        of,
        "payments",
        0,
        "hanging",
        age_ms=712_000,
        ground="not_its_partition",
        transactional_id="payments-ledger-7",
    )
    late = factories.lso_blocker(
        of,
        "payments",
        1,
        "late",
        age_ms=3_900_000,
        producer_id=2051,
        ground="past_timeout",
        transactional_id="payments-ledger-7",
    )
    factories.lso_blocker(
        of,
        "stock-audit",
        1,
        "open",
        age_ms=42_000,
        producer_id=2051,
        transactional_id="inventory-sync-stuck-3",
    )
    factories.lso_blocker(
        of, "stock-audit", 4, "unknown", producer_id=9001, transactional_id="", ground="may_be_hidden"
    )
    factories.partition(
        of, "lost-leader", 0, leader=None, error="broker 3: leader not available since 12:04:11 UTC"
    )
    factories.lso_blocker(
        of, "__consumer_offsets", 17, "open", producer_id=2051, transactional_id="inventory-sync-stuck-3"
    )
    return hanging, late


def _replicas(of: Cluster) -> None:
    producers = [
        factories.replica_producer(4017, 48_211, "payments-ledger-7"),
        *(factories.replica_producer(5000 + n) for n in range(8)),
    ]
    factories.replica(of, "payments", 0, 1, producers)
    factories.replica(of, "payments", 0, 2, producers[:5])
    factories.replica(of, "payments", 0, 3, error="broker 3: connection refused")


def _blocked_group(of: Cluster, hanging: PinRecord, late: PinRecord) -> None:
    now = factories.now_ms()
    billing = factories.group(
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
    factories.blocked_offset(billing, hanging, age_ms=712_000)
    factories.blocked_offset(billing, late, age_ms=3_900_000)
    factories.group_offset(billing, "orders", 3)


def _group_past_a_blocker(of: Cluster) -> None:
    past = factories.group(of, "payments-mirror", lag_lso=0, lag_hw=0)
    factories.group_offset(
        past,
        "payments",
        0,
        offset=49_981,
        high_watermark=49_981,
        waiting="reads_past",
        waiting_ms=factories.now_ms() - 90_000,
    )


def _group_with_a_pending_commit(of: Cluster) -> None:
    commits = factories.group(
        of, "inventory-sync", "UNKNOWN", unstable=1, lag_lso=None, lag_hw=None, lag_ms=None
    )
    pending = {
        "transactional_id": "inventory-sync-stuck-3",
        "producer_id": 2051,
        "pending": True,
        "certain": True,
    }
    factories.group_offset(
        commits, "stock", 1, unstable=True, offset=None, status="UNKNOWN", blockers=[pending]
    )


def _other_groups(of: Cluster) -> None:
    factories.group(
        of, "audit", "STOP", lag_hw=90_210, lag_lso=90_210, lag_ms=7_200_000, state="Empty", members=0
    )
    factories.group(of, "search-index", "WARN", lag_hw=8_900, lag_lso=8_900, lag_ms=61_000)
    factories.group(of, "replay", "REWIND", lag_hw=1_204_311, lag_lso=1_204_311, lag_ms=None)
    for n in range(14):
        name = factories.spark_group_id(n)
        factories.group(of, name, "OK" if n else "UNKNOWN", members=None, state="Empty")
    for n in range(20):
        factories.group(of, f"clicks-{n}", lag_lso=n * 17, lag_hw=n * 17, lag_ms=n * 120)


def _recoveries(of: Cluster) -> None:
    factories.recovery(of, "payments-ledger-7")
    factories.recovery(of, "orders-gateway-0", cause="takeover", confidence="certain", waited=[], lost=[])
    factories.recovery(
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
    factories.recovery(
        of, "orders-gateway-2", outcome="not_resumed", resumed_ms=None, resumed_by="", cause="admin_fence"
    )
    factories.recovery(
        of, "connect-9", outcome="unseen", released_ms=None, resumed_ms=None, resumed_by="", cause="abort"
    )


def _blocked_partition_findings(of: Cluster) -> None:
    """Make findings of a partition and of a group that it blocks, and their incidents."""
    hanging = factories.finding(
        of,
        "partition:payments-0",
        "critical",
        rule="hanging",
        summary="payments-0 has a hanging transaction: its coordinator will not complete it",
        evidence="read_committed consumers cannot read up to 1,770 records after it",
        next_step="Write an abort marker.",
        since_ms=factories.now_ms() - 712_000,
    )
    stalled = factories.finding(
        of,
        "group:billing",
        "warning",
        rule="group_stalled",
        summary="billing is blocked at the LSO of payments-0 and payments-1",
        evidence="payments-0 at 48,211, payments-1 at 48,211",
        next_step="End the transactions it waits for.",
        since_ms=factories.now_ms() - 700_000,
    )
    about = {"rule": hanging.rule, "subject": hanging.subject, "owner": "Payments"}
    row = factories.incident_of(of, hanging, stalled, severity="critical", **about)
    factories.incident(of, closed_ms=factories.now_ms())
    factories.incident_of(of, None, stalled, cause_over_ms=factories.now_ms())
    note = {"kind": "note", "actor": "ada", "text": "Its producer was restarted.\nTicket 4411."}
    row.events.create(at_ms=factories.now_ms(), **note)
