"""Abort marker: WriteTxnMarkers(ABORT) to the leader of a partition, for a transaction without an owner.

A coordinator that still owns it would never learn of the marker, and its client could still commit the rest
(docs/design/kafka.md §1.1). So the action requires a recent verdict *hanging*.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fenceline.formatting import count_noun
from fenceline.kafka.partitions import PartitionVerdict, Pin
from fenceline.kafka.partitions import VerdictReason as Why
from fenceline.kafka.reconcile import Described, NotDescribed
from fenceline.plans.impact import HeldLog, compute_reach, own_effects
from fenceline.plans.plan import PlanStep, Refusal, RefusalReason, Seen, SubjectPlan
from fenceline.plans.producers import DECIDED, LIVELY_MS
from fenceline.text import verdict_reason

_HIDDEN = (
    "grant DESCRIBE on every transactional id, or set sees_all_transactional_ids = true in the "
    "configuration if nothing is hidden: then Fenceline can determine whether it hangs"
)


@dataclass(frozen=True, slots=True)
class Marked:
    """One partition and its open transactions, just read from its leader and the coordinators."""

    log: HeldLog
    leader: int | None = None
    leader_epoch: int | None = None
    #: Transactions that were open at the same offset before and after asking the coordinators.
    pins: tuple[Pin, ...] = ()
    #: By transactional id of its producers: the coordinators' descriptions.
    descriptions: Mapping[str, Described | NotDescribed] = field(default_factory=dict)
    #: The command that grants the right to see hidden ids.
    remedy: str = ""
    #: By producer id: since when no record was observed.
    silent_since_ms: Mapping[int, int] = field(default_factory=dict)


def plan_markers(
    marked: Marked, start_offset: int | None, *, ended: AbstractSet[int] = frozenset()
) -> Sequence[SubjectPlan]:
    """Plan abort markers in a partition: for the transaction at `start_offset`, or for all.

    For all, it takes the hanging ones in turn. If none hangs, it takes every open one, with refusals. `ended`
    are producer ids whose transactions there end before.
    """
    pins = sorted(marked.pins, key=lambda pin: pin.start_offset)
    if start_offset is not None:
        pins = [pin for pin in pins if pin.start_offset == start_offset]
    hanging = [pin for pin in pins if pin.verdict is PartitionVerdict.HANGING]
    if not pins:
        return [_nothing(marked, start_offset)]
    if not hanging:
        return [_refused(marked, pin) for pin in pins]
    plans = []
    for pin in hanging:
        plans.append(_aborted(marked, pin, ended))
        ended = ended | {pin.producer_id}
    return plans


def marker_warnings(marked: Sequence[Marked], *, now_ms: int) -> Iterator[str]:
    """Yield warnings for the operator before hanging transactions are aborted."""
    for partition in marked:
        for pin in partition.pins:
            since_ms = partition.silent_since_ms.get(pin.producer_id)
            if pin.verdict is PartitionVerdict.HANGING and (
                since_ms is None or now_ms - since_ms < LIVELY_MS
            ):
                yield (
                    f"Make sure that {pin.producer} is gone: it may have written to {partition.log.where} "
                    "within the last minute, and what it writes after the marker hangs again."
                )


def _aborted(marked: Marked, pin: Pin, ended: AbstractSet[int]) -> SubjectPlan:
    reach = compute_reach([marked.log], frozenset({pin.producer_id}), ended)
    seen = _seen(marked, pin)
    step = PlanStep(
        "WriteTxnMarkers",
        f"To the leader of {marked.log.where} (broker {marked.leader}): ABORT for producer id "
        f"{pin.producer_id}, epoch {pin.producer_epoch}, with coordinator epoch {seen['coordinator_epoch']}.",
    )
    title, effects = _title(marked, pin.start_offset), own_effects("records_lost", reach.own, "aborted")
    return reach.plan(f"partition:{marked.log.where}", title, seen, [step], (*reach.effects, *effects))


def _refused(marked: Marked, pin: Pin) -> SubjectPlan:
    reach = compute_reach([marked.log], frozenset({pin.producer_id}))
    title, seen, refusals = _title(marked, pin.start_offset), _seen(marked, pin), (_refusal(marked, pin),)
    return reach.plan(f"partition:{marked.log.where}", title, seen, refusals=refusals)


def _refusal(marked: Marked, pin: Pin) -> Refusal:
    where, name = f"{marked.log.where} at offset {pin.start_offset:,}", pin.transactional_id
    described = marked.descriptions.get(name)
    if pin.ground is Why.MAY_BE_HIDDEN:
        remedy = f" {marked.remedy}" if marked.remedy else ""
        words = f"Whether {where} hangs is unknown: {verdict_reason(pin.ground)}. To see: {_HIDDEN}.{remedy}"
        return Refusal(RefusalReason.IDS_HIDDEN, words)
    if pin.verdict is PartitionVerdict.UNKNOWN:
        words = (
            f"Whether {where} hangs is unknown: {verdict_reason(pin.ground)}. Make a plan again in a moment."
        )
        return Refusal(RefusalReason.NOT_SEEN, words)
    if isinstance(described, Described) and described.state in DECIDED:
        words = (
            f"{name} is in {described.state}: its coordinator has decided to {DECIDED[described.state]} it "
            f"and still writes its marker to {where}. Bring back what keeps it from that: the leader of "
            f"{marked.log.where}, or the coordinator."
        )
        return Refusal(RefusalReason.PREPARE, words)
    words = (
        f"The coordinator still owns this: {name} has {where} open. A marker would end it there alone, and "
        "its client could still commit the rest. Fence the id instead."
    )
    return Refusal(RefusalReason.NOT_HANGING, words)


def _nothing(marked: Marked, start_offset: int | None) -> SubjectPlan:
    log = marked.log
    seen: Seen = {"topic": log.where.topic, "partition": log.where.partition, "start_offset": start_offset}
    if log.unseen:
        refusal = Refusal(
            RefusalReason.NOT_SEEN, f"What is open in {log.where} cannot be seen: {log.unseen}."
        )
    elif start_offset is not None:
        others = [opened.start_offset for opened in log.opened if opened.start_offset is not None]
        more = f" {count_noun(len(others), 'transaction')} of other offsets are open there." if others else ""
        words = f"No transaction is open in {log.where} at offset {start_offset:,}: it has ended.{more}"
        refusal = Refusal(RefusalReason.ALREADY_ENDED, words)
    else:
        refusal = Refusal(RefusalReason.NOTHING_OPEN, f"No transaction is open in {log.where}.")
    return SubjectPlan(f"partition:{log.where}", _title(marked, start_offset), seen, refusals=(refusal,))


def _seen(marked: Marked, pin: Pin) -> Seen:
    return {
        **pin.key._asdict(),
        "leader": marked.leader,
        "leader_epoch": marked.leader_epoch,
        # The last known coordinator epoch; a leader takes any that is not older, and 0 if it has none.
        "coordinator_epoch": max(0, pin.coordinator_epoch or 0),
    }


def _title(marked: Marked, start_offset: int | None) -> str:
    return str(marked.log.where) if start_offset is None else f"{marked.log.where} at offset {start_offset:,}"
