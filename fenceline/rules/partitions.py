"""Rules about partitions: the transactions that block their last stable offsets, and their ends.

`Blocks` counts the readers that an open transaction blocks, with start and end, in one way for all rules.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, Finding, Severity, TransactionState
from fenceline.findings import Impact, of_block, worst_severity
from fenceline.formatting import count_noun, format_clock, list_names, rough_count
from fenceline.grouping import grouped
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, Pin, VerdictReason
from fenceline.limits import Limits
from fenceline.rules.rule import claim
from fenceline.snapshot import OpenTransactionFacts, PinnedPartition, Snapshot, usual_ms
from fenceline.spark.queries import SourcePosition
from fenceline.text import verdict_reason

_by_offset = attrgetter("start_offset")
#: Topic and partition number.
Where = tuple[str, int]


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

    The severity depends on the blocked readers (`fenceline.findings.of_block`). It is at least a
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
    named = f" ({pin.transactional_id})" if pin.transactional_id else ""
    producer = f"producer id {pin.producer_id}{named}, epoch {pin.producer_epoch}"
    return f"{producer}, open at offset {pin.start_offset:,}: {verdict_reason(pin.ground)}"


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


def waits_since(position: SourcePosition, held: PinnedPartition) -> int | None:
    """Return since when a position is at a stuck LSO; None if it is not, or has read past it."""
    if position.position != held.lso or held.high_watermark <= held.lso:
        return None
    return max(held.pinned_ms, position.stands_ms or 0)


class Blocks:
    """The blocked readers of one snapshot, looked up once for all findings of a rule."""

    def __init__(self, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> None:
        self._usual = snapshot.usual
        self._now_ms, self._limits = now_ms, limits
        self._owners = {transaction.transactional_id: transaction for transaction in snapshot.transactions}
        pinned = {(partition.topic, partition.partition): partition for partition in snapshot.partitions}
        self._readers = grouped(_readers(snapshot, pinned))
        #: Partitions by the transactional id of their first transaction.
        self._first_in = grouped((first_id(partition), partition) for partition in snapshot.partitions)

    def of_partition(self, partition: PinnedPartition) -> Severity:
        """Return the severity of a blocked partition; its first transaction sets the deadline."""
        since = self._readers.get((partition.topic, partition.partition), ())
        return self._severity(
            partition.pinned_ms, since, partition.uncommitted_backlog, [first_id(partition)]
        )

    def of_transaction(self, transaction: OpenTransactionFacts) -> Severity:
        """Return the severity of an open transaction's block, in partitions where it is the first."""
        blocked = self._first_in.get(transaction.transactional_id, ())
        since = [ms for part in blocked for ms in self._readers.get((part.topic, part.partition), ())]
        begun_ms = self._now_ms if transaction.started_ms is None else transaction.started_ms
        return self._severity(
            begun_ms, since, sum(part.uncommitted_backlog for part in blocked), [transaction.transactional_id]
        )

    def of_reader(self, since_ms: int, records: int, names: Collection[str]) -> Severity:
        """Return the severity of one group's or query's block; never less than a warning.

        `names` are the transactional ids that block it; "" is an unknown one.
        """
        return worst_severity(
            [Severity.WARNING, self._severity(since_ms, [since_ms], records, names or [""])]
        )

    def _severity(
        self, since_ms: int, blocked: Sequence[int], records: int, names: Collection[str]
    ) -> Severity:
        owners = [self._owners.get(name) for name in names]
        ends = [self._ends_ms(name, owner) for name, owner in zip(names, owners, strict=True)]
        impact = Impact(
            since_ms=since_ms,
            readers=len(blocked),
            blocked_ms=min(blocked, default=None),
            records=records,
            ends_ms=max((ms for ms in ends if ms is not None), default=None) if None not in ends else None,
            is_usual=all(owner is not None and self._is_usual(owner) for owner in owners),
        )
        return of_block(impact, now_ms=self._now_ms, limits=self._limits)

    def _is_usual(self, owner: OpenTransactionFacts) -> bool:
        longest_ms = usual_ms(self._usual.get(owner.application), self._limits)
        if longest_ms is None or owner.started_ms is None or owner.state is not TransactionState.ONGOING:
            return False
        return self._now_ms - owner.started_ms <= longest_ms

    def _ends_ms(self, name: str, owner: OpenTransactionFacts | None) -> int | None:
        """Return when a coordinator ends a transaction by itself; None if none is known to."""
        if owner is None:
            # A known id that is not among the transactions open for some seconds has just begun, or ended.
            return self._now_ms if name else None
        endless = (
            owner.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS or owner.state is not TransactionState.ONGOING
        )
        if endless or owner.started_ms is None:
            return None
        ends_ms = owner.started_ms + owner.timeout_ms
        return None if self._now_ms - ends_ms > self._limits.late_grace_s * 1_000 else ends_ms


def names_of(blockers: Iterable[GroupBlocker]) -> Collection[str]:
    """Return the distinct transactional ids of blockers; "" for an unknown one."""
    return {blocker.transactional_id for blocker in blockers}


def first_id(partition: PinnedPartition) -> str:
    """Return the transactional id of the first transaction in a partition, "" if unknown."""
    first = min(partition.pins, key=_by_offset, default=None)
    return "" if first is None else first.transactional_id


def _readers(snapshot: Snapshot, pinned: Mapping[Where, PinnedPartition]) -> Iterator[tuple[Where, int]]:
    """Yield the places of a group or a query at the LSO of a pinned partition, and since when."""
    for group in snapshot.groups:
        for offset in group.offsets:
            where = offset.topic, offset.partition
            is_there = offset.waiting is Waiting.PROBABLY and offset.waiting_ms is not None
            if is_there and where in pinned:
                yield where, max(pinned[where].pinned_ms, offset.waiting_ms or 0)
    for query in snapshot.queries:
        for at in query.positions:
            held = pinned.get((at.topic, at.partition))
            if held is not None and (since_ms := waits_since(at, held)) is not None:
                yield (at.topic, at.partition), since_ms
