"""Spark's terms as immutable values: the contents of a checkpoint folder, a sink's ledger and a progress
event.

A streaming query plans micro-batch N by writing `offsets/N`, runs it (including the sink's commit), and then
writes `commits/N` (Spark's MicroBatchExecution). Instants end in `_ms` and count milliseconds since the Unix
epoch, by the driver's clock unless noted otherwise; unknown values are `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from fenceline.compat import SLOTS, StrEnum
from fenceline.facts import TopicPartition
from fenceline.spark.state_chains import OperatorState

#: Offsets by partition: the next offset to read, one past the last read record.
Positions = Mapping[TopicPartition, int]


class SourceOffset(NamedTuple):
    """The planned position of one source of a query: one line of `offsets/N`."""

    #: The source's position in the plan ("0", "1", …), or its own name under source evolution (Spark 4.2).
    source: str
    #: The line's JSON; None for `-`: nothing was read yet.
    raw: str | None
    #: Its meaning for Kafka's source; None for other sources.
    positions: Positions | None = None


@dataclass(frozen=True, **SLOTS)
class OffsetsEntry:
    """One file of the offset log: batch N is planned."""

    batch_id: int
    #: 1, or 2 with sources by name (`spark.sql.streaming.offsetLog.formatVersion`, Spark 4.2).
    version: int
    sources: tuple[SourceOffset, ...]
    #: The watermark of the batch; 0 without one.
    watermark_ms: int | None = None
    #: When it was planned.
    planned_ms: int | None = None
    #: The session's configuration that a restart takes over; an open map.
    conf: Mapping[str, str] = field(default_factory=dict)
    #: The operation of a data-less control batch ("" for others): Spark 4.2's `repartition`.
    control: str = ""
    #: Source id -> {"sourceId", "providerName", "apiVersion"}, in version 2.
    source_info: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, **SLOTS)
class CommitsEntry:
    """One file of the commit log: batch N is done."""

    batch_id: int
    #: 1, 2 with the unique ids of state files (`stateStore.checkpointFormatVersion`), 3 with sinks by name.
    version: int
    next_watermark_ms: int | None = None
    #: Operator id -> by store partition, the ids of its state files.
    state_ids: Mapping[str, Any] = field(default_factory=dict)


class Damage(StrEnum):
    """Why a file of a checkpoint is unusable."""

    MISSING = "missing"
    EMPTY = "empty"
    #: It ends too early, or is not text of its format.
    TORN = "torn"
    #: Its format version is unknown here.
    NEWER = "newer"
    #: It exists and may not be read.
    DENIED = "denied"


class Broken(NamedTuple):
    #: Relative to the checkpoint: `offsets/17`.
    path: str
    damage: Damage
    #: Details, in words for an operator.
    detail: str


class StateOperator(NamedTuple):
    """A stateful operator of the query, from its metadata file."""

    operator_id: int
    name: str
    #: Name, and number of partitions.
    stores: tuple[tuple[str, int], ...]


class FileSeen(NamedTuple):
    """A file of the logs, from the folder's listing."""

    size: int
    #: By the store's clock; None without one.
    modified_ms: int | None


@dataclass(frozen=True, **SLOTS)
class Checkpoint:
    """A checkpoint folder at one moment: the batches in its logs, and the newest entry of each.

    `offsets` and `commits` hold every batch id with a file, ascending.
    """

    path: str
    #: From `metadata`; None if that is broken, which `identity` then names.
    query_id: str | None
    identity: Broken | None
    offsets: tuple[int, ...]
    commits: tuple[int, ...]
    #: `offsets/O` of the newest planned batch O and the file before it; None without any.
    last_offsets: OffsetsEntry | Broken | None = None
    previous_offsets: OffsetsEntry | Broken | None = None
    #: `commits/C` of the newest finished batch C; None without any.
    last_commit: CommitsEntry | Broken | None = None
    #: The write times of those files, by the store's clock.
    offsets_ms: int | None = None
    commits_ms: int | None = None
    #: The start of each Kafka source, by its number (`sources/<i>/0`).
    initial: Mapping[str, Positions] = field(default_factory=dict)
    operators: tuple[StateOperator, ...] = ()
    #: Whether `state/` has files.
    has_state: bool = False
    #: The missing state for a restart, as far as its files were listed; "" if it is complete.
    state_broken: str = ""
    #: Whether the folder `commits/` exists: Spark before 2.2 wrote none.
    has_commits: bool = True
    #: Unreadable files, beside those above.
    broken: tuple[Broken, ...] = ()
    #: Names that no Spark writes there, the first few.
    foreign: tuple[str, ...] = ()

    @property
    def newest_planned(self) -> int | None:
        """The newest batch in the offset log (O), None without any."""
        return self.offsets[-1] if self.offsets else None

    @property
    def newest_finished(self) -> int | None:
        """The newest batch in the commit log (C), None without any."""
        return self.commits[-1] if self.commits else None


# The ledger of the exactly-once sink (docs/sink.md); its files are JSON, `fenceline.decode.ledger`.


class Decided(StrEnum):
    """The decision about the transactions of a batch, before any of them is ended."""

    #: Every record is flushed, every transaction verified: it will be committed, by any process.
    PREPARED = "prepared"
    #: They are to be aborted: the batch has failed, or is run again in another round.
    ABORTED = "aborted"


class DecisionOutcome(StrEnum):
    """The outcome of a decision."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Some of a prepared batch's transactions ended before their commit, and a person accepted the loss.
    LOST = "lost"


class PartitionRecords(NamedTuple):
    """A transaction's records in one partition, by the partition's leader before the commit.

    Leaders report no last offset, and it does not follow from the count: other producers' records, and
    markers, may lie between. It is below the transaction's marker.
    """

    topic: str
    partition: int
    first_offset: int
    records: int


class SinkTransaction(NamedTuple):
    """A transaction that one task of the sink wrote and left open."""

    partition: int
    attempt: int
    #: As escaped text (`fenceline.decode.text`).
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    records: int
    #: By its coordinator's clock.
    started_ms: int
    timeout_ms: int
    #: By partition, ascending; None if a leader did not report it, and in older ledgers.
    written: Optional[tuple[PartitionRecords, ...]] = None
    #: 128 bits in hex over keys and values in any order (`spark_pipeline.digests`); None without.
    digest: Optional[str] = None

    @property
    def expires_ms(self) -> int:
        return self.started_ms + self.timeout_ms


class InputRange(NamedTuple):
    """A batch's input from one source: the lines of `offsets/N-1` and `offsets/N`."""

    source: str
    start: Optional[str]
    end: Optional[str]


@dataclass(frozen=True, **SLOTS)
class Decision:
    """`N.R.decision`: the decision about batch N in round R. Created exclusively: it is the arbiter.

    A batch gets a new round for each restart after an abort; a prepared one is the last.
    """

    batch_id: int
    round: int
    decided: Decided
    #: "driver", or "operator" from the dashboard.
    by: str
    at_ms: int
    ledger_id: str
    query_id: str
    run_id: str
    generation: int
    transactions: tuple[SinkTransaction, ...] = ()
    input: tuple[InputRange, ...] = ()
    reason: str = ""


@dataclass(frozen=True, **SLOTS)
class Done:
    """`N.R.done`: every transaction of the decision has ended as decided, or is recorded as lost."""

    batch_id: int
    round: int
    outcome: DecisionOutcome
    at_ms: int
    by: str
    #: The lost transactional ids.
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, **SLOTS)
class Ledger:
    """`ledger.json`: the ledger's query, and the prefix of its transactional ids."""

    ledger_id: str
    query_id: str
    prefix: str
    created_ms: int
    #: The sink's first batch: not 0 if it took over from another sink.
    first_batch: int = 0


@dataclass(frozen=True, **SLOTS)
class LedgerState:
    """A ledger folder at one moment."""

    path: str
    ledger: Ledger | Broken
    #: The newest generation, and its run.
    generation: int | None = None
    run_id: str = ""
    decisions: tuple[Decision, ...] = ()
    done: tuple[Done, ...] = ()
    broken: tuple[Broken, ...] = ()
    #: Rows that the query dropped, by batch, if its progress counts them.
    dropped: Mapping[int, int] = field(default_factory=dict)

    def open_decisions(self) -> tuple[Decision, ...]:
        """Return decisions that are not completely carried out, oldest first."""
        ended = {(decision.batch_id, decision.round) for decision in self.done}
        return tuple(
            decision for decision in self.decisions if (decision.batch_id, decision.round) not in ended
        )


# A listener's reports.


@dataclass(frozen=True, **SLOTS)
class SourceProgress:
    """A batch's input from one source, from its progress event."""

    description: str
    #: JSON text, or None.
    start: str | None
    end: str | None
    latest: str | None
    #: None if Spark does not count them.
    input_rows: int | None
    input_rate: float | None = None
    processed_rate: float | None = None
    #: Kafka's minOffsetsBehindLatest and others, in Spark's spelling: text.
    metrics: Mapping[str, str] = field(default_factory=dict)


class OperatorProgress(NamedTuple):
    """A batch's effect on one stateful operator's state; rows are None if Spark does not count them."""

    name: str
    rows_total: int | None
    rows_updated: int | None
    rows_removed: int | None
    memory_bytes: int
    rows_dropped_by_watermark: int | None
    commit_ms: int
    custom: Mapping[str, int]


#: The metric of `dropDuplicates` (StreamingDeduplicateExec).
DROPPED_DUPLICATES = "numDroppedDuplicateRows"


@dataclass(frozen=True, **SLOTS)
class BatchProgress:
    """A QueryProgressEvent: batch N has finished. Rates are rows per second; None for Spark's NaN."""

    query_id: str
    run_id: str
    name: str
    batch_id: int
    #: The start of its trigger.
    started_ms: int
    duration_ms: int
    #: None if Spark does not count them.
    input_rows: int | None
    input_rate: float | None
    processed_rate: float | None
    #: Milliseconds by phase, in Spark's names: addBatch, walCommit, commitOffsets, triggerExecution, …
    durations: Mapping[str, int]
    watermark_ms: int | None
    sources: tuple[SourceProgress, ...]
    operators: tuple[OperatorProgress, ...]
    sink: str
    #: None if the sink does not count.
    output_rows: int | None
    #: Rows that the query itself counts as dropped: `dropped` of its observation `fenceline`; None without
    #: it.
    observed_dropped: int | None = None

    @property
    def dropped_rows(self) -> int | None:
        """Return the dropped rows: late, duplicate and observed ones; None without any count."""
        late = (operator.rows_dropped_by_watermark for operator in self.operators)
        doubled = (operator.custom.get(DROPPED_DUPLICATES) for operator in self.operators)
        counts = [rows for rows in (*late, *doubled, self.observed_dropped) if rows is not None]
        return sum(counts) if counts else None


class QueryState(StrEnum):
    """The state of a query, as far as its listener reports."""

    RUNNING = "running"
    #: It runs, and has no data.
    IDLE = "idle"
    STOPPED = "stopped"
    #: It ended with an exception.
    FAILED = "failed"
    #: No listener has reported it, or none recently: files alone do not show whether a driver lives.
    UNHEARD = "unheard"


@dataclass(frozen=True, **SLOTS)
class CheckpointObservation:
    """A collector's new facts about one checkpoint since its last poll.

    `planned` and `finished` are the newly read entries, ascending, `committed_ms` the write time of each in
    `finished`; all other fields are the present state.
    """

    checkpoint: Checkpoint
    ledger: LedgerState | None
    planned: tuple[OffsetsEntry, ...] = ()
    finished: tuple[CommitsEntry, ...] = ()
    committed_ms: Mapping[int, int] = field(default_factory=dict)
    #: The files of its state, once per complete listing.
    state: tuple[OperatorState, ...] = ()
