"""What was observed of one cluster in some time, from which its flow is derived."""

from __future__ import annotations

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
    """How records were written outside of any transaction, by the headers of their batches."""

    IDEMPOTENT = "idempotent"
    #: Neither transactional nor idempotent.
    PLAIN = "plain"


class TopicWrites(NamedTuple):
    """What an application's transactions did to a topic; all counts are 0 while its first one is open."""

    application: str
    topic: str
    commits: int = 0
    aborts: int = 0
    #: Begin to the last marker, of those that were committed.
    unreadable_times: Histogram = {}
    last_ms: int | None = None


class OffsetWrites(NamedTuple):
    """An application's transactions that commit offsets, by the partition of `__consumer_offsets`."""

    application: str
    log_partition: int
    commits: int = 0


class GroupReads(NamedTuple):
    """What the groups of one name committed for one topic."""

    group: str
    topic: str
    #: The application whose transactions commit these offsets; "" for none, None where it is not known.
    application: str | None = ""
    partitions: int = 1
    status: GroupStatus = GroupStatus.OK
    #: Partitions in which the group is BLOCKED.
    blocked: int = 0
    #: How old what it has not read is, over its partitions.
    lag: Latency = UNKNOWN_LATENCY
    #: Where its offsets are kept in `__consumer_offsets`.
    log_partition: int | None = None
    isolation: Isolation = Isolation.UNKNOWN


@dataclass(frozen=True, slots=True)
class QueryLinks:
    """A streaming query, and what it reads and writes."""

    ident: str
    name: str
    state: QueryState = QueryState.RUNNING
    sources: Sequence[str] = ()
    #: What its ledger names.
    outputs: Sequence[str] = ()
    #: The application that its sink's transactional ids belong to; "" where it has no sink of ours.
    application: str = ""
    #: "exactly_once" (ours), "kafka", "other", "" where nothing is reported.
    sink: str = ""
    batch_id: int | None = None
    batch_times: Latency = UNKNOWN_LATENCY
    #: Records per minute.
    input_rate: float | None = None
    #: How many of its batches are prepared and not committed.
    prepared: int = 0
    #: Why its checkpoint cannot be read; "" where it can.
    error: str = ""
    #: Whether its checkpoint was read.
    checkpoint: bool = False
    #: Whether it tracks its progress asynchronously; None where that is not known.
    asynchronous: bool | None = None
    isolation: Isolation = Isolation.UNKNOWN
    #: How many batches of its ledger are lost, and whether files of the ledger cannot be read.
    lost: int = 0
    ledger_damaged: bool = False


class TopicPartitionCounts(NamedTuple):
    """A topic's partitions: how many there are, and of how many the LSO is blocked or not known."""

    partitions: int = 0
    blocked: int = 0
    unknown: int = 0


class OpenFindingFacts(NamedTuple):
    """What the flow needs of an open finding. A transaction's finding has its application as `subject`."""

    rule: str
    subject: str
    severity: Severity
    affected: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FlowObservations:
    """All observations of one cluster. `minutes` is how long transactions were counted, up to `at_ms`."""

    minutes: float
    writes: Sequence[TopicWrites] = ()
    offset_writes: Sequence[OffsetWrites] = ()
    groups: Sequence[GroupReads] = ()
    queries: Sequence[QueryLinks] = ()
    topics: Mapping[str, TopicPartitionCounts] = field(default_factory=dict)
    #: Applications and topics in whose blocked partitions they have a transaction open.
    blocking: frozenset[tuple[str, str]] = frozenset()
    findings: Sequence[OpenFindingFacts] = ()
    #: Topics with records outside of any transaction, where producers or headers of batches were read.
    outside: Mapping[str, ProducerKind] = field(default_factory=dict)
    #: What collectors could not observe.
    gaps: Sequence[FlowGap] = ()
    at_ms: int | None = None
