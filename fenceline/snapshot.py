"""The input of the rules in one tick: all facts of one cluster for findings.

All instants are by our own clock (`fenceline.kafka.coordinator`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.audit.manifest import AuditViolation
from fenceline.engines.flink.restore import FlinkJobFacts
from fenceline.facts import TopicPartitions, TransactionState, TransitionKind, VisibilityGap
from fenceline.findings import EVERYWHERE, Sense, Visibility, expected_ms
from fenceline.formatting import list_names
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, Pin
from fenceline.limits import Limits
from fenceline.losses.recoveries import LostRecords
from fenceline.spark.queries import QueryStatus


class BlockedQueryFacts(NamedTuple):
    """A streaming query at a stuck LSO."""

    ident: str
    name: str


class MissingMarker(NamedTuple):
    """A partition whose leader has not confirmed a decided transaction's marker, and its replicas."""

    topic: str
    partition: int
    #: None while it has no leader.
    leader: int | None
    replicas: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def why(self) -> str:
        """Return why its marker is not written, in words."""
        if self.leader is not None:
            return f"{self} is led by broker {self.leader}, which has not confirmed it"
        if not self.replicas:
            return f"{self} has no leader"
        of = "broker" if len(self.replicas) == 1 else "brokers"
        return f"{self} has no leader: its replicas are on {of} {list_names([*map(str, self.replicas)])}"


@dataclass(frozen=True, slots=True)
class OpenTransactionFacts:
    """An incomplete transaction for the rules."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    timeout_ms: int
    #: None if its record has no start, or an implausible one by its coordinator's clock.
    started_ms: int | None
    #: For a transaction that is being ended: the instant of the decision.
    updated_ms: int
    partitions: tuple[TopicPartitions, ...]
    application: str = ""
    #: Groups at an LSO that it blocks, in order.
    waiting: tuple[str, ...] = ()
    #: Streaming queries at such an LSO: they wait if they read read_committed.
    queries: tuple[BlockedQueryFacts, ...] = ()
    #: Its producer id and its start by its coordinator's clock; "" if unknown.
    instance: str = ""
    #: For a long decided transaction: the partitions without a confirmed marker, if known.
    missing: tuple[MissingMarker, ...] = ()


@dataclass(frozen=True, slots=True)
class PinnedPartition:
    """A partition whose LSO has been stuck below its high watermark for more than one poll."""

    topic: str
    partition: int
    pinned_ms: int
    lso: int
    high_watermark: int
    verdict: PartitionVerdict
    #: Its open transactions, the oldest first.
    pins: tuple[Pin, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def is_blocked(self, now_ms: int, limits: Limits) -> bool:
        """Whether a transaction blocks it: for longer than `limits.group_blocked_s`, or because it hangs."""
        is_long = now_ms - self.pinned_ms > limits.blocked_after_ms
        return is_long or self.verdict is PartitionVerdict.HANGING

    @property
    def uncommitted_backlog(self) -> int:
        """Records and markers that a read_committed consumer cannot read."""
        return self.high_watermark - self.lso


@dataclass(frozen=True, slots=True)
class BlockedOffset:
    """A partition in which a group waits, or in which its commit is pending."""

    topic: str
    partition: int
    #: Records between the group and the high watermark; None if either is unknown.
    behind: int | None
    waiting: Waiting | None
    #: Since when it waits there.
    waiting_ms: int | None
    unstable: bool = False
    blockers: tuple[GroupBlocker, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A group that waits for a transaction in at least one partition."""

    group_id: str
    offsets: tuple[BlockedOffset, ...]
    #: Since when the LSO of its partition of `__consumer_offsets` is stuck; None unless it is.
    log_pinned_ms: int | None = None


class DeletedRead(NamedTuple):
    """A deleted partition with records that a group had not read."""

    group_id: str
    topic: str
    partition: int
    #: None if its last end is unknown.
    unread: int | None
    deleted_ms: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AbortedCommitFacts(NamedTuple):
    """A committed transaction that lost records before its commit."""

    transactional_id: str
    producer_id: int
    #: Its begin, by its coordinator's stamp.
    started_ms: int
    committed_ms: int
    lost: tuple[LostRecords, ...]

    @property
    def instance(self) -> str:
        """Return the transaction's identity (`facts.Finding.instance`)."""
        return f"{self.producer_id}@{self.started_ms}"


class UsualCommit(NamedTuple):
    """The usual durations of an application's commits, from begin to decision."""

    commits: int
    p99_ms: int


def usual_ms(usual: UsualCommit | None, limits: Limits) -> int | None:
    """Return the usual duration of an application's transactions, None if too little is known."""
    if usual is None or usual.commits < limits.open_usual_commits:
        return None
    return int(max(limits.open_usual_s * 1_000, limits.open_usual_factor * usual.p99_ms))


class Repeated(NamedTuple):
    """An event that happened to one id, or to one application, several times."""

    #: `transaction:ID` or `application:NAME`.
    subject: str
    times: int
    #: How many of them the log shows as certain or probable; the others are ambiguous.
    unambiguous: int
    first_ms: int
    last_ms: int
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationFigures:
    application: str
    #: Counts by kind within `limits.abort_window_s`.
    window: Mapping[TransitionKind, int] = field(default_factory=dict)
    #: Counts by kind within the last hour.
    hour: Mapping[TransitionKind, float] = field(default_factory=dict)
    #: One of its ids, if it made many lately; else "".
    sample_id: str = ""


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """A collector's own status: its position, and the reasons why it cannot read more."""

    name: str
    #: Everything before this instant has been read; None before the first complete poll.
    seen_through_ms: int | None
    #: Why it cannot read, in words for an operator; "" if it can.
    error: str
    since_ms: int
    #: The rules' senses that depend on it.
    senses: frozenset[Sense] = frozenset()
    #: Its part of the cluster: `shard:1` of a tail among several.
    scope: str = EVERYWHERE
    #: Parts that did not answer its last request, in words for an operator.
    unseen: tuple[str, ...] = ()

    @property
    def blind_since_ms(self) -> int:
        """Return since when it has read nothing newer; the collector's own start before its first poll."""
        return self.since_ms if self.seen_through_ms is None else self.seen_through_ms

    def is_behind(self, now_ms: int, limits: Limits) -> bool:
        """Whether it has not read the last `collector_behind_s`, for a poller the last `poller_behind_s`."""
        reads_on = Sense.TRANSACTIONS in self.senses or Sense.HISTORY in self.senses
        return now_ms > self.blind_since_ms + expected_ms(limits, reads_on=reads_on)

    def hides(self, sense: Sense, now_ms: int, limits: Limits) -> bool:
        """Whether facts of a sense that come through it may be old.

        Lists that name their missing parts are not old; the missing transactions are.
        """
        if self.unseen:
            return sense is not Sense.LISTS
        return self.seen_through_ms is None or self.is_behind(now_ms, limits)


@dataclass(frozen=True, slots=True)
class Snapshot:
    cluster: str = ""
    collectors: tuple[CollectorStatus, ...] = ()
    #: The open gaps.
    gaps: tuple[VisibilityGap, ...] = ()
    transactions: tuple[OpenTransactionFacts, ...] = ()
    partitions: tuple[PinnedPartition, ...] = ()
    groups: tuple[BlockedGroup, ...] = ()
    #: Deleted partitions with records that groups had not read.
    deleted_reads: tuple[DeletedRead, ...] = ()
    #: Commits that lost records, the newest first.
    aborted_commits: tuple[AbortedCommitFacts, ...] = ()
    queries: tuple[QueryStatus, ...] = ()
    #: Flink jobs with decided and uncommitted transactions.
    flink_jobs: tuple[FlinkJobFacts, ...] = ()
    #: Pipelines whose newest audit found missing or duplicated records.
    audits: tuple[AuditViolation, ...] = ()
    #: The usual durations of commits, by application, if it has enough of them.
    usual: Mapping[str, UsualCommit] = field(default_factory=dict)
    applications: tuple[ApplicationFigures, ...] = ()
    #: Ids that were taken over within `limits.fencing_storm_s`.
    takeovers: tuple[Repeated, ...] = ()
    #: Transactions that timed out without a commit between them.
    timeouts: tuple[Repeated, ...] = ()
    #: The scopes that contain subjects, beside their own names.
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def visibility(self, *, now_ms: int, limits: Limits) -> Visibility:
        """Return the hidden parts: open gaps, late collectors, missing collectors.

        A collector that cannot read hides its source; a sense without any collector is hidden completely.
        """
        hidden: dict[Sense, set[str]] = {sense: {EVERYWHERE} for sense in Sense}
        for sense in {sense for collector in self.collectors for sense in collector.senses}:
            hidden[sense] = set()
        for collector in self.collectors:
            scopes = {
                collector.scope if gap.scope == EVERYWHERE else gap.scope
                for gap in self.gaps
                if gap.source == collector.name
            }
            for sense in collector.senses:
                hidden[sense] |= scopes
                if collector.hides(sense, now_ms, limits):
                    hidden[sense].add(collector.scope)
        return Visibility({sense: frozenset(scopes) for sense, scopes in hidden.items()}, self.places)
