"""Rules about partitions: the transactions that block their last stable offsets, and their ends."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from fenceline.facts import Finding, Severity
from fenceline.findings.severity import worst_severity
from fenceline.formatting import count_noun, format_clock, list_names, rough_count
from fenceline.kafka.partitions import PartitionVerdict, Pin, VerdictReason
from fenceline.limits import Limits
from fenceline.rules.blocking import Blocks
from fenceline.rules.rule import claim
from fenceline.snapshot import PinnedPartition, Snapshot
from fenceline.text.explanations import verdict_reason

_by_offset = attrgetter("start_offset")


def hanging(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield partitions with a transaction without a coordinator: it will never end by itself."""
    for partition in snapshot.partitions:
        pins = [pin for pin in partition.pins if pin.verdict is PartitionVerdict.HANGING]
        if pins:
            first = min(pins, key=_by_offset)
            yield claim(
                subject=f"partition:{partition}",
                severity=Severity.CRITICAL,
                since_ms=min(pin.first_seen_ms for pin in pins),
                summary=f"{partition} has a hanging transaction: its coordinator will not complete it",
                evidence=f"{'; '.join(map(_accusation, pins[:3]))}; {_held(partition)}",
                next_step=(
                    "Make sure that its producer is gone, then abort it in "
                    f"{partition} at offset {first.start_offset}: “Abort hanging transaction…” does it."
                ),
                affected=_affected(snapshot, partition),
                instance=f"{first.producer_id}@{first.start_offset}",
            )


def lso_pinned(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield partitions whose LSO has been stuck below the high watermark for `limits.lso_pinned_s`.

    The severity depends on the blocked readers (`fenceline.findings.severity.of_block`). It is at least a
    warning without a known owner of the transaction.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for partition in snapshot.partitions:
        if now_ms - partition.pinned_ms <= limits.lso_pinned_s * 1_000:
            continue
        least = Severity.WARNING if partition.verdict is PartitionVerdict.UNKNOWN else Severity.INFO
        yield claim(
            subject=f"partition:{partition}",
            severity=worst_severity([least, blocks.of_partition(partition)]),
            since_ms=partition.pinned_ms,
            summary=(
                f"The LSO of {partition} has been stuck at {partition.lso:,} since "
                f"{format_clock(partition.pinned_ms)}"
            ),
            evidence=f"{_held(partition)}; {_blocker(partition.pins)}",
            next_step=_next_step(partition),
            affected=_affected(snapshot, partition),
            instance=f"LSO {partition.lso}",
        )


def _held(partition: PinnedPartition) -> str:
    # Markers count as offsets too, so this is the maximum.
    backlog = rough_count(partition.uncommitted_backlog)
    return f"read_committed consumers cannot read up to {backlog} records after it"


def _accusation(pin: Pin) -> str:
    return f"{_producer(pin)}, open at offset {pin.start_offset:,}: {verdict_reason(pin.ground)}"


def _producer(pin: Pin) -> str:
    named = f" ({pin.transactional_id})" if pin.transactional_id else ""
    return f"producer id {pin.producer_id}{named}, epoch {pin.producer_epoch}"


def _blocker(pins: Sequence[Pin]) -> str:
    if not pins:
        return "the transaction that blocks it is not known"
    first = min(pins, key=_by_offset)
    more = f"; {count_noun(len(pins) - 1, 'more transaction')} behind it" if len(pins) > 1 else ""
    return f"blocked by {first.producer}, which is {first.verdict}: {verdict_reason(first.ground)}{more}"


def _next_step(partition: PinnedPartition) -> str:
    if partition.verdict is PartitionVerdict.HANGING:
        return "It hangs: abort it in this partition, as its own finding describes."
    owners = sorted({pin.transactional_id for pin in partition.pins if pin.transactional_id})
    if partition.verdict is PartitionVerdict.UNKNOWN or not owners:
        return _ASK.get(min(partition.pins, key=_by_offset).ground, _LOOK) if partition.pins else _LOOK
    return f"See {list_names(owners)}: once it ends, the LSO advances."


_LOOK = (
    "See System for what is unavailable, and run kafka-transactions.sh describe-producers for this partition."
)
_ASK = {
    VerdictReason.MAY_BE_HIDDEN: (
        "Grant DESCRIBE on every transactional id, or set sees_all_transactional_ids = true if nothing is "
        "hidden: then Fenceline can decide whether it hangs."
    ),
    VerdictReason.SEEN_ONCE: "Wait for the next poll.",
}


def _affected(snapshot: Snapshot, partition: PinnedPartition) -> tuple[str, ...]:
    where = partition.topic, partition.partition
    groups = [
        group.group_id
        for group in snapshot.groups
        if any(offset.waiting and (offset.topic, offset.partition) == where for offset in group.offsets)
    ]
    queries = [
        query.subject
        for query in snapshot.queries
        if any((at.topic, at.partition, at.position) == (*where, partition.lso) for at in query.positions)
    ]
    return (*(f"group:{name}" for name in groups), *queries)
