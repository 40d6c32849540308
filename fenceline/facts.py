"""The vocabulary on one page: everything Fenceline can say about a cluster, as immutable values.

Instants end in `_ms` and count milliseconds since the Unix epoch, as Kafka's records do; durations end
in `_ms` or `_s`. What the wire writes as -1 ("none") is `None` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

#: `transaction.timeout.ms` of a transaction in two-phase commit (KIP-939): it never times out.
TWO_PHASE_COMMIT_TIMEOUT_MS = 2147483647


class State(StrEnum):
    """Kafka's own words for the state of a transactional id (`TransactionState.java`)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


#: The states in which a transaction holds back the last stable offset of its partitions.
OPEN_STATES = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class TopicPartitions(NamedTuple):
    """Some partitions of one topic, in the order in which the record named them."""

    topic: str
    partitions: tuple[int, ...]


class TransactionRecord(NamedTuple):
    """One value of `__transaction_state`: the coordinator's view of a transactional id at one moment.

    A named tuple and not a dataclass: a cold start makes millions of them, and a tuple is made in a
    third of the time. `transactional_id` is text as `decode.text.escape` writes it.
    """

    transactional_id: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: None while Empty, () once complete, the whole set while open (it does not shrink as markers land).
    partitions: tuple[TopicPartitions, ...] | None
    updated_ms: int
    started_ms: int | None
    #: 2 when the last writer spoke transaction protocol 2 (KIP-890); carried over, no news in Empty.
    client_version: int = 0
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    next_producer_epoch: int | None = None
    value_version: int = 1


class Tombstone(NamedTuple):
    """A record without a value: the coordinator has forgotten the id (expired after 7 idle days)."""

    transactional_id: str


class Undecoded(NamedTuple):
    """A record we could not read. It is counted by `reason`, never raised and never dropped in silence."""

    #: One of a few words, fit for a counter: key_version, value_version, status, truncated, trailing …
    reason: str
    #: The particulars, for the log: which version, which length.
    detail: str


class Located(NamedTuple):
    """A record of an internal topic and where it lies."""

    record: TransactionRecord | Tombstone
    partition: int
    offset: int


class PositionMove(NamedTuple):
    """How far one look moved in one partition: `previous` is None where there was no position yet."""

    partition: int
    previous: int | None
    next: int
    end: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a tail saw since its last save: the newest record of each id, and how far it came.

    `compacted` counts the offsets that were gone before we came; they hold older records of ids only.
    """

    changes: Mapping[str, Located]
    moves: tuple[PositionMove, ...]
    records: int = 0
    compacted: int = 0
    undecoded: Mapping[str, int] = field(default_factory=dict)
    #: All partitions were at their end at this instant; None when none was asked or one was not.
    seen_through_ms: int | None = None
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is not complete, as the rules see it."""

    cluster: str
    transactional_id: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """What a collector says of itself: how far it has seen, and what keeps it from seeing more."""

    cluster: str
    name: str
    #: Everything before this instant has been seen; None before the first complete look.
    seen_through_ms: int | None
    #: Records between its position and the end of what it reads; None when the end is unknown.
    behind: int | None
    #: Why it cannot see, in words for an operator; "" when it can.
    error: str
    since_ms: int

    @property
    def blind_since_ms(self) -> int:
        """Since when nothing newer has been seen; the collector's own beginning before its first look."""
        return self.since_ms if self.seen_through_ms is None else self.seen_through_ms

    def is_behind(self, now_ms: int, limits: Limits) -> bool:
        """Whether it has not seen the last `limits.collector_behind_s` seconds."""
        return now_ms - self.blind_since_ms > limits.collector_behind_s * 1000


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be seen. Rules stay silent about subjects inside its scope."""

    cluster: str
    source: str
    scope: str
    since_ms: int
    until_ms: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's verdict about one subject, now."""

    rule: str
    cluster: str
    #: `kind:name`, e.g. `transaction:payments-7`.
    subject: str
    severity: Severity
    since_ms: int
    summary: str
    evidence: str
    next_step: str
    affected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Where rules draw their lines; `[limits]` in fenceline.toml. Seconds."""

    open_too_long_s: float = 60.0
    collector_behind_s: float = 5.0

    def as_mapping(self) -> Mapping[str, float]:
        """Return the limits by name, for the configuration page."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the rules may look at in one tick."""

    transactions: tuple[OpenTransaction, ...] = ()
    collectors: tuple[CollectorStatus, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def is_blind(self, *, now_ms: int, limits: Limits) -> bool:
        """Whether what it says of the cluster may be old: a gap is open, or a collector is behind.

        A rule about the cluster then neither opens nor closes anything: unseen is not absent.
        """
        return bool(self.gaps) or any(each.is_behind(now_ms, limits) for each in self.collectors)
