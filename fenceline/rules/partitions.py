"""Rules about partitions: what holds back their last stable offsets, and whether anybody will end it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline.explanations import verdict_reason
from fenceline.facts import Finding, Severity
from fenceline.formatting import count_noun, format_clock, list_names, rough_count
from fenceline.kafka.partitions import PartitionVerdict, Pin, VerdictReason
from fenceline.limits import Limits
from fenceline.rules.blocking import Blocks
from fenceline.severity import worst_severity
from fenceline.snapshot import PinnedPartition, Snapshot


def hanging(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield partitions with a transaction that no coordinator owns: nobody will ever end it."""
    for each in snapshot.partitions:
        pins = [pin for pin in each.pins if pin.verdict is PartitionVerdict.HANGING]
        if pins:
            yield Finding(
                rule="hanging",
                cluster=snapshot.cluster,
                subject=f"partition:{each}",
                severity=Severity.CRITICAL,
                since_ms=min(pin.first_seen_ms for pin in pins),
                summary=f"{each} has a hanging transaction: its coordinator will not complete it",
                evidence=f"{'; '.join(map(_accusation, pins[:3]))}; {_held(each)}",
                next_step=_abort(each, pins),
                affected=_affected(snapshot, each),
            )


def lso_pinned(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield partitions whose LSO has been stuck below the high watermark for `limits.lso_pinned_s`.

    As bad as what it keeps from its readers (`fenceline.severity.of_block`); never less than a warning where
    nobody is known who holds it.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for each in snapshot.partitions:
        if now_ms - each.pinned_ms <= limits.lso_pinned_s * 1_000:
            continue
        least = Severity.WARNING if each.verdict is PartitionVerdict.UNKNOWN else Severity.INFO
        yield Finding(
            rule="lso_pinned",
            cluster=snapshot.cluster,
            subject=f"partition:{each}",
            severity=worst_severity([least, blocks.of_partition(each)]),
            since_ms=each.pinned_ms,
            summary=f"The LSO of {each} has been stuck at {each.lso:,} since {format_clock(each.pinned_ms)}",
            evidence=f"{_held(each)}; {_blocker(each.pins)}",
            next_step=_next_step(each),
            affected=_affected(snapshot, each),
        )


def _held(each: PinnedPartition) -> str:
    # Markers count as offsets too, so this is the most there can be.
    return (
        f"read_committed consumers cannot read up to {rough_count(each.uncommitted_backlog)} records after it"
    )


def _accusation(pin: Pin) -> str:
    return f"{_producer(pin)}, open at offset {pin.start_offset:,}: {verdict_reason(pin.ground)}"


def _producer(pin: Pin) -> str:
    named = f" ({pin.transactional_id})" if pin.transactional_id else ""
    return f"producer id {pin.producer_id}{named}, epoch {pin.producer_epoch}"


def _blocker(pins: Sequence[Pin]) -> str:
    if not pins:
        return "the transaction that blocks it is not known"
    first = min(pins, key=lambda pin: pin.start_offset)
    more = f"; {count_noun(len(pins) - 1, 'more transaction')} behind it" if len(pins) > 1 else ""
    name = f"{first.transactional_id} ({_producer_id(first)})" if first.transactional_id else _producer(first)
    return f"blocked by {name}, which is {first.verdict}: {verdict_reason(first.ground)}{more}"


def _producer_id(pin: Pin) -> str:
    return f"producer id {pin.producer_id}, epoch {pin.producer_epoch}"


def _next_step(each: PinnedPartition) -> str:
    if each.verdict is PartitionVerdict.HANGING:
        return "It hangs: abort it in this partition, as its own finding describes."
    owners = sorted({pin.transactional_id for pin in each.pins if pin.transactional_id})
    if each.verdict is PartitionVerdict.UNKNOWN or not owners:
        return _ASK.get(min(each.pins, key=_by_offset).ground, _LOOK) if each.pins else _LOOK
    return f"See {list_names(owners)}: once it ends, the LSO advances."


def _by_offset(pin: Pin) -> int:
    return pin.start_offset


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


def _abort(each: PinnedPartition, pins: Sequence[Pin]) -> str:
    first = min(pins, key=_by_offset)
    return (
        f"Make sure that its producer is gone, then abort it in {each} at offset {first.start_offset}: "
        "“Abort hanging transaction…” does it."
    )


def _affected(snapshot: Snapshot, each: PinnedPartition) -> tuple[str, ...]:
    where = each.topic, each.partition
    groups = [
        group.group_id
        for group in snapshot.groups
        if any(offset.waiting and (offset.topic, offset.partition) == where for offset in group.offsets)
    ]
    queries = [
        query.subject
        for query in snapshot.queries
        if any((at.topic, at.partition, at.position) == (*where, each.lso) for at in query.positions)
    ]
    return (*(f"group:{name}" for name in groups), *queries)
