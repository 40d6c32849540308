"""The observations of one cluster in a period, from which its flow is derived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import Isolation, Severity
from fenceline.flow.graph import UNKNOWN_LATENCY, FlowGap, Latency
from fenceline.kafka.groups import GroupStatus
from fenceline.series.histograms import Histogram
from fenceline.spark.records import QueryState


class ProducerKind(StrEnum):
    """The kind of records outside of any transaction, by the headers of their batches."""

    IDEMPOTENT = "idempotent"
    #: Neither transactional nor idempotent.
    PLAIN = "plain"


class TopicWrites(NamedTuple):
    """The transactions of an application on a topic; all counts are 0 while its first one is open."""

    application: str
    topic: str
    commits: int = 0
    aborts: int = 0
    #: From begin to the last marker, of commits.
    unreadable_times: Histogram = {}
    last_ms: int | None = None


class OffsetWrites(NamedTuple):
    """An application's transactions that commit offsets, by the partition of `__consumer_offsets`."""

    application: str
    log_partition: int
    commits: int = 0


class GroupReads(NamedTuple):
    """The commits of the groups of one name for one topic."""

    group: str
    topic: str
    #: The application whose transactions commit these offsets; "" for none, None if unknown.
    application: str | None = ""
    partitions: int = 1
    status: GroupStatus = GroupStatus.OK
    #: Partitions in which the group is BLOCKED.
    blocked: int = 0
    #: The age of unread records, over its partitions.
    lag: Latency = UNKNOWN_LATENCY
    #: The partitions of `__consumer_offsets` with its offsets.
    log_partition: int | None = None
    isolation: Isolation = Isolation.UNKNOWN


@dataclass(frozen=True, slots=True)
class QueryLinks:
    """A streaming query, its inputs and its outputs."""

    ident: str
    name: str
    state: QueryState = QueryState.RUNNING
    sources: Sequence[str] = ()
    #: The topics in its ledger.
    outputs: Sequence[str] = ()
    #: The application of its sink's transactional ids; "" without our sink.
    application: str = ""
    #: "exactly_once" (ours), "kafka", "other", "" if not reported.
    sink: str = ""
    batch_id: int | None = None
    batch_times: Latency = UNKNOWN_LATENCY
    #: Records per minute.
    input_rate: float | None = None
    #: Number of its prepared, uncommitted batches.
    prepared: int = 0
    #: Why its checkpoint cannot be read; "" if it can.
    error: str = ""
    #: Whether its checkpoint was read.
    checkpoint: bool = False
    #: Whether it tracks its progress asynchronously; None if unknown.
    asynchronous: bool | None = None
    isolation: Isolation = Isolation.UNKNOWN
    #: Number of lost batches in its ledger, and whether files of the ledger are unreadable.
    lost: int = 0
    ledger_damaged: bool = False


class TopicPartitionCounts(NamedTuple):
    """The number of a topic's partitions, and of those whose LSO is blocked or unknown."""

    partitions: int = 0
    blocked: int = 0
    unknown: int = 0


class OpenFindingFacts(NamedTuple):
    """The flow's facts about an open finding. A transaction's finding has its application as `subject`."""

    rule: str
    subject: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class FlowObservations:
    """All observations of one cluster. `minutes` is the period of counted transactions, up to `at_ms`."""

    minutes: float
    writes: Sequence[TopicWrites] = ()
    offset_writes: Sequence[OffsetWrites] = ()
    groups: Sequence[GroupReads] = ()
    queries: Sequence[QueryLinks] = ()
    topics: Mapping[str, TopicPartitionCounts] = field(default_factory=dict)
    #: Applications and topics with blocked partitions in which they have an open transaction.
    blocking: frozenset[tuple[str, str]] = frozenset()
    findings: Sequence[OpenFindingFacts] = ()
    #: Topics with records outside of any transaction, from producers or headers of batches.
    outside: Mapping[str, ProducerKind] = field(default_factory=dict)
    #: The parts that collectors could not observe.
    gaps: Sequence[FlowGap] = ()
    at_ms: int | None = None
