"""One run of the audit by counts: the records that batches of the exactly-once sink read, wrote and left
readable.

It reads the ledger, then the output's end offsets, then the ledger again. Batches that are done in the first
reading lie below those offsets; the second reading names the writers of all records below them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from fenceline.audit.judging import (
    BatchInput,
    Judged,
    Output,
    OutputRange,
    foreign_obstacles,
    foreign_runs,
    index_output,
    judge_again,
    judge_batch,
    judge_control,
    judge_unknown,
    pending_batch,
    runs_again,
)
from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.manifest import AuditedPosition, AuditedRange, AuditManifest, AuditObstacle, ObstacleKind
from fenceline.audit.runs import ProducerRun, ReadCount, ReadRange
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.grouping import grouped
from fenceline.kafka.partitions import Offsets
from fenceline.spark.records import Ledger
from spark_pipeline.audits import AuditError
from spark_pipeline.audits.checkpoint import AuditedCheckpoint
from spark_pipeline.audits.cluster import (
    InputScan,
    OutputScan,
    TopicEnds,
    read_owners,
    read_topics,
    require_seen,
    scan_input,
    scan_output,
    scan_partitions,
)
from spark_pipeline.sink.names import id_stem


@dataclass(frozen=True, **SLOTS)
class CountsOptions:
    """The request of a run by counts. `properties` are librdkafka's."""

    properties: Mapping[str, str]
    targets: tuple[str, ...]
    committed_only: bool
    one_to_one: bool


@dataclass(frozen=True, **SLOTS)
class Findings:
    #: Audited batches in ascending order, and batches that wait for the next run.
    judged: tuple[Judged, ...]
    waiting: tuple[Judged, ...]
    obstacles: tuple[AuditObstacle, ...]
    index: LedgerIndex
    output: Output
    topic_ids: Mapping[str, str]
    sources: tuple[str, ...]


def audit_counts(
    spark: SparkSession, checkpoint: AuditedCheckpoint, options: CountsOptions, before: AuditManifest | None
) -> Findings:
    """Audit the batches that have ended since the last run. Raises AuditError."""
    ledger, finished = checkpoint.read_identity(), checkpoint.finished()
    done = LedgerIndex(checkpoint.read_ledger())
    targets = read_topics(options.properties, _targets(options, done))
    index = LedgerIndex(checkpoint.read_ledger())
    first = _first_batch(before, ledger, done, finished)
    settled = done.settled(first, finished)
    positions = {
        TopicPartition(position.topic, position.partition): position
        for position in (before.positions if before else ())
    }
    output = _read_output(spark, options, targets, positions)
    reads, sources = _read_inputs(spark, checkpoint, options, done, settled)
    again = runs_again(index, output, first)
    judged, waiting = _judge(checkpoint, options, done, settled, reads, output, again)
    next_batch = judged[-1].batch.batch_id + 1 if judged else first
    late = [judge_again(batch, runs, output) for batch, runs in sorted(again.items()) if batch < first]
    waiting += [
        Judged(pending_batch(decision))
        for batch in index.batch_ids
        if batch >= next_batch and batch not in {item.batch.batch_id for item in waiting}
        if (decision := index.decision(batch)) is not None
    ]
    obstacles = [
        *_ledger_obstacles(checkpoint, ledger, before, done, first),
        *_topic_obstacles(targets, positions),
        *_foreign(options, index, output, ledger),
    ]
    return Findings(
        (*late, *judged), tuple(waiting), tuple(obstacles), index, output, targets.topic_ids, sources
    )


def _targets(options: CountsOptions, index: LedgerIndex) -> tuple[str, ...]:
    topics = tuple(sorted({*options.targets, *index.topics()}))
    if not topics:
        raise AuditError("no batch has written yet, and no --target names the output topic")
    return topics


def _first_batch(
    before: AuditManifest | None, ledger: Ledger | None, done: LedgerIndex, finished: Iterable[int]
) -> int:
    """Return the first batch to audit: after the last run, or the first batch in the ledger."""
    if before is not None and before.next_batch is not None:
        return before.next_batch
    known = done.batch_ids or tuple(sorted(finished))
    return max(known[0] if known else 0, ledger.first_batch if ledger else 0)


def _read_output(
    spark: SparkSession,
    options: CountsOptions,
    targets: TopicEnds,
    positions: Mapping[TopicPartition, AuditedPosition],
) -> Output:
    ranges = {
        where: _output_range(offsets, positions.get(where), targets.topic_ids.get(where.topic, ""))
        for where, offsets in targets.offsets.items()
    }
    scans = [
        OutputScan(
            where,
            max(found.asked, found.log_start),
            found.lso,
            targets.offsets[where].high_watermark,
            dict(positions[where].spanning) if where in positions and not found.recreated else {},
        )
        for where, found in sorted(ranges.items())
    ]
    return index_output(
        ranges, map(require_seen, scan_partitions(spark, options.properties, scans, scan_output))
    )


def _output_range(now: Offsets, before: AuditedPosition | None, topic_id: str) -> OutputRange:
    if before is None:
        return OutputRange(0, now.log_start, now.lso)
    other = bool(before.topic_id and topic_id and before.topic_id != topic_id)
    if other or before.offset > now.high_watermark:
        return OutputRange(0, now.log_start, now.lso, recreated=True)
    return OutputRange(before.offset, now.log_start, now.lso)


def _judge(
    checkpoint: AuditedCheckpoint,
    options: CountsOptions,
    done: LedgerIndex,
    settled: Sequence[int],
    reads: Mapping[int, BatchInput],
    output: Output,
    again: Mapping[int, tuple[ProducerRun, ...]],
) -> tuple[list[Judged], list[Judged]]:
    """Return the batches to audit now, and the first batch that must wait.

    A batch waits while readers do not get its records, or while its progress may still report dropped rows.
    """
    judged: list[Judged] = []
    for batch_id in settled:
        decision = done.decision(batch_id)
        if decision is None and checkpoint.files.is_control(batch_id):
            batch = judge_control(batch_id)
        elif decision is None:
            batch = judge_unknown(batch_id, reads[batch_id], checkpoint.ledger_path)
        else:
            batch = judge_batch(
                decision, reads[batch_id], output, again.get(batch_id, ()), one_to_one=options.one_to_one
            )
        if any(obstacle.kind is ObstacleKind.UNREADABLE for obstacle in batch.obstacles):
            return judged, [batch]
        if batch_id == settled[-1] == done.batch_ids[-1] and _lacks_drops(batch, reads[batch_id]):
            return judged, [batch._replace(obstacles=())]
        judged.append(batch)
    return judged, []


def _lacks_drops(judged: Judged, read: BatchInput) -> bool:
    """Whether only the number of dropped rows is missing: it comes in progress, after the commit."""
    return judged.batch.dropped is None and read.records is not None and read.dropped is None


def _read_inputs(
    spark: SparkSession,
    checkpoint: AuditedCheckpoint,
    options: CountsOptions,
    done: LedgerIndex,
    settled: Sequence[int],
) -> tuple[Mapping[int, BatchInput], tuple[str, ...]]:
    """Return the input of each batch, and the topics of the input."""
    ranges = {batch: checkpoint.input_of(batch, done.decision(batch)) for batch in settled}
    sources = tuple(sorted({where.topic for ranges_read in ranges.values() for where in ranges_read or ()}))
    topics = read_topics(options.properties, sources) if sources else None
    by_partition = grouped(read for ranges_read in ranges.values() for read in (ranges_read or {}).items())
    gone, scans = _input_scans(topics, by_partition, options)
    counts: dict[int, list[ReadCount]] = {batch: [] for batch in settled}
    for partition in scan_partitions(spark, options.properties, scans, scan_input):
        for count in require_seen(partition):
            counts[count.batch_id].append(count)
    return {
        batch: _batch_input(batch, ranges[batch], counts[batch], gone.get(batch), done.dropped(batch))
        for batch in settled
    }, sources


def _input_scans(
    topics: TopicEnds | None,
    by_partition: Mapping[TopicPartition, Sequence[ReadRange]],
    options: CountsOptions,
) -> tuple[Mapping[int, AuditObstacle], list[InputScan]]:
    """Return the deleted part of each batch's input, and the scans that count the remaining records."""
    gone: dict[int, AuditObstacle] = {}
    scans = []
    for where, ranges in by_partition.items():
        now = topics.offsets.get(where) if topics else None
        remaining = []
        for range_ in ranges:
            obstacle = _gone_input(where, range_, now)
            if obstacle is None:
                remaining.append(range_)
            else:
                gone.setdefault(range_.batch_id, obstacle)
        if remaining and now is not None:
            scans.append(InputScan(where, remaining, now.high_watermark, options.committed_only))
    return gone, scans


def _gone_input(where: TopicPartition, read: ReadRange, now: Offsets | None) -> AuditObstacle | None:
    consequence = f"what batch {read.batch_id} read can no longer be counted"
    if now is None or read.to_offset > now.high_watermark:
        return AuditObstacle(
            ObstacleKind.TOPIC_RECREATED,
            str(where),
            f"batch {read.batch_id} read to offset {read.to_offset:,}, which this partition does not have",
            consequence,
        )
    if read.from_offset < now.log_start:
        return AuditObstacle(
            ObstacleKind.RETENTION,
            str(where),
            f"it begins at {now.log_start:,}, and batch {read.batch_id} read from {read.from_offset:,} on",
            consequence,
        )
    return None


def _batch_input(
    batch_id: int,
    ranges: Mapping[TopicPartition, ReadRange] | None,
    counts: Sequence[ReadCount],
    gone: AuditObstacle | None,
    dropped: int | None,
) -> BatchInput:
    if ranges is None:
        return BatchInput(None, (), _input_unknown(batch_id, "its sources are not all Kafka topics"))
    audited = tuple(
        AuditedRange(where.topic, where.partition, range_.from_offset, range_.to_offset)
        for where, range_ in sorted(ranges.items())
    )
    unknown = next((count for count in counts if count.records is None), None)
    if unknown is not None:
        gone = gone or _input_unknown(batch_id, f"{unknown.partition}: {unknown.reason}")
    if gone is not None:
        return BatchInput(None, audited, gone)
    return BatchInput(sum(count.records or 0 for count in counts), audited, dropped=dropped)


def _input_unknown(batch_id: int, why: str) -> AuditObstacle:
    return AuditObstacle(
        ObstacleKind.INPUT_UNKNOWN,
        f"offsets/{batch_id}",
        why,
        "how many records such a batch read is not known, so a missing one would not be seen",
    )


def _ledger_obstacles(
    checkpoint: AuditedCheckpoint,
    ledger: Ledger | None,
    before: AuditManifest | None,
    done: LedgerIndex,
    first: int,
) -> Iterable[AuditObstacle]:
    if ledger is None:
        yield AuditObstacle(
            ObstacleKind.LEDGER_MISSING,
            checkpoint.ledger_path,
            "this query has no ledger: it does not write with the exactly-once sink",
            "counts cannot show which output records are its own",
        )
    elif before is not None and done.batch_ids and done.batch_ids[0] > first:
        yield AuditObstacle(
            ObstacleKind.LEDGER_MISSING,
            checkpoint.ledger_path,
            f"batches {first} to {done.batch_ids[0] - 1} left the ledger before they were audited",
            "they are not proved; let the audit run more often (the ledger keeps 100 batches)",
        )


def _topic_obstacles(
    targets: TopicEnds, positions: Mapping[TopicPartition, AuditedPosition]
) -> Iterable[AuditObstacle]:
    for topic in sorted(targets.compacted):
        yield AuditObstacle(
            ObstacleKind.COMPACTED,
            topic,
            "its cleanup.policy is compact",
            "records are removed as newer ones with their keys come: what is proved today holds until then",
        )
    for where, now in sorted(targets.offsets.items()):
        before = positions.get(where)
        if before and _output_range(now, before, targets.topic_ids.get(where.topic, "")).recreated:
            yield AuditObstacle(
                ObstacleKind.TOPIC_RECREATED,
                where.topic,
                f"it is another topic than before: {where} was audited up to offset {before.offset:,}",
                "what was proved before is gone with the old topic",
            )


def _foreign(
    options: CountsOptions, index: LedgerIndex, output: Output, ledger: Ledger | None
) -> Iterable[AuditObstacle]:
    if ledger is None:
        return ()
    foreign = foreign_runs(index, output, _since_ms(ledger, index))
    owners = read_owners(options.properties, (run.producer_id for run in foreign if run.transactional))
    return foreign_obstacles(foreign, owners, id_stem(ledger.prefix, ledger.ledger_id))


def _since_ms(ledger: Ledger, index: LedgerIndex) -> int:
    """Return the instant from which the ledger names every transaction: it drops old batches."""
    first = index.batch_ids[0] if index.batch_ids else ledger.first_batch
    decision = index.decision(first)
    if decision is None or first <= ledger.first_batch:
        return ledger.created_ms
    return decision.at_ms
