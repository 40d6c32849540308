"""Fenceline's vocabulary on one page: all facts about a cluster, as immutable values.

Instants end in `_ms` and count milliseconds since the Unix epoch, as Kafka's records do; durations end in
`_ms` or `_s`. -1 on the wire ("none") is `None` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS, StrEnum

#: `transaction.timeout.ms` of a transaction in two-phase commit (KIP-939): it never times out.
TWO_PHASE_COMMIT_TIMEOUT_MS = 2147483647


#: The offset of an id's facts, if they are not its last record in the log: a coordinator reported them, or
#: the record could not be decoded.
NOT_FROM_LOG = -1
#: The value of fields that a coordinator's list lacks (it has only state and producer id).
NOT_REPORTED = -1


class TransactionState(StrEnum):
    """Kafka's own names of states of a transactional id (`TransactionState.java`)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


#: The states of a decided transaction, before and after its markers are in every partition.
COMMITTED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
ABORTED_STATES = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
#: The states that a coordinator leaves by itself: the transaction is decided, and its markers are under way.
PREPARED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
#: The states in which a transaction blocks the last stable offset of its partitions.
OPEN_STATES = (TransactionState.ONGOING, *PREPARED_STATES)


class Isolation(StrEnum):
    """The isolation level of a reader; Kafka does not report it."""

    UNKNOWN = "unknown"
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Severity(StrEnum):
    """The severity of a finding, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class TopicPartition(NamedTuple):
    """One partition, by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicPartitions(NamedTuple):
    """Partitions of one topic, in the order of the record."""

    topic: str
    partitions: tuple[int, ...]


def expand_partitions(topics: Iterable[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
    """Return the single partitions of topics with their numbers, in their order."""
    return [TopicPartition(topic, number) for topic, numbers in topics for number in numbers]


class TransactionRecord(NamedTuple):
    """One value of `__transaction_state`: the coordinator's state of a transactional id at one moment.

    A named tuple and not a dataclass: a cold start makes millions of them, and a tuple takes a third of the
    time. `transactional_id` is escaped text (`decode.text.escape_bytes`).
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: None while Empty, () once complete, the whole set while open (it does not shrink as markers are
    #: written).
    partitions: tuple[TopicPartitions, ...] | None
    updated_ms: int
    started_ms: int | None
    #: 2 if the last writer used transaction protocol 2 (KIP-890); carried over without meaning in Empty.
    client_version: int = 0
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    next_producer_epoch: int | None = None
    #: In an Empty record: the epoch that the initialising producer claimed as its own. None without a claim,
    #: and if the coordinator does not record it (Kafka up to 4.4).
    last_producer_epoch: int | None = None
    value_version: int = 1

    def names_own_epoch(self, last: TransactionRecord) -> bool:
        """Whether the request for this Empty record had the id and epoch of the record before (KIP-360).

        The coordinator writes the last epoch for no other request (`TransactionMetadata`'s
        prepareIncrementProducerEpoch and prepareProducerIdRotation). Its absence proves nothing: -1 is not
        written for a request without an epoch, nor, up to Kafka 4.4, for any.
        """
        following = last.producer_epoch + 1 if self.producer_id == last.producer_id else 0
        return self.last_producer_epoch == last.producer_epoch and self.producer_epoch == following


class Tombstone(NamedTuple):
    """A record without a value: the coordinator has forgotten the id (expired after 7 idle days)."""

    transactional_id: str
    #: The record's own timestamp, because it has no value.
    at_ms: int | None = None


class Undecoded(NamedTuple):
    """An unreadable record. It is counted by `reason`, never raised and never silently dropped."""

    #: One of a few words for a counter: key_version, value_version, status, truncated, trailing …
    reason: str
    #: Details for the log: the version, the length.
    detail: str


class TransitionKind(StrEnum):
    """The effect of one record on its transactional id."""

    BASELINE = "baseline"
    INIT = "init"
    BEGIN = "begin"
    EXTEND = "extend"
    COMMIT = "commit"
    CLIENT_ABORT = "client_abort"
    TIMEOUT = "timeout"
    #: Another producer initialised the id while a transaction was open.
    TAKEOVER = "takeover"
    #: Initialised again without an open transaction, by any producer.
    REINIT = "reinit"
    #: The same producer bumped its own epoch (KIP-360).
    SELF_RECOVERY = "self_recovery"
    ADMIN_FENCE = "admin_fence"
    #: The epoch was exhausted: the id continues with a new producer id.
    ROTATION = "rotation"
    #: An abort without a transaction, written by clients of protocol 2.
    EMPTY_ABORT = "empty_abort"
    #: An abort whose cause the log does not show; always ambiguous.
    ABORT = "abort"
    EXPIRY = "expiry"
    #: Our own action ended it with an abort (EndTxn), and fenced no producer.
    ADMIN_ABORT = "admin_abort"


#: Everyday kinds: they are only in an id's `recent` and in counters; all others have rows.
EVERYDAY = frozenset(
    {
        TransitionKind.BASELINE,
        TransitionKind.INIT,
        TransitionKind.BEGIN,
        TransitionKind.EXTEND,
        TransitionKind.COMMIT,
    }
)
#: The kinds that end a transaction without its records.
ABORTS = frozenset(
    {
        TransitionKind.CLIENT_ABORT,
        TransitionKind.TIMEOUT,
        TransitionKind.TAKEOVER,
        TransitionKind.ADMIN_FENCE,
        TransitionKind.ADMIN_ABORT,
        TransitionKind.SELF_RECOVERY,
        TransitionKind.ABORT,
    }
)


class Confidence(StrEnum):
    """How strongly the log proves a verdict."""

    CERTAIN = "certain"
    PROBABLE = "probable"
    AMBIGUOUS = "ambiguous"


class TransitionReason(StrEnum):
    """The evidence for a verdict in the records; `explanations.explain_transition` puts it into words."""

    FIRST_SEEN = "first_seen"
    NEW_ID = "new_id"
    REBORN_UNSEEN = "reborn_unseen"
    PARTITION_ADDED = "partition_added"
    SAME_EPOCH = "same_epoch"
    ROUTINE_BUMP = "routine_bump"
    BROKER_IN_TIME = "broker_in_time"
    BROKER_LATE = "broker_late"
    EITHER_IN_TIME = "either_in_time"
    EITHER_LATE = "either_late"
    CLOCK_WENT_BACK = "clock_went_back"
    CLIENT_WENT_ON = "client_went_on"
    CAME_BACK_SOON = "came_back_soon"
    CAME_BACK = "came_back"
    CAME_BACK_LATE = "came_back_late"
    OWN_EPOCH = "own_epoch"
    INITIALISED = "initialised"
    DEFAULT_TIMEOUT = "default_timeout"
    ADMIN_TIMEOUT = "admin_timeout"
    ADMIN_TIMEOUT_SOON = "admin_timeout_soon"
    WENT_ON_TO_BEGIN = "went_on_to_begin"
    EPOCH_USED_UP = "epoch_used_up"
    NOTHING_OPEN = "nothing_open"
    FORGOTTEN = "forgotten"
    NO_SUCH_STEP = "no_such_step"
    # Add new ones at the end: their positions are stored (`fenceline.kafka.fold.transition_ring`).
    CLIENT_AT_LAST_EPOCH = "client_at_last_epoch"
    BROKER_AT_LAST_EPOCH = "broker_at_last_epoch"
    LATE_AT_LAST_EPOCH = "late_at_last_epoch"
    #: An action of Fenceline caused it (`fenceline.kafka.attributions`).
    FENCED_BY_ACTION = "fenced_by_action"
    ABORTED_BY_ACTION = "aborted_by_action"
    COMMITTED_BY_ACTION = "committed_by_action"


#: The reasons that name our own action.
ACTION_REASONS = frozenset(
    {
        TransitionReason.FENCED_BY_ACTION,
        TransitionReason.ABORTED_BY_ACTION,
        TransitionReason.COMMITTED_BY_ACTION,
    }
)


class Transition(NamedTuple):
    """One state change of a transactional id: its kind, its confidence, and its evidence.

    A named tuple for the same reason as TransactionRecord. `partition` and `offset` are those of its record
    in `__transaction_state`. A later record may revise a transition, which is then reported again completely.
    """

    kind: TransitionKind
    confidence: Confidence
    reason: TransitionReason
    #: The record's own instant, by the coordinator's clock.
    at_ms: int
    producer_id: int
    producer_epoch: int
    previous_epoch: int | None
    timeout_ms: int
    #: For an end: from the transaction's start to the decision; negative if the clock went back.
    open_ms: int | None
    #: For an end: when the coordinator had written every marker.
    completed_ms: int | None
    #: For an event after an abort: how long after the abort's completion the id was initialised again.
    gap_ms: int | None
    partition: int
    offset: int

    @property
    def counted_kind(self) -> TransitionKind:
        """Return the kind for counters: a recovery without an open transaction ended none."""
        if self.kind is TransitionKind.SELF_RECOVERY and self.open_ms is None:
            return TransitionKind.REINIT
        return self.kind


class RawRecord(NamedTuple):
    """A record of an internal topic, stored under its key and its partition."""

    value: bytes | None
    offset: int
    #: The record's timestamp if it has no value; values contain their own instants.
    at_ms: int | None = None


class PositionMove(NamedTuple):
    """The progress of one poll in one partition: `previous` is None without an earlier position."""

    partition: int
    previous: int | None
    next: int
    end: int
    #: The first offset after each stretch that compaction removed, in order.
    holes: tuple[int, ...] = ()
    #: The epoch of the leader that wrote the batch before `next`, -1 if unknown (KIP-320).
    epoch: int = -1

    @property
    def is_first(self) -> bool:
        """Whether no record of the partition was read before."""
        return not self.previous


#: Key -> records in offset order.
Records = Mapping[bytes, Sequence[RawRecord]]


@dataclass(frozen=True, **SLOTS)
class VisibilityGap:
    """A part that could not be read. Rules stay silent about subjects inside its scope."""

    source: str
    scope: str
    since_ms: int
    reason: str


@dataclass(frozen=True, **SLOTS)
class Finding:
    """A rule's present verdict about one subject."""

    rule: str
    cluster: str
    #: `kind:name`, e.g. `transaction:payments-7`.
    subject: str
    severity: Severity
    #: None without a known instant: since the finding.
    since_ms: int | None
    summary: str
    evidence: str
    next_step: str
    affected: tuple[str, ...] = ()
    #: When it ends by itself, or records are lost, unless an operator acts; None if unknown.
    deadline_ms: int | None = None
    #: The transaction, batch or start of its subject that it is about: another instance is another episode.
    #: "" if the subject has no such parts, or it is unknown.
    instance: str = ""
