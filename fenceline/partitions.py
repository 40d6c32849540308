"""Partitions, and the transactions open in them: whose each one is, and what holds back the LSO."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Offsets(NamedTuple):
    """Where a partition's log begins, is readable to (LSO), and ends (high watermark), by its leader."""

    log_start: int
    lso: int
    high_watermark: int
    leader: int
    #: None where the broker does not tell.
    leader_epoch: int | None = None


class ProducerState(NamedTuple):
    """One active producer of a partition as a replica tells (DescribeProducers, KIP-664)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    #: The newest timestamp of its records: the producer's own clock, for show alone.
    last_timestamp_ms: int
    #: The epoch of the coordinator that wrote its last marker; None before any.
    coordinator_epoch: int | None
    #: The first offset of its open transaction; None where none is open (or it never had one).
    start_offset: int | None


class Verdict(StrEnum):
    """What an open transaction of a partition is, or what holds the partition as a whole (design.md §4)."""

    CLEAR = "clear"
    #: Owned by its coordinator, and within its limit.
    OPEN = "open"
    #: Owned, but past its timeout and the coordinator's scan, or stuck in Prepare*.
    LATE = "late"
    #: No coordinator owns it: nobody will ever end it.
    HANGING = "hanging"
    #: Anything else: never accuse on what could not be seen.
    UNKNOWN = "unknown"


#: From harmless to worst: a partition has the worst verdict of its transactions.
VERDICTS = (Verdict.CLEAR, Verdict.OPEN, Verdict.UNKNOWN, Verdict.LATE, Verdict.HANGING)


class Ground(StrEnum):
    """Why a verdict; `fenceline.evidence` puts grounds into words."""

    #: Its coordinator names this partition as one of the open transaction's.
    OWNED = "owned"
    #: Its coordinator takes part in a two-phase commit: it never times out.
    TWO_PHASE = "two_phase"
    PAST_TIMEOUT = "past_timeout"
    STUCK_IN_PREPARE = "stuck_in_prepare"
    #: The producer id belongs to an id whose coordinator does not name this partition.
    NOT_ITS_PARTITION = "not_its_partition"
    #: No transactional id has this producer id, and none can be hidden from us.
    NO_SUCH_PRODUCER = "no_such_producer"
    #: No transactional id that we may see has it, but some may be hidden from us.
    MAY_BE_HIDDEN = "may_be_hidden"
    #: A coordinator, or the leader, could not be asked.
    UNSEEN = "unseen"
    #: Seen once: the second look is to come.
    SEEN_ONCE = "seen_once"


@dataclass(frozen=True, slots=True)
class Pin:
    """A transaction that is open in a partition: its producer, whose it is, and the verdict on it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    #: By our own clock: since when this very transaction (partition, producer id, epoch, start) is known.
    first_seen_ms: int
    #: "" where no id with this producer id is known.
    transactional_id: str
    verdict: Verdict
    ground: Ground
    #: By our own clock: since when its coordinator says Prepare*; None unless it does.
    prepared_ms: int | None = None
