"""Snapshots for the rules' cases: facts of one cluster in which everything is visible."""

from typing import Any

from fenceline.audit.manifest import AuditMode, AuditViolation
from fenceline.facts import (
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Finding,
    TopicPartitions,
    TransactionState,
    VisibilityGap,
)
from fenceline.findings import EVERYWHERE, Sense
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, Pin, VerdictReason
from fenceline.limits import Limits
from fenceline.rules import evaluate_rules
from fenceline.snapshot import (
    BlockedGroup,
    BlockedOffset,
    CollectorStatus,
    OpenTransactionFacts,
    PinnedPartition,
    Snapshot,
)
from fenceline.spark.queries import QueryStatus, SinkBatch, SourcePosition

NOW_MS = 1_795_000_000_000
LIMITS = Limits()
HANGS = (PartitionVerdict.HANGING, VerdictReason.NO_SUCH_PRODUCER)
OWNED = (PartitionVerdict.OPEN, VerdictReason.OWNED)
HIDDEN = (PartitionVerdict.UNKNOWN, VerdictReason.MAY_BE_HIDDEN)


def ago(seconds: float) -> int:
    return NOW_MS - int(seconds * 1_000)


def collector(
    name: str,
    *senses: Sense,
    seen_s_ago: float | None = 0.5,
    error: str = "",
    scope: str = EVERYWHERE,
    unseen: tuple[str, ...] = (),
    since_s_ago: float = 3_600,
) -> CollectorStatus:
    seen = None if seen_s_ago is None else ago(seen_s_ago)
    since_ms = ago(since_s_ago)
    return CollectorStatus(name, seen, error, since_ms, frozenset(senses), scope, unseen)


TAIL = collector("transaction_state", Sense.TRANSACTIONS, Sense.HISTORY)
PARTITIONS = collector("partitions", Sense.PARTITIONS)
GROUPS = collector("groups", Sense.GROUPS)
LISTS = collector("reconcile", Sense.LISTS)
CHECKPOINTS = collector("checkpoints", Sense.QUERIES)
AUDITS = collector("audits", Sense.AUDITS)
FLINK = collector("flink", Sense.FLINK)
ALL_COLLECTORS = (TAIL, PARTITIONS, GROUPS, LISTS, CHECKPOINTS, AUDITS, FLINK)


def snapshot(**facts: Any) -> Snapshot:
    return Snapshot(cluster="prod", **{"collectors": ALL_COLLECTORS, **facts})


def findings_of(rule: str, limits: Limits = LIMITS, *, now_ms: int = NOW_MS, **facts: Any) -> list[Finding]:
    """Return what one rule finds in a snapshot of these facts."""
    found = evaluate_rules(snapshot(**facts), now_ms=now_ms, limits=limits)
    return [finding for finding in found if finding.rule == rule]


def finding_severities(rule: str, limits: Limits = LIMITS, **facts: Any) -> list[str]:
    return [finding.severity.value for finding in findings_of(rule, limits, **facts)]


def gap(source: str, scope: str = EVERYWHERE, *, since_s_ago: float = 1) -> VisibilityGap:
    return VisibilityGap(source, scope, ago(since_s_ago), f"{source} cannot see {scope}")


def transaction(
    age_s: float | None = 120,
    *,
    timeout_s: float = 600,
    state: TransactionState = TransactionState.ONGOING,
    decided_s_ago: float = 0,
    **more: Any,
) -> OpenTransactionFacts:
    return OpenTransactionFacts(
        transactional_id=more.pop("name", "payments-7"),
        state=state,
        producer_id=1,
        timeout_ms=min(int(timeout_s * 1000), TWO_PHASE_COMMIT_TIMEOUT_MS),
        started_ms=None if age_s is None else ago(age_s),
        updated_ms=ago(decided_s_ago),
        partitions=(TopicPartitions("payments", (0, 1, 2, 3)),),
        application="payments",
        **more,
    )


def lso_blocker(
    verdict: PartitionVerdict,
    ground: VerdictReason,
    *,
    start: int = 812,
    name: str = "",
    seen_s_ago: float = 90,
) -> Pin:
    return Pin(
        topic="payments",
        partition=0,
        producer_id=4_000 + start,
        producer_epoch=3,
        start_offset=start,
        last_sequence=7,
        last_timestamp_ms=0,
        coordinator_epoch=None,
        first_seen_ms=ago(seen_s_ago),
        transactional_id=name,
        verdict=verdict,
        ground=ground,
    )


def blocked_partition(*pins: Pin, pinned_s_ago: float = 90) -> PinnedPartition:
    worst = pins[0].verdict if pins else PartitionVerdict.UNKNOWN
    return PinnedPartition("payments", 0, ago(pinned_s_ago), 812, 5_812, worst, pins)


BLOCKER = GroupBlocker(4_812, transactional_id="payments-7")


def blocked_offset(
    seconds: float | None = 90,
    *blockers: GroupBlocker,
    how: Waiting | None = Waiting.PROBABLY,
    partition: int = 0,
) -> BlockedOffset:
    since_ms = None if seconds is None else ago(seconds)
    return BlockedOffset("payments", partition, 5_000, how, since_ms, blockers=blockers or (BLOCKER,))


def pending_offset(*blockers: GroupBlocker) -> BlockedOffset:
    return BlockedOffset("orders", 1, None, None, None, unstable=True, blockers=blockers)


def blocked_group(*offsets: BlockedOffset, log_pinned_s_ago: float | None = None) -> BlockedGroup:
    since_ms = None if log_pinned_s_ago is None else ago(log_pinned_s_ago)
    return BlockedGroup("billing", offsets, since_ms)


def query(**facts: Any) -> QueryStatus:
    """Return a running query, its last heartbeat a moment ago."""
    return QueryStatus(
        **{
            "ident": "q-1",
            "name": "orders",
            "checkpoint": "file:///checkpoints/orders",
            "alive": True,
            "moved_ms": ago(1),
            "planned": 17,
            "finished": 17,
            "planned_ms": ago(1),
            **facts,
        }
    )


def sink_batch(decided_s_ago: float = 11, **facts: Any) -> SinkBatch:
    """Return a batch that is decided, two transactions of it still open."""
    return SinkBatch(
        **{
            "batch_id": 17,
            "decided_ms": ago(decided_s_ago),
            "expires_ms": NOW_MS + 60_000,
            "records": 1_000,
            "open": ("orders-a", "orders-b"),
            **facts,
        }
    )


def source_position(position: int = 812, unmoved_s_ago: float | None = 90, **facts: Any) -> SourcePosition:
    """Return the position of a query in `payments-0`, which has 5,000 records after offset 812."""
    since_ms = None if unmoved_s_ago is None else ago(unmoved_s_ago)
    values = {"partition": 0, "log_start": 0, "high_watermark": 5_812, **facts}
    return SourcePosition("payments", position=position, stands_ms=since_ms, **values)


def violation(**facts: Any) -> AuditViolation:
    """Return a pipeline of a known query in which three records are missing, by counts in batch 1,203."""
    values = {"missing": 3, "duplicated": 0, "query_id": "q-1", "queries": ("query:q-1",), **facts}
    values = {"sources": ("orders",), "targets": ("enriched",), "batches": (1_203,), **values}
    mode, since_ms = values.pop("mode", AuditMode.COUNTS), values.pop("since_ms", ago(600))
    return AuditViolation("orders_enrich", mode, since_ms, **values)
