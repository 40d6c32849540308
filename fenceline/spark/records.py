"""Spark's words as immutable values: what a checkpoint folder, a sink's ledger and a progress event hold.

A streaming query plans micro-batch N by writing `offsets/N`, runs it (the sink's commit is inside), and then
writes `commits/N` (Spark's MicroBatchExecution). Instants end in `_ms` and count milliseconds since the Unix
epoch, by the driver's clock unless noted otherwise; what is not known is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from fenceline.compat import SLOTS, StrEnum
from fenceline.facts import TopicPartition
from fenceline.spark.state_chains import OperatorState

#: Offsets by partition: the next offset to read, one past the last record that was read.
Positions = Mapping[TopicPartition, int]


class SourceOffset(NamedTuple):
    """How far one source of a query is planned, as one line of `offsets/N` has it."""

    #: The source's place in the plan ("0", "1", …), or its own name under source evolution (Spark 4.2).
    source: str
    #: The line's own JSON; None for `-`: nothing was read yet.
    raw: str | None
    #: What it means where it is Kafka's; None for sources of other kinds.
    positions: Positions | None = None


@dataclass(frozen=True, **SLOTS)
class OffsetsEntry:
    """One file of the offset log: batch N is planned."""

    batch_id: int
    #: 1, or 2 with sources by name (`spark.sql.streaming.offsetLog.formatVersion`, Spark 4.2).
    version: int
    sources: tuple[SourceOffset, ...]
    #: The watermark that the batch uses; 0 where there is none.
    watermark_ms: int | None = None
    #: When it was planned.
    planned_ms: int | None = None
    #: What of the session's configuration a restart takes over; an open map.
    conf: Mapping[str, str] = field(default_factory=dict)
    #: What a data-less control batch does ("" in all others): Spark 4.2's `repartition`.
    control: str = ""
    #: Source id -> {"sourceId", "providerName", "apiVersion"}, where version 2 has it.
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
    #: Sink's name -> {"sinkName", "providerName", "isActive", …}, where version 3 has it (Spark 4.2).
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Damage(StrEnum):
    """Why a file of a checkpoint cannot be used."""

    MISSING = "missing"
    EMPTY = "empty"
    #: It ends too early, or is no text of its format.
    TORN = "torn"
    #: Of a format version that nobody here knows.
    NEWER = "newer"
    #: It is there and may not be read.
    DENIED = "denied"


class Broken(NamedTuple):
    """A file that cannot be used."""

    #: Relative to the checkpoint: `offsets/17`.
    path: str
    damage: Damage
    #: The particulars, in words for an operator.
    detail: str


class StateStore(NamedTuple):
    """One state store of an operator."""

    name: str
    partitions: int


class StateOperator(NamedTuple):
    """A stateful operator of the query, as its metadata file has it."""

    operator_id: int
    name: str
    stores: tuple[StateStore, ...]


class FileSeen(NamedTuple):
    """A file of the logs, as the folder lists it."""

    size: int
    #: By the store's clock; None where it has none.
    modified_ms: int | None


@dataclass(frozen=True, **SLOTS)
class Checkpoint:
    """A checkpoint folder at one moment: what its logs hold, and the newest entries of each.

    `offsets` and `commits` hold every batch id whose file is there, ascending.
    """

    path: str
    #: From `metadata`; None where that is broken, which `identity` then names.
    query_id: str | None
    identity: Broken | None
    offsets: tuple[int, ...]
    commits: tuple[int, ...]
    #: `offsets/O` of the newest planned batch O and the file before it; None without any.
    last_offsets: OffsetsEntry | Broken | None = None
    previous_offsets: OffsetsEntry | Broken | None = None
    #: `commits/C` of the newest finished batch C; None without any.
    last_commit: CommitsEntry | Broken | None = None
    #: When those files were written, by the store's clock.
    offsets_ms: int | None = None
    commits_ms: int | None = None
    #: Where each Kafka source began, by its number (`sources/<i>/0`).
    initial: Mapping[str, Positions] = field(default_factory=dict)
    operators: tuple[StateOperator, ...] = ()
    #: Whether `state/` has files.
    has_state: bool = False
    #: What a restart cannot load of it, as far as its files were listed; "" where nothing is missing.
    state_broken: str = ""
    #: Whether there is a folder `commits/`: Spark before 2.2 wrote none.
    has_commits: bool = True
    #: Files that could not be read, beside those above.
    broken: tuple[Broken, ...] = ()
    #: Names in it that no Spark writes there, the first few.
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
    """What was decided about the transactions of a batch, before any of them is ended."""

    #: Every record is flushed, every transaction verified: it will be committed, whoever is to do it.
    PREPARED = "prepared"
    #: They are to be aborted: the batch has failed, or is run again under another round.
    ABORTED = "aborted"


class DecisionOutcome(StrEnum):
    """How a decision ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    #: Some of a prepared batch's transactions were gone before they were committed, and a person took note.
    LOST = "lost"


class PartitionRecords(NamedTuple):
    """What a transaction has written to one partition, by the partition's leader before the commit.

    Leaders report no last offset, and it does not follow from the count: records of other producers, and
    markers, may lie between. It is below the transaction's marker.
    """

    topic: str
    partition: int
    first_offset: int
    records: int


class SinkTransaction(NamedTuple):
    """A transaction that one task of the sink has written and left open."""

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
    #: By partition, ascending; None where a leader did not report it, and in ledgers of before.
    written: Optional[tuple[PartitionRecords, ...]] = None
    #: 128 bits as hex, of keys and values in any order (`spark_pipeline.digests`); None without.
    digest: Optional[str] = None

    @property
    def expires_ms(self) -> int:
        """When its coordinator may abort it."""
        return self.started_ms + self.timeout_ms


class InputRange(NamedTuple):
    """What a batch reads from one source: the lines of `offsets/N-1` and `offsets/N`."""

    source: str
    start: Optional[str]
    end: Optional[str]


@dataclass(frozen=True, **SLOTS)
class Decision:
    """`N.R.decision`: what was decided about batch N in round R. Created exclusively: it is the arbiter.

    A batch has as many rounds as it was begun again after an aborted one; a prepared one ends them.
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
    """`N.R.done`: every transaction of that decision has ended as decided, or is recorded as lost."""

    batch_id: int
    round: int
    outcome: DecisionOutcome
    at_ms: int
    by: str
    #: The transactional ids of what is lost.
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, **SLOTS)
class Ledger:
    """`ledger.json`: which query this ledger belongs to, and how its transactional ids begin."""

    ledger_id: str
    query_id: str
    prefix: str
    created_ms: int
    #: The first batch that the sink has written: not 0 where it took over from another sink.
    first_batch: int = 0


@dataclass(frozen=True, **SLOTS)
class LedgerState:
    """A ledger folder at one moment."""

    path: str
    ledger: Ledger | Broken
    #: The newest generation, and the run that claimed it.
    generation: int | None = None
    run_id: str = ""
    decisions: tuple[Decision, ...] = ()
    done: tuple[Done, ...] = ()
    broken: tuple[Broken, ...] = ()
    #: Rows that the query dropped, by batch, where its progress counts them.
    dropped: Mapping[int, int] = field(default_factory=dict)

    def open_decisions(self) -> tuple[Decision, ...]:
        """Return decisions that nobody has carried out to the end, oldest first."""
        ended = {(decision.batch_id, decision.round) for decision in self.done}
        return tuple(
            decision for decision in self.decisions if (decision.batch_id, decision.round) not in ended
        )


# What a listener reports.


@dataclass(frozen=True, **SLOTS)
class SourceProgress:
    """What a batch has read from one source, as its progress event has it."""

    description: str
    #: JSON text, or None.
    start: str | None
    end: str | None
    latest: str | None
    #: None where Spark does not count them.
    input_rows: int | None
    input_rate: float | None = None
    processed_rate: float | None = None
    #: Kafka's: minOffsetsBehindLatest, … as Spark writes them: text.
    metrics: Mapping[str, str] = field(default_factory=dict)


class OperatorProgress(NamedTuple):
    """What a batch did to one stateful operator's state; rows are None where Spark does not count them."""

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
    """A QueryProgressEvent: batch N has finished. Rates are rows per second; None where Spark has NaN."""

    query_id: str
    run_id: str
    name: str
    batch_id: int
    #: When its trigger began.
    started_ms: int
    duration_ms: int
    #: None where Spark does not count them.
    input_rows: int | None
    input_rate: float | None
    processed_rate: float | None
    #: Milliseconds by phase, in Spark's words: addBatch, walCommit, commitOffsets, triggerExecution, …
    durations: Mapping[str, int]
    watermark_ms: int | None
    sources: tuple[SourceProgress, ...]
    operators: tuple[OperatorProgress, ...]
    sink: str
    #: None where the sink does not count.
    output_rows: int | None
    #: Rows that the query itself counts as dropped: `dropped` of its observation `fenceline`; None without.
    observed_dropped: int | None = None

    @property
    def dropped_rows(self) -> int | None:
        """Rows that the query dropped, late, duplicate and observed ones; None where none is counted."""
        late = (operator.rows_dropped_by_watermark for operator in self.operators)
        doubled = (operator.custom.get(DROPPED_DUPLICATES) for operator in self.operators)
        counts = [rows for rows in (*late, *doubled, self.observed_dropped) if rows is not None]
        return sum(counts) if counts else None


class QueryState(StrEnum):
    """How a query is doing, as far as its listener reports."""

    RUNNING = "running"
    #: It runs, and there is nothing to do.
    IDLE = "idle"
    STOPPED = "stopped"
    #: It ended with an exception.
    FAILED = "failed"
    #: No listener has reported it, or none for too long: files alone do not show whether a driver lives.
    UNHEARD = "unheard"


@dataclass(frozen=True, **SLOTS)
class CheckpointObservation:
    """What a collector found at one checkpoint since its last look.

    `planned` and `finished` are the entries that it read newly, ascending, `committed_ms` when each of
    `finished` was written; everything else is what there is now.
    """

    checkpoint: Checkpoint
    ledger: LedgerState | None
    planned: tuple[OffsetsEntry, ...] = ()
    finished: tuple[CommitsEntry, ...] = ()
    committed_ms: Mapping[int, int] = field(default_factory=dict)
    #: The files of its state, once for each time that all of them were listed.
    state: tuple[OperatorState, ...] = ()
