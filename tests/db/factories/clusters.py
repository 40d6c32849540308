"""A cluster with its collectors, and rows of what they observed, for tests of evaluation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import F

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import (
    Cluster,
    Collector,
    GapRecord,
    Group,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Position,
    Recent,
    Tally,
    Transaction,
    TransitionRecord,
)
from dashboard.runtime import retention
from dashboard.runtime.leases import Lease
from fenceline.facts import Confidence, Transition, TransitionKind, TransitionReason
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from fenceline.limits import Retention
from fenceline.series import histograms
from tests.db.conftest import NOW_MS
from tests.unit.factories import transition_of

ALL_COLLECTORS = ("transaction_state", "partitions", "groups", "reconcile")
HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def prod() -> Cluster:
    return Cluster.objects.get(name="prod")


def collectors(*names: str, seen_ms: int = NOW_MS) -> None:
    """Make collectors, or all of them, that have polled everything up to an instant."""
    for name in names or ALL_COLLECTORS:
        Collector.objects.update_or_create(
            cluster=prod(),
            name=name,
            defaults={"seen_through_ms": seen_ms, "since_ms": 0, "expires_at": "2026-01-01T00:00Z"},
        )


def complete_next_polls() -> None:
    """Advance every collector to a further complete poll."""
    Collector.objects.update(seen_through_ms=F("seen_through_ms") + 1)


def prune_all(lease: Lease, keep: Retention, now_ms: int = NOW_MS) -> int:
    """Delete all that is old, portion by portion; return how many they were."""
    portions = 0
    while retention.prune(lease, keep, now_ms=now_ms):
        portions += 1
    return portions


def evaluate_polls(lease: Lease, now_ms: int = NOW_MS) -> None:
    """Evaluate three polls of the same facts: what is critical opens with the third at the latest."""
    reader = SnapshotReader("prod")
    for _ in range(3):
        evaluate_rules.evaluate_cluster(lease, reader, now_ms=now_ms)
        complete_next_polls()


def position(partition: int = 3, *, ahead_ms: int | None = 0, since_ms: int = NOW_MS - HOUR_MS) -> None:
    Position.objects.create(
        cluster=prod(),
        topic="__transaction_state",
        partition=partition,
        next_offset=10,
        end_offset=10,
        topic_id="topic-1",
        since_ms=since_ms,
        clock_ms=ahead_ms,
    )


def gap(source: str, scope: str = "cluster", *, since_ms: int = NOW_MS) -> GapRecord:
    return GapRecord.objects.create(
        cluster=prod(), source=source, scope=scope, since_ms=since_ms, reason=f"{source} cannot see {scope}"
    )


def transaction(name: str = "payments-7", **columns: Any) -> Transaction:
    values = {
        "application": "payments",
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 0,
        "timeout_ms": 600_000,
        "started_ms": NOW_MS - 120_000,
        "updated_ms": NOW_MS - 120_000,
        "partitions": '[["orders",[0]]]',
        "partition_count": 1,
        "client_version": 2,
        "log_partition": 3,
        "log_offset": 9,
        "rev": 1,
        **columns,
    }
    return Transaction.objects.create(
        cluster=prod(), key=key_of(name.encode()), transactional_id=name, **values
    )


def partition(
    topic: str = "orders", number: int = 0, *, verdict: str = "open", leader: int | None = 1
) -> None:
    PartitionRecord.objects.create(
        cluster=prod(),
        topic=topic,
        partition=number,
        leader=leader,
        log_start=0,
        lso=812,
        high_watermark=5_812,
        seen_ms=NOW_MS,
        pinned_ms=None if verdict == "clear" else NOW_MS - 120_000,
        verdict=verdict,
        rev=1,
    )


def lso_blocker(
    topic: str = "orders", number: int = 0, *, name: str = "", verdict: str, ground: str
) -> PinRecord:
    return PinRecord.objects.create(
        cluster=prod(),
        topic=topic,
        partition=number,
        producer_id=7,
        producer_epoch=0,
        start_offset=812,
        last_sequence=5,
        last_timestamp_ms=0,
        first_seen_ms=NOW_MS - 120_000,
        seen_ms=NOW_MS,
        transactional_id=name,
        verdict=verdict,
        ground=ground,
    )


def blocked_group(
    name: str = "billing", *, blockers: Sequence[Mapping[str, Any]] = (), **columns: Any
) -> GroupOffset:
    """Return the offset of a group that is blocked in `orders-0`."""
    row = Group.objects.create(
        cluster=prod(),
        key=key_of(name.encode()),
        group_id=name,
        family=name,
        coordinator=2,
        log_partition=7,
        status="STALL",
        blocked=1,
        seen_ms=NOW_MS,
        rev=1,
    )
    values = {"waiting": "probably", "waiting_ms": NOW_MS - 120_000, **columns}
    return GroupOffset.objects.create(
        group=row,
        topic="orders",
        partition=0,
        offset=812,
        lso=812,
        high_watermark=5_812,
        status="STALL",
        blockers=list(blockers),
        **values,
    )


def counters(
    application: str = "payments",
    *,
    at_ms: int = NOW_MS,
    span_s: int = 60,
    open_ms: int = 100,
    shard: int = 0,
    **counts: int,
) -> None:
    times = {histograms.bucket_of(open_ms): counts.get("commit", 0)}
    Tally.objects.create(
        cluster=prod(),
        application=application,
        span_s=span_s,
        start_ms=at_ms - at_ms % (span_s * 1_000),
        shard=shard,
        counts=json.dumps(counts),
        open_times=histograms.pack_histogram(times),
        marker_times="",
    )


def transition(
    kind: TransitionKind, name: str, ago_s: float, *, offset: int, application: str = "payments"
) -> TransitionRecord:
    """Return a transition of an id, `ago_s` by its coordinator's clock."""
    return TransitionRecord.objects.create(
        cluster=prod(),
        rev=1,
        key=key_of(name.encode()),
        transactional_id=name,
        application=application,
        kind=kind.value,
        confidence=Confidence.CERTAIN.value,
        reason=TransitionReason.BROKER_IN_TIME.value,
        at_ms=NOW_MS - int(ago_s * 1_000),
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        log_partition=3,
        log_offset=offset,
        topic_id="topic-1",
    )


def recent_transitions(name: str, *steps: tuple[TransitionKind, int]) -> None:
    """Store the last transitions of an id, oldest first, each a kind and the offset of its record."""
    of_id = {"at_ms": NOW_MS, "producer_id": 7, "producer_epoch": 1, "previous_epoch": 1, "open_ms": 1}
    reason = TransitionReason.BROKER_LATE
    _keep_recent(name, *(transition_of(kind, reason=reason, offset=at, **of_id) for kind, at in steps))


def recent_end(name: str, kind: TransitionKind, *, producer_id: int, started_ms: int) -> None:
    """Store one end as the history of an id: of the transaction that began at that instant."""
    at_ms = started_ms + 50
    _keep_recent(name, transition_of(kind, at_ms=at_ms, completed_ms=at_ms, producer_id=producer_id))


def _keep_recent(name: str, *oldest_first: Transition) -> None:
    packed = transition_ring.pack_ring([transition_ring.pack_entry(each) for each in oldest_first[::-1]])
    Recent.objects.create(cluster=prod(), key=key_of(name.encode()), packed=packed)
