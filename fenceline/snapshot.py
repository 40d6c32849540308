"""The input of the rules in one tick: every fact of one cluster that a finding can be made of.

All instants are by our own clock (`fenceline.kafka.clock_skew`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.audit.violations import AuditViolation
from fenceline.baselines import Habit, UsualCommit
from fenceline.facts import TopicPartitions, TransactionState, TransitionKind, VisibilityGap
from fenceline.flink.commits import FlinkJobFacts
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, Pin
from fenceline.limits import Limits
from fenceline.spark.queries import QueryStatus
from fenceline.visibility import EVERYWHERE, Sense, Visibility, expected_ms


class BlockedQueryFacts(NamedTuple):
    """A streaming query that is at a stuck LSO."""

    ident: str
    name: str


@dataclass(frozen=True, slots=True)
class OpenTransactionFacts:
    """A transaction that is not complete, as the rules see it."""

    cluster: str
    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: None where its record has no start, or where its coordinator's clock makes no sense of it.
    started_ms: int | None
    #: For a transaction that is being ended: since when that is decided.
    updated_ms: int
    partitions: tuple[TopicPartitions, ...]
    application: str = ""
    #: Groups that are at an LSO which it holds, in order.
    waiting: tuple[str, ...] = ()
    #: Streaming queries that do: they wait if they read read_committed.
    queries: tuple[BlockedQueryFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class PinnedPartition:
    """A partition whose LSO has been stuck below its high watermark for more than one poll."""

    topic: str
    partition: int
    pinned_ms: int
    lso: int
    high_watermark: int
    verdict: PartitionVerdict
    #: The transactions that are open in it, the oldest first.
    pins: tuple[Pin, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def uncommitted_backlog(self) -> int:
        """Records and markers that a read_committed consumer does not get."""
        return self.high_watermark - self.lso


class Blocker(NamedTuple):
    """A transaction that a group waits for."""

    producer_id: int | None
    transactional_id: str
    #: Whether it holds the group's own commit (UNSTABLE_OFFSET_COMMIT), not the partition's LSO.
    pending: bool = False
    #: False where it is one of several that may be meant.
    certain: bool = True


@dataclass(frozen=True, slots=True)
class BlockedOffset:
    """A partition in which a group waits, or in which a commit of it is pending."""

    topic: str
    partition: int
    #: Records between the group and the high watermark; None where either is not known.
    behind: int | None
    waiting: Waiting | None
    #: Since when it is there.
    waiting_ms: int | None
    unstable: bool = False
    blockers: tuple[Blocker, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """A group that waits for a transaction somewhere."""

    group_id: str
    offsets: tuple[BlockedOffset, ...]
    #: Since when the LSO of its partition of `__consumer_offsets` is stuck; None unless it is.
    log_pinned_ms: int | None = None


class Repeated(NamedTuple):
    """Something that happened to one id, or to one application, several times."""

    #: `transaction:ID` or `application:NAME`.
    subject: str
    times: int
    #: How many of them the log shows as certain or probable; the others are ambiguous.
    unambiguous: int
    first_ms: int
    last_ms: int
    timeout_ms: int = 0


class Burn(NamedTuple):
    """How fast the busiest id of an application uses up its epochs."""

    transactional_id: str
    epoch: int
    per_hour: int
    #: How many of the application's ids are past the limit.
    ids: int = 1


@dataclass(frozen=True, slots=True)
class ApplicationFigures:
    """What happened to an application lately."""

    application: str
    #: Counts by kind within `limits.abort_window_s`.
    window: Mapping[TransitionKind, int] = field(default_factory=dict)
    #: Counts by kind within the last hour.
    hour: Mapping[TransitionKind, float] = field(default_factory=dict)
    #: What of that is usual; nothing before it is known.
    habits: Mapping[TransitionKind, Habit] = field(default_factory=dict)
    burn: Burn | None = None
    #: One of its ids, where it made many lately; "" elsewhere.
    sample_id: str = ""


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """A collector's own status: how far it has read, and what keeps it from reading more."""

    cluster: str
    name: str
    #: Everything before this instant has been seen; None before the first complete poll.
    seen_through_ms: int | None
    #: Records between its position and the end of what it reads; None when the end is unknown.
    behind: int | None
    #: Why it cannot see, in words for an operator; "" when it can.
    error: str
    since_ms: int
    #: What the rules see through it.
    senses: frozenset[Sense] = frozenset()
    #: The part of the cluster that it reads: `shard:1` of a tail among several.
    scope: str = EVERYWHERE
    #: Parts that did not answer its last question, in words for an operator.
    unseen: tuple[str, ...] = ()
    #: The start of the open finding about it (`collector_behind`), None without one; and since when it has
    #: been on time again, None while it is not, or where that is not known yet.
    reported_ms: int | None = None
    on_time_ms: int | None = None

    @property
    def is_eye(self) -> bool:
        """Whether it is one of those from which the transactions are known."""
        return Sense.TRANSACTIONS in self.senses

    @property
    def blind_since_ms(self) -> int:
        """Since when nothing newer has been seen; the collector's own beginning before its first poll."""
        return self.since_ms if self.seen_through_ms is None else self.seen_through_ms

    def is_behind(self, now_ms: int, limits: Limits) -> bool:
        """Whether it has not seen the last seconds: `collector_behind_s`, `poller_behind_s` for pollers."""
        reads_on = self.is_eye or Sense.HISTORY in self.senses
        return now_ms - self.blind_since_ms > expected_ms(limits, reads_on=reads_on)

    @property
    def is_aside(self) -> bool:
        """Whether the cluster is seen by others: a second opinion has a pace of its own, and only fails."""
        return not self.is_eye and not self.senses.isdisjoint({Sense.LISTS, Sense.HISTORY})

    def is_in_trouble(self, now_ms: int, limits: Limits) -> bool:
        """Whether it fails, or is late, now: for a moment that is no finding."""
        return bool(self.error) if self.is_aside else self.is_behind(now_ms, limits)

    def hides(self, sense: Sense, now_ms: int, limits: Limits) -> bool:
        """Whether what a sense knows through it may be old.

        Lists that name who is missing in them are not old; what they are missing is.
        """
        if sense is Sense.LISTS and self.unseen:
            return False
        return self.seen_through_ms is None or self.is_behind(now_ms, limits)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The input of the rules in one tick."""

    cluster: str = ""
    collectors: tuple[CollectorStatus, ...] = ()
    #: The gaps that are open.
    gaps: tuple[VisibilityGap, ...] = ()
    transactions: tuple[OpenTransactionFacts, ...] = ()
    partitions: tuple[PinnedPartition, ...] = ()
    groups: tuple[BlockedGroup, ...] = ()
    queries: tuple[QueryStatus, ...] = ()
    #: Flink jobs with decided transactions that are not committed.
    flink_jobs: tuple[FlinkJobFacts, ...] = ()
    #: Pipelines in which the newest audit found records missing or duplicated.
    audits: tuple[AuditViolation, ...] = ()
    #: How long commits take, by application, where it has enough of them.
    usual: Mapping[str, UsualCommit] = field(default_factory=dict)
    applications: tuple[ApplicationFigures, ...] = ()
    #: Ids that were taken over within `limits.fencing_storm_s`.
    takeovers: tuple[Repeated, ...] = ()
    #: Transactions that timed out with no commit between them.
    timeouts: tuple[Repeated, ...] = ()
    #: In which scopes things lie, beside their own names.
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def visibility(self, *, now_ms: int, limits: Limits) -> Visibility:
        """Return what is hidden now: in open gaps, behind collectors that are late, or by their absence.

        A collector that cannot read hides what it should read; a sense without any collector is hidden whole.
        """
        hidden: dict[Sense, set[str]] = {sense: {EVERYWHERE} for sense in Sense}
        for sense in {sense for collector in self.collectors for sense in collector.senses}:
            hidden[sense] = set()
        for collector in self.collectors:
            scopes = set(self._gaps_of(collector))
            for sense in collector.senses:
                hidden[sense] |= scopes
                if collector.hides(sense, now_ms, limits):
                    hidden[sense].add(collector.scope)
        return Visibility({sense: frozenset(scopes) for sense, scopes in hidden.items()}, self.places)

    def _gaps_of(self, collector: CollectorStatus) -> Iterable[str]:
        for gap in self.gaps:
            if gap.source == collector.name:
                yield collector.scope if gap.scope == EVERYWHERE else gap.scope
