"""Partitions and their open transactions: the owner of each transaction, and what holds back the LSO.

Three answers are joined: the leader's report of a partition's producers, the coordinators' reports of the ids
with those producer ids, and a second report of the leader. A transaction that is open at the same offset
before and after was open while its coordinator answered: a coordinator names a partition before anything is
written to it, and removes it only after its marker is written. So a transaction without an owning coordinator
in between, in two consecutive polls, hangs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.compat import SLOTS, StrEnum
from fenceline.facts import OPEN_STATES, PREPARED_STATES, TWO_PHASE_COMMIT_TIMEOUT_MS, TopicPartition
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle


class Offsets(NamedTuple):
    """A partition's log start, last stable offset (LSO) and high watermark, reported by its leader."""

    log_start: int
    lso: int
    high_watermark: int
    leader: int
    #: None where the broker does not report it.
    leader_epoch: int | None = None


class ProducerState(NamedTuple):
    """One active producer of a partition, as reported by a replica (DescribeProducers, KIP-664)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    #: The newest timestamp of its records, by the producer's own clock: for display only.
    last_timestamp_ms: int
    #: The epoch of the coordinator that wrote its last marker; None before any.
    coordinator_epoch: int | None
    #: The first offset of its open transaction; None without an open transaction.
    start_offset: int | None


class PartitionVerdict(StrEnum):
    """The verdict on an open transaction of a partition, or on the partition as a whole."""

    CLEAR = "clear"
    #: Owned by a coordinator, and within its time limit.
    OPEN = "open"
    #: Owned, but past its timeout and the coordinator's next check, or stuck in Prepare*.
    LATE = "late"
    #: No coordinator owns it, so nothing will ever end it.
    HANGING = "hanging"
    #: Anything else: an unreadable source never leads to HANGING.
    UNKNOWN = "unknown"


#: From harmless to worst: a partition has the worst verdict of its transactions.
VERDICTS = (
    PartitionVerdict.CLEAR,
    PartitionVerdict.OPEN,
    PartitionVerdict.UNKNOWN,
    PartitionVerdict.LATE,
    PartitionVerdict.HANGING,
)
WORST_VERDICTS = VERDICTS[::-1]


class VerdictReason(StrEnum):
    """The reason for a verdict; `fenceline.text` puts it into words."""

    #: Its coordinator names this partition as one of the open transaction's.
    OWNED = "owned"
    #: Its coordinator takes part in a two-phase commit: the transaction never times out.
    TWO_PHASE = "two_phase"
    PAST_TIMEOUT = "past_timeout"
    STUCK_IN_PREPARE = "stuck_in_prepare"
    #: The producer id belongs to an id whose coordinator does not name this partition.
    NOT_ITS_PARTITION = "not_its_partition"
    #: No transactional id has this producer id, and none can be hidden from us.
    NO_SUCH_PRODUCER = "no_such_producer"
    #: No visible transactional id has this producer id, but ids may be hidden from us.
    MAY_BE_HIDDEN = "may_be_hidden"
    #: A coordinator, or the leader, could not be queried.
    UNSEEN = "unseen"
    #: No owner in one poll: the second poll decides.
    SEEN_ONCE = "seen_once"


@dataclass(frozen=True, **SLOTS)
class Pin:
    """An open transaction in one partition: its producer, its owner, and the verdict on it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    #: Our clock when this very transaction (partition, producer id, epoch, start) was first seen.
    first_seen_ms: int
    #: "" if no id with this producer id is known.
    transactional_id: str
    verdict: PartitionVerdict
    ground: VerdictReason
    #: Our clock when its coordinator was first seen in a Prepare* state; None in any other state.
    prepared_ms: int | None = None
    #: Our clock when any field was last found changed; None where that is not stored.
    seen_ms: int | None = None

    @property
    def key(self) -> PinKey:
        """Return the identity of this transaction across polls."""
        return PinKey(self.topic, self.partition, self.producer_id, self.producer_epoch, self.start_offset)

    @property
    def producer(self) -> str:
        """Return `payments-7 (producer id 4, epoch 1)`, without its id if that is not known."""
        producer = f"producer id {self.producer_id}, epoch {self.producer_epoch}"
        return f"{self.transactional_id} ({producer})" if self.transactional_id else producer


class PinKey(NamedTuple):
    """The identity of a partition's open transaction across polls."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int


@dataclass(frozen=True, **SLOTS)
class ProducerOwners:
    """The owners of producer ids, reported by the coordinators between two polls of the producers."""

    #: Transactional ids by producer id.
    ids: Mapping[int, str]
    #: The coordinators' descriptions of those ids.
    descriptions: Mapping[str, Described | NotDescribed]
    #: Whether every coordinator reported its ids with these producer ids.
    whole: bool
    #: Whether transactional ids may exist that we cannot see.
    may_hide: bool


#: Kafka's default interval between checks for timed-out transactions, for brokers that do not report it.
DEFAULT_CLEANUP_MS = 10_000
DEFAULT_LEAST_GRACE_MS = 15_000


def grace_ms(cleanup_ms: int = DEFAULT_CLEANUP_MS, least_ms: int = DEFAULT_LEAST_GRACE_MS) -> int:
    """Return how long past its timeout a transaction, or its end, may last before it is late.

    `cleanup_ms`: `transaction.abort.timed.out.transaction.cleanup.interval.ms` of the coordinators.
    """
    return max(least_ms, cleanup_ms * 3 // 2)


def open_in_both(before: Iterable[ProducerState], after: Iterable[ProducerState]) -> Iterable[ProducerState]:
    """Yield the producers of `after` whose transaction was open at the same offset both times."""
    opened = {(p.producer_id, p.producer_epoch, p.start_offset) for p in before if p.start_offset is not None}
    return (p for p in after if (p.producer_id, p.producer_epoch, p.start_offset) in opened)


def evaluate_pin(
    where: TopicPartition,
    producer: ProducerState,
    owners: ProducerOwners,
    *,
    known: Pin | None,
    since_ms: int,
    accused: bool,
    now_ms: int,
    grace: int,
) -> Pin:
    """Return the verdict on one transaction that was open at the same offset before and after.

    `known` is the same transaction in an earlier poll. Without it, `since_ms` is since when the transaction
    is known to be open. `accused`: the last poll that reached its coordinator found no owner either.
    """
    name = owners.ids.get(producer.producer_id, "")
    described = owners.descriptions.get(name)
    first_seen_ms = known.first_seen_ms if known else since_ms
    prepared_ms = None
    verdict, ground = _verdict(where, producer, name, owners)
    if ground is VerdictReason.OWNED and isinstance(described, Described):
        if described.state in PREPARED_STATES:
            prepared_ms = known.prepared_ms if known and known.prepared_ms is not None else now_ms
        verdict, ground = _lateness(described, first_seen_ms, prepared_ms, now_ms, grace)
    elif verdict is PartitionVerdict.HANGING and not accused:
        verdict, ground = PartitionVerdict.UNKNOWN, VerdictReason.SEEN_ONCE
    return Pin(
        where.topic,
        where.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.start_offset or 0,
        producer.last_sequence,
        producer.last_timestamp_ms,
        producer.coordinator_epoch,
        first_seen_ms,
        name,
        verdict,
        ground,
        prepared_ms,
    )


def _verdict(
    where: TopicPartition, producer: ProducerState, name: str, owners: ProducerOwners
) -> tuple[PartitionVerdict, VerdictReason]:
    """Judge by the coordinators' reports whether an open transaction has an owner.

    Epochs are not compared, because ends and protocol 2 raise them. Only the newest epoch of a producer id
    can be open in a partition, and the coordinator's next marker ends it whatever its epoch.
    """
    if not name:
        return _ownerless(owners)
    described = owners.descriptions.get(name)
    if not isinstance(described, Described):
        forbidden = described is not None and described.obstacle is Obstacle.FORBIDDEN
        return PartitionVerdict.UNKNOWN, VerdictReason.MAY_BE_HIDDEN if forbidden else VerdictReason.UNSEEN
    if described.producer_id != producer.producer_id:
        # The id has another producer id since it was listed: the next poll will show that.
        return PartitionVerdict.UNKNOWN, VerdictReason.UNSEEN
    if described.state in OPEN_STATES and _names(described, where):
        return PartitionVerdict.OPEN, VerdictReason.OWNED
    return PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION


def _ownerless(owners: ProducerOwners) -> tuple[PartitionVerdict, VerdictReason]:
    if not owners.whole:
        return PartitionVerdict.UNKNOWN, VerdictReason.UNSEEN
    if owners.may_hide:
        return PartitionVerdict.UNKNOWN, VerdictReason.MAY_BE_HIDDEN
    return PartitionVerdict.HANGING, VerdictReason.NO_SUCH_PRODUCER


def _names(described: Described, where: TopicPartition) -> bool:
    return any(topic == where.topic and where.partition in numbers for topic, numbers in described.partitions)


def _lateness(
    described: Described, first_seen_ms: int, prepared_ms: int | None, now_ms: int, grace: int
) -> tuple[PartitionVerdict, VerdictReason]:
    if described.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return PartitionVerdict.OPEN, VerdictReason.TWO_PHASE
    if prepared_ms is not None:
        if now_ms - prepared_ms > grace:
            return PartitionVerdict.LATE, VerdictReason.STUCK_IN_PREPARE
    elif now_ms - first_seen_ms > described.timeout_ms + grace:
        return PartitionVerdict.LATE, VerdictReason.PAST_TIMEOUT
    return PartitionVerdict.OPEN, VerdictReason.OWNED


def still_accused(pins: Iterable[Pin], before: Collection[PinKey]) -> frozenset[PinKey]:
    """Return the transactions that had no owner when their coordinator was last reachable."""
    return frozenset(
        pin.key
        for pin in pins
        if pin.verdict is PartitionVerdict.HANGING
        or pin.ground is VerdictReason.SEEN_ONCE
        or (pin.ground is VerdictReason.UNSEEN and pin.key in before)
    )


class PartitionPlace(NamedTuple):
    """The topic id, leader (None without one) and replicas of a partition."""

    topic_id: str
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]


class KnownPartition(NamedTuple):
    """The known facts of one partition; the columns of its row."""

    topic: str
    partition: int
    place: PartitionPlace
    #: None before the first answer; the last known values while the partition cannot be read.
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    #: When it was last polled successfully.
    seen_ms: int | None
    #: Our clock when the LSO got stuck at this value below the high watermark; None unless it is stuck.
    pinned_ms: int | None
    verdict: PartitionVerdict
    #: Why it cannot be read, in words for an operator; "" if it can.
    error: str

    def has_changed(self, before: KnownPartition | None) -> bool:
        """Whether any field but the time of the poll has changed."""
        return before is None or self._replace(seen_ms=before.seen_ms) != before

    @property
    def is_lso_behind(self) -> bool:
        """Whether the LSO was below the high watermark in the last successful poll."""
        return self.lso is not None and self.high_watermark is not None and self.lso < self.high_watermark


@dataclass(frozen=True, **SLOTS)
class ObservedPartitions:
    """The news of one poll, and everything that could not be read."""

    at_ms: int
    #: Whether all partitions were polled, and not only those with open transactions.
    full: bool
    rows: Mapping[TopicPartition, KnownPartition] = field(default_factory=dict)
    #: The histories with a new point.
    ends: Mapping[TopicPartition, str] = field(default_factory=dict)
    #: Partitions of deleted topics.
    gone: frozenset[TopicPartition] = frozenset()
    pins: tuple[Pin, ...] = ()
    ended: tuple[PinKey, ...] = ()
    #: Reasons by scope of everything that cannot be read now; None if unchanged.
    gaps: Mapping[str, str] | None = None
    #: Number of partitions by verdict.
    verdicts: Mapping[PartitionVerdict, int] = field(default_factory=dict)
    took_ms: int = 0
    requests: int = 0
    broker_ms: float = 0.0


def update_partition(
    prior: KnownPartition | None,
    where: TopicPartition,
    place: PartitionPlace,
    read: Offsets | str,
    now_ms: int,
    *,
    held: bool,
) -> KnownPartition:
    """Return the row of a partition after a poll, before its transactions are evaluated.

    `read` is the reason if it could not be read: then only that and the place change. `held`: open
    transactions are known in it, so its LSO counts as held back even right after it has moved. `prior` is
    None for a new partition, also for a partition of a recreated topic.
    """
    if isinstance(read, str):
        before = prior or KnownPartition(
            *where, place, None, None, None, None, None, PartitionVerdict.UNKNOWN, ""
        )
        return before._replace(place=place, verdict=PartitionVerdict.UNKNOWN, error=read)
    start, lso, end, leader, epoch = read
    return KnownPartition(
        *where,
        PartitionPlace(place.topic_id, leader, epoch, place.replicas),
        start,
        lso,
        end,
        now_ms,
        _pinned_ms(prior, lso, end, now_ms, held=held),
        PartitionVerdict.CLEAR,
        "",
    )


def _pinned_ms(prior: KnownPartition | None, lso: int, end: int, now_ms: int, *, held: bool) -> int | None:
    if lso >= end:
        return None
    if prior is None or prior.lso != lso or not prior.is_lso_behind:
        return now_ms if held else None
    return prior.seen_ms if prior.pinned_ms is None else prior.pinned_ms


def worst_verdict(pins: Iterable[Pin]) -> PartitionVerdict:
    """Return the worst verdict of a partition's transactions; UNKNOWN if it is pinned without a known one."""
    return max((pin.verdict for pin in pins), key=VERDICTS.index, default=PartitionVerdict.UNKNOWN)
