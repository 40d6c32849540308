"""The answers of the API, as far as the command line reads them. `docs/openapi.json` has every field.

Instants are ISO 8601 texts. None stands for what the server does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnseenPart:
    """Something that the server could not see, which a list may therefore lack."""

    cluster: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    cluster: str


@dataclass(frozen=True, slots=True)
class AffectedThings:
    groups: int


@dataclass(frozen=True, slots=True)
class ListedIncident:
    """An incident; `acknowledged_by` is "" until somebody takes care of it, `outcome` "" while it is open."""

    number: int
    cluster: str
    state: str
    subject: str
    severity: str
    summary: str
    opened_at: str | None
    acknowledged_by: str
    outcome: str
    impact: AffectedThings


@dataclass(frozen=True, slots=True)
class RelatedFinding:
    """A finding in an incident; `next_step` is "" once the finding is no longer stored."""

    subject: str
    next_step: str


@dataclass(frozen=True, slots=True)
class FullIncident(ListedIncident):
    """An incident with its findings; `cause` is None while its cause is over."""

    cause: RelatedFinding | None
    effects: tuple[RelatedFinding, ...]


@dataclass(frozen=True, slots=True)
class LogPlace:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class WaitingReader:
    """A group or a query that waits in a partition; the other name is ""."""

    group: str
    query: str


@dataclass(frozen=True, slots=True)
class OfferedAct:
    """An act that can be planned now, with its subject."""

    act: str
    subject: str


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id in Kafka's state."""

    cluster: str
    transactional_id: str
    state: str
    verdict: str
    started_at: str | None
    partitions: tuple[LogPlace, ...]
    waiting: tuple[WaitingReader, ...]


@dataclass(frozen=True, slots=True)
class FullTransaction(ListedTransaction):
    offers: tuple[OfferedAct, ...]


@dataclass(frozen=True, slots=True)
class BlockingId:
    """A transaction that blocks a group; its id is "" where it is not known."""

    transactional_id: str
    producer_id: int | None


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A consumer group; lag counts offsets, to the last stable offset and to the high watermark."""

    cluster: str
    group: str
    status: str
    state: str
    members: int | None
    lag_lso: int | None
    lag_hw: int | None
    blocked: int


@dataclass(frozen=True, slots=True)
class GroupPosition(LogPlace):
    """A partition that a group reads, with what blocks it there."""

    blockers: tuple[BlockingId, ...]


@dataclass(frozen=True, slots=True)
class FullGroup(ListedGroup):
    """A group with its partitions, the worst first."""

    offsets: tuple[GroupPosition, ...]


@dataclass(frozen=True, slots=True)
class StopSafety:
    """Whether a restart is safe; `safe` is None where too little is known to say so."""

    safe: bool | None
    #: A prepared batch that nobody commits; "" without one.
    headline: str
    verdict: str
    reasons: tuple[str, ...]
    kill: bool | None
    kill_reason: str
    retry_after_s: int | None


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """A streaming query; `id` is its identity in Fenceline."""

    cluster: str
    id: str
    name: str
    state: str
    sink: str
    newest: int | None
    prepared: int
    safe_to_stop: bool | None
    lag_lso: int | None


@dataclass(frozen=True, slots=True)
class FullQuery(ListedQuery):
    """A query with the sentence for a restart."""

    restart_words: str
    safe: StopSafety


@dataclass(frozen=True, slots=True)
class OpenInPartition:
    transactional_id: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """A group that reads a partition; `waiting` is "" where nothing blocks it."""

    group: str
    waiting: str


@dataclass(frozen=True, slots=True)
class ListedPartition(LogPlace):
    """A partition; the first of its transactions holds its LSO, `held` is high watermark minus LSO."""

    cluster: str
    verdict: str
    held: int | None
    pinned_since: str | None
    transactions: tuple[OpenInPartition, ...]


@dataclass(frozen=True, slots=True)
class FullPartition(ListedPartition):
    readers: tuple[PartitionReader, ...]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    request: str
    words: str


@dataclass(frozen=True, slots=True)
class SaidInWords:
    """An effect, or a refusal, as a sentence."""

    words: str


@dataclass(frozen=True, slots=True)
class SubjectResult:
    outcome: str
    words: str


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a plan does to one subject; refused where `refusals` has any."""

    title: str
    steps: tuple[PlannedRequest, ...]
    effects: tuple[SaidInWords, ...]
    refusals: tuple[SaidInWords, ...]
    result: SubjectResult | None


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A plan, and what came of it; `confirm` is what a person types to execute it."""

    id: int
    cluster: str
    act: str
    state: str
    executable: bool
    digest: str
    confirm: str
    warnings: tuple[str, ...]
    overridden: tuple[SaidInWords, ...]
    subjects: tuple[PlannedChange, ...]
    expires_at: str | None
    executed_by: str


@dataclass(frozen=True, slots=True)
class ListedCollector:
    """A collector; not `alive`: nothing polls what it reads."""

    cluster: str
    name: str
    alive: bool
    error: str


@dataclass(frozen=True, slots=True)
class NamedCapability:
    """Something that Fenceline does on a cluster; `state` is works, limited, missing or unknown."""

    words: str
    state: str
    why: str
    remedies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapabilityReport:
    """The capabilities of a cluster, none before the first poll; with a `trouble` the last poll failed."""

    cluster: str
    asked_at: str | None
    trouble: str
    items: tuple[NamedCapability, ...]


@dataclass(frozen=True, slots=True)
class PreflightRisk:
    """A setting that threatens exactly-once."""

    severity: str
    subject: str
    fact: str
    risk: str
    remedy: str
    source: str


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """The pre-flight of a cluster; `unseen` are the parts that could not be examined."""

    cluster: str
    risks: tuple[PreflightRisk, ...]
    unseen: tuple[str, ...]
    examined: Mapping[str, int]
