"""Judge one batch of the exactly-once sink by its input, its output and the readable records: verdict and
obstacles; and find other writers to the output: producers without a decision in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedMarker,
    AuditedRange,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
)
from fenceline.audit.runs import COMMIT, PartitionRuns, ProducerRun
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun
from fenceline.grouping import grouped
from fenceline.spark.records import Decision, SinkTransaction

#: Maximum ranges of one batch in the manifest.
MOST_RANGES = 20


class OutputRange(NamedTuple):
    """The content of an output partition, and the offset from which it was read."""

    #: The end of the last audit.
    asked: int
    log_start: int
    lso: int
    #: Whether the topic is another one than in the last audit, or has lost known offsets.
    recreated: bool = False


@dataclass(frozen=True, **SLOTS)
class Output:
    """The output's partitions, and the runs in them."""

    ranges: Mapping[TopicPartition, OutputRange]
    runs: Mapping[tuple[int, int], tuple[ProducerRun, ...]]
    holes: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of_transaction(self, transaction: SinkTransaction) -> tuple[ProducerRun, ...]:
        return self.runs.get((transaction.producer_id, transaction.producer_epoch), ())

    def why_gone(self, partition: TopicPartition) -> ObstacleKind | None:
        range_ = self.ranges.get(partition)
        if range_ is None or range_.recreated:
            return ObstacleKind.TOPIC_RECREATED
        if range_.log_start > range_.asked:
            return ObstacleKind.RETENTION
        return ObstacleKind.COMPACTED if partition in self.holes else None


class BatchInput(NamedTuple):
    """A batch's input: the number of records, None if unknown, and the reason."""

    records: int | None
    ranges: tuple[AuditedRange, ...] = ()
    obstacle: AuditObstacle | None = None
    #: Records that the query dropped, from Spark's progress; None if it reports none.
    dropped: int | None = None


class AuditedPartition(NamedTuple):
    """A row of the table `partitions`: one batch in one output partition. End offsets are exclusive."""

    batch_id: int
    topic: str
    partition: int
    written: int
    committed: int
    readable: int
    duplicated: int
    from_offset: int
    to_offset: int


class Judged(NamedTuple):
    """A batch with its verdict, its rows, and the obstacles to a proof."""

    batch: AuditedBatch
    rows: tuple[AuditedPartition, ...] = ()
    obstacles: tuple[AuditObstacle, ...] = ()
    #: All of its input, if all of it is missing.
    losses: tuple[AuditedRange, ...] = ()


def index_output(ranges: Mapping[TopicPartition, OutputRange], partitions: Iterable[PartitionRuns]) -> Output:
    known = list(partitions)
    runs = grouped(
        ((run.producer_id, run.producer_epoch), run) for partition in known for run in partition.runs
    )
    holes = {partition.partition: partition.hole for partition in known if partition.hole is not None}
    return Output(ranges, {key: tuple(producer_runs) for key, producer_runs in runs.items()}, holes)


def judge_batch(
    decision: Decision, read: BatchInput, output: Output, again: Sequence[ProducerRun], *, one_to_one: bool
) -> Judged:
    """Judge a batch whose decision was carried out.

    `again` are committed runs of rounds with a decision to abort. `one_to_one`: the query neither drops nor
    adds records; otherwise records that it read and did not write are an obstacle, not a loss.
    """
    runs = [run for transaction in decision.transactions for run in output.of_transaction(transaction)]
    declared = sum(transaction.records for transaction in decision.transactions)
    committed = sum(run.records for run in runs if run.is_committed)
    readable = sum(run.records for run in runs if _is_readable(run, output))
    short, extra = _differences(decision, output)
    obstacles = [*_gone(decision, output), *_unreadable(decision, runs, output)]
    ended = sum(run.records for run in runs if not run.is_open)
    missing: int | None = short + max(0, ended - extra - committed)
    if missing and any(obstacle.kind is not ObstacleKind.UNREADABLE for obstacle in obstacles):
        missing = None
    duplicated = extra + sum(run.records for run in again)
    dropped, unknown = _dropped(decision.batch_id, read, declared)
    if one_to_one and read.records is not None:
        dropped, unknown = 0, None
        missing = None if missing is None else missing + max(0, read.records - declared)
        duplicated += max(0, declared - read.records)
    obstacles += [obstacle for obstacle in (read.obstacle, unknown) if obstacle is not None]
    losses = read.ranges if missing and not committed else ()
    batch = AuditedBatch(
        decision.batch_id,
        _verdict(missing, duplicated, proved=not obstacles and dropped is not None),
        decision.at_ms,
        read.records,
        dropped,
        sum(run.records for run in runs),
        committed,
        readable,
        duplicated,
        missing,
        losses[:MOST_RANGES],
        tuple(_range(run) for run in again)[:MOST_RANGES],
        tuple(_markers(runs))[:MOST_RANGES],
    )
    return Judged(batch, _rows(decision.batch_id, runs, again, output), tuple(obstacles), losses)


def judge_unknown(batch_id: int, read: BatchInput, folder: str) -> Judged:
    """Return the known facts about a batch without a decision in the ledger: its input."""
    obstacle = AuditObstacle(
        ObstacleKind.LEDGER_MISSING,
        folder,
        f"no decision about batch {batch_id} is in the ledger",
        "what this batch wrote cannot be distinguished from other records",
    )
    obstacles = [known for known in (read.obstacle, obstacle) if known is not None]
    return Judged(AuditedBatch(batch_id, AuditVerdict.UNPROVED, input=read.records), (), tuple(obstacles))


def judge_control(batch_id: int) -> Judged:
    """Return the verdict on a batch without data that never reaches the sink (Spark 4.2's `repartition`)."""
    return Judged(AuditedBatch(batch_id, AuditVerdict.PROVED, None, 0, 0, 0, 0, 0, 0, 0))


def pending_batch(decision: Decision) -> AuditedBatch:
    """Return a batch that is prepared and not carried out yet."""
    return AuditedBatch(decision.batch_id, AuditVerdict.PREPARED, decision.at_ms)


def runs_again(index: LedgerIndex, output: Output, first: int) -> Mapping[int, tuple[ProducerRun, ...]]:
    """Return committed runs, by batch, of rounds with a decision to abort, and of audited batches.

    Batches before `first` were audited already, so every committed run of theirs found now is a duplicate.
    """
    runs: dict[int, tuple[ProducerRun, ...]] = {}
    for (producer_id, epoch), of_producer in output.runs.items():
        decision = index.owner(producer_id, epoch)
        if decision is None:
            continue
        if decision is index.decision(decision.batch_id) and decision.batch_id >= first:
            continue
        committed = tuple(run for run in of_producer if run.is_committed)
        if committed:
            runs[decision.batch_id] = runs.get(decision.batch_id, ()) + committed
    return runs


def judge_again(batch_id: int, again: Sequence[ProducerRun], output: Output) -> Judged:
    """Return the verdict on a formerly audited batch whose records were written once more."""
    batch = AuditedBatch(
        batch_id,
        AuditVerdict.VIOLATED,
        duplicated=sum(run.records for run in again),
        duplicates=tuple(map(_range, again))[:MOST_RANGES],
    )
    return Judged(batch, _rows(batch_id, (), again, output))


def _verdict(missing: int | None, duplicated: int, *, proved: bool) -> AuditVerdict:
    if missing or duplicated:
        return AuditVerdict.VIOLATED
    return AuditVerdict.PROVED if proved and missing == 0 else AuditVerdict.UNPROVED


def _differences(decision: Decision, output: Output) -> tuple[int, int]:
    """Return how many records are missing, and how many are surplus, compared with the tasks' counts."""
    short = extra = 0
    for transaction in decision.transactions:
        difference = transaction.records - sum(run.records for run in output.of_transaction(transaction))
        short, extra = short + max(0, difference), extra + max(0, -difference)
    return short, extra


def _gone(decision: Decision, output: Output) -> Iterable[AuditObstacle]:
    for transaction in decision.transactions:
        if transaction.records <= sum(run.records for run in output.of_transaction(transaction)):
            continue
        for partition in transaction.partitions:
            kind = output.why_gone(partition)
            if kind is not None:
                after = f"from batch {decision.batch_id} on, records of it can no longer be counted"
                yield AuditObstacle(kind, str(partition), _GONE[kind], after)


_GONE = {
    ObstacleKind.RETENTION: "records were deleted by retention before this audit came",
    ObstacleKind.COMPACTED: "records were removed by compaction",
    ObstacleKind.TOPIC_RECREATED: "the topic was deleted and created again, or has lost offsets",
}


def _unreadable(decision: Decision, runs: Sequence[ProducerRun], output: Output) -> Iterable[AuditObstacle]:
    for run in runs:
        if run.is_open:
            # The decision counts as carried out once the coordinators have it: markers follow.
            yield AuditObstacle(
                ObstacleKind.UNREADABLE,
                str(run.partition),
                f"no marker has ended the transaction of batch {decision.batch_id} yet",
                "readers of committed records do not get them before the marker is written",
            )
        elif run.is_committed and not _is_readable(run, output):
            lso = output.ranges[run.partition].lso
            yield AuditObstacle(
                ObstacleKind.UNREADABLE,
                str(run.partition),
                f"committed records of batch {decision.batch_id} follow the last stable offset {lso:,}",
                "readers of committed records do not get them until the transaction that blocks them ends",
            )


def _dropped(batch_id: int, read: BatchInput, declared: int) -> tuple[int | None, AuditObstacle | None]:
    if read.records is None:
        return None, None
    if read.records == declared:
        return 0, None
    if read.records - declared == read.dropped:
        return read.dropped, None
    wrote = count_noun(declared, "record")
    reported = "" if read.dropped is None else f"; by its progress it dropped {read.dropped:,}"
    return None, AuditObstacle(
        ObstacleKind.INPUT_UNKNOWN,
        "query",
        f"batch {batch_id} read {count_noun(read.records, 'record')} and wrote {wrote}{reported}",
        "how many of them the query drops or adds is not known; where it does neither, use --one-to-one",
    )


def _is_readable(run: ProducerRun, output: Output) -> bool:
    return run.is_committed and run.last < output.ranges[run.partition].lso


def _markers(runs: Iterable[ProducerRun]) -> Iterable[AuditedMarker]:
    for run in sorted(runs, key=lambda run: run.partition):
        if run.end == COMMIT and run.marker is not None:
            yield AuditedMarker(*run.partition, run.marker)


def _range(run: ProducerRun) -> AuditedRange:
    return AuditedRange(*run.partition, run.first, run.last + 1)


def _rows(
    batch_id: int, runs: Sequence[ProducerRun], again: Sequence[ProducerRun], output: Output
) -> tuple[AuditedPartition, ...]:
    partitions: dict[TopicPartition, AuditedPartition] = {}
    for run, counts in [*((run, True) for run in runs), *((run, False) for run in again)]:
        where = run.partition
        row = partitions.get(where) or AuditedPartition(
            batch_id, where.topic, where.partition, 0, 0, 0, 0, run.first, 0
        )
        partitions[where] = row._replace(
            written=row.written + run.records * counts,
            committed=row.committed + run.records * (counts and (run.end == COMMIT)),
            readable=row.readable + run.records * (counts and _is_readable(run, output)),
            duplicated=row.duplicated + run.records * (not counts),
            from_offset=min(row.from_offset, run.first),
            to_offset=max(row.to_offset, run.last + 1),
        )
    return tuple(partitions[where] for where in sorted(partitions))


#: The owner of a producer id, as coordinators report it: its transactional id, and the prefix of all ids of
#: that sink's ledger, "" if it is no exactly-once sink.
ProducerOwner = tuple[str, str]


def foreign_runs(index: LedgerIndex, output: Output, since_ms: int) -> tuple[ProducerRun, ...]:
    """Return readable runs without a decision since the sink's first write to the partition.

    Records before the sink's first run that are older than `since_ms` are not included.
    """
    runs = list(chain.from_iterable(output.runs.values()))
    begins = _begins(index, output, runs)
    return tuple(
        run
        for run in runs
        if run.is_committed and index.owner(run.producer_id, run.producer_epoch) is None
        if run.newest_ms >= since_ms or run.last >= begins.get(run.partition, run.last + 1)
    )


def _begins(index: LedgerIndex, output: Output, runs: Iterable[ProducerRun]) -> Mapping[TopicPartition, int]:
    """Return the offset in each partition from which the sink is known to write."""
    asked = {where: range_.asked for where, range_ in output.ranges.items() if range_.asked}
    for run in runs:
        if index.owner(run.producer_id, run.producer_epoch) is not None:
            asked[run.partition] = min(run.first, asked.get(run.partition, run.first))
    return asked


def foreign_obstacles(
    foreign: Iterable[ProducerRun], owners: Mapping[int, ProducerOwner], stem: str
) -> tuple[AuditObstacle, ...]:
    """Return an obstacle for each partition with other writers, and for each other query among them.

    `stem` is the prefix of the audited sink's transactional ids: its own runs without a decision belong to
    batches that have left the ledger.
    """
    obstacles: dict[tuple[ObstacleKind, str], AuditObstacle] = {}
    for run in foreign:
        owner = owners.get(run.producer_id)
        if owner is not None and owner[1] == stem:
            continue
        obstacle = _obstacle(run, owner)
        obstacles.setdefault((obstacle.kind, obstacle.where), obstacle)
    return tuple(obstacles.values())


def _obstacle(run: ProducerRun, owner: ProducerOwner | None) -> AuditObstacle:
    records = f"{count_noun(run.records, 'record')} from offset {run.first:,} on"
    transactional_id, stem = owner or ("", "")
    if stem:
        return AuditObstacle(
            ObstacleKind.SHARED_OUTPUT,
            run.partition.topic,
            f"the exactly-once sink {stem} writes to it too: {records} in {run.partition}",
            "each query is audited by its own ledger; the topic as a whole is not proved",
        )
    who = f"transactional id {transactional_id}" if owner else _unnamed(run)
    return AuditObstacle(
        ObstacleKind.FOREIGN_RECORDS,
        str(run.partition),
        f"{who} has written {records}, and no decision of the ledger names it",
        "these records may repeat or replace those of the query; the topic as a whole is not proved",
    )


def _unnamed(run: ProducerRun) -> str:
    if run.producer_id < 0:
        return "a producer without idempotence"
    kind = "a transactional producer" if run.transactional else "an idempotent producer"
    return f"{kind} (producer id {run.producer_id})"
