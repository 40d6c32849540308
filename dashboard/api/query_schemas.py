"""Schemas of the parts of a streaming query: links, batches, sources, runs, restart safety."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ninja import Schema

from dashboard.api import schemas
from dashboard.api.common_schemas import BlockerOut
from dashboard.groups.queries import BlockingTransaction
from dashboard.models import PinRecord, Run, SinkDecision
from dashboard.runtime.visibility import AnswerVisibility
from dashboard.streaming import lag
from dashboard.streaming.batches import BatchEntry
from fenceline.decode.ledger import transaction_from_json
from fenceline.kafka.groups import Waiting
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from fenceline.spark.records import Decided, DecisionOutcome, SinkTransaction
from fenceline.spark.safe_to_restart import RestartSafety


class LinkOut(Schema):
    """A link of a batch's chain; `recovery` is what fixes a broken one."""

    link: BatchStep
    state: LinkState
    at: str | None
    evidence: str
    recovery: str


class PartitionRecordsOut(Schema):
    """What a transaction has written to a partition."""

    topic: str
    partition: int
    first_offset: int
    records: int


class LedgerTransactionOut(Schema):
    """A transaction of a batch, as the sink's ledger names it.

    `written` and `digest` are null where the ledger does not have them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: int
    partitions: list[dict[str, str | int]]
    records: int
    started_at: str | None
    timeout_ms: int
    written: list[PartitionRecordsOut] | None
    digest: str | None


class DecisionOut(Schema):
    """What the sink decided about a batch in its last round; `outcome` is "" until that is carried out."""

    round: int
    decided: Decided
    decided_at: str | None
    by: str
    outcome: DecisionOutcome | Literal[""]
    done_at: str | None
    done_by: str
    reason: str
    transactions: list[LedgerTransactionOut]
    lost: list[str]


class BatchOut(Schema):
    """A micro-batch; what nothing has reported is null. `durations_ms` is by Spark's phases.

    `output_rows` is Spark's count of rows written; where Spark does not count them (foreachBatch), the count
    of the sink's ledger once the batch is committed. What was lost does not count.
    """

    batch: int
    planned_at: str | None
    started_at: str | None
    checkpointed_at: str | None
    duration_ms: int | None
    durations_ms: dict[str, int]
    input_rows: int | None
    output_rows: int | None
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    watermark_at: str | None
    run_id: str
    decision: DecisionOut | None


class PositionOut(Schema):
    """How far a query has read a partition; `position` is the next offset it reads.

    `behind_ms` is since when there has been something to read; `waiting` how it stands to a pinned LSO.
    `deleted_unread` counts offsets that are gone before it read them.
    """

    topic: str
    partition: int
    position: int
    planned: int | None
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    lag_lso: int | None
    lag_hw: int | None
    behind_ms: int | None
    deleted_unread: int | None
    waiting: Waiting | Literal[""]
    blockers: list[BlockerOut]


class SourceOut(Schema):
    """A source; `offset` is Spark's own JSON text, `partitions` are Kafka's."""

    source: str
    description: str
    offset: str | None
    partitions: list[PositionOut]


class RunOut(Schema):
    """A run, as reported by its listener; `spooled` events wait there, `dropped` ones will never come."""

    run_id: str
    name: str
    started_at: str | None
    ended_at: str | None
    heard_at: str | None
    batch: int | None
    exception: str
    spooled: int
    dropped: int
    spool_age_ms: int | None
    spark_version: str


class PreparedOut(Schema):
    """A batch that is decided to be committed, and not committed to the end."""

    query: str
    name: str
    batch: int
    decided_at: str | None
    transactions: int


class SafeOut(Schema):
    """Whether it is safe to restart, why, which batches are prepared, and how long that can wait.

    `safe` and `graceful` are the same: a graceful stop lets the batch in progress finish. `kill`: its driver
    may be killed at any moment; `kill_reason` is why not. `retry_after_s` is when to ask again, null where it
    is safe and where waiting alone changes nothing. `headline` is "" unless a batch is prepared and nobody
    commits it. What passes within a batch changes none of these.
    """

    safe: bool | None
    graceful: bool | None
    kill: bool | None
    kill_reason: str
    retry_after_s: int | None
    headline: str
    verdict: str
    reasons: list[str]
    prepared: list[PreparedOut]
    expires_at: str | None
    time_left_s: float | None
    open_ids: list[str]


class SafeAnswer(SafeOut):
    """The same with how far was seen; `safe` is null where too little is, never true then."""

    as_of: str | None
    gaps: list[schemas.Gap]


def links_out(chain: Sequence[ChainLink]) -> list[LinkOut]:
    """Return a chain as its schemas."""
    return [
        LinkOut(
            link=each.link,
            state=each.state,
            at=schemas.format_iso(each.at_ms),
            evidence=each.evidence,
            recovery=each.recovery,
        )
        for each in chain
    ]


def safe_out(
    safe: RestartSafety, prepared: Sequence[SinkDecision], seen: AnswerVisibility, now_ms: int
) -> SafeAnswer:
    """Return a verdict as its schema; no time is left where the timeout has passed."""
    left_ms = None if safe.expires_ms is None else max(0, safe.expires_ms - now_ms)
    return SafeAnswer(
        safe=safe.safe,
        graceful=safe.graceful,
        kill=safe.kill,
        kill_reason=safe.kill_reason,
        retry_after_s=safe.retry_after_s,
        headline=safe.headline,
        verdict=safe.sentence,
        reasons=list(safe.reasons),
        prepared=[
            PreparedOut(
                query=each.query.ident,
                name=each.query.name,
                batch=each.batch_id,
                decided_at=schemas.format_iso(each.decided_ms),
                transactions=len(each.transactions),
            )
            for each in prepared
        ],
        expires_at=schemas.format_iso(safe.expires_ms),
        time_left_s=None if left_ms is None else left_ms / 1_000,
        open_ids=list(safe.open_ids),
        as_of=schemas.format_iso(seen.as_of_ms),
        gaps=[schemas.gap_schema(row) for row in seen.gaps],
    )


def batch_out(entry: BatchEntry) -> BatchOut:
    """Return a batch as its schema."""
    batch = entry.batch
    return BatchOut(
        batch=batch.batch_id,
        planned_at=schemas.format_iso(batch.planned_ms),
        started_at=schemas.format_iso(batch.started_ms),
        checkpointed_at=schemas.format_iso(batch.committed_ms),
        duration_ms=batch.duration_ms,
        durations_ms=batch.durations,
        input_rows=batch.input_rows,
        output_rows=entry.output_rows,
        input_rows_per_second=batch.input_rate,
        processed_rows_per_second=batch.processed_rate,
        watermark_at=schemas.format_iso(batch.watermark_ms or None),
        run_id=batch.run_id,
        decision=_decision(entry.decision) if entry.decision else None,
    )


def source_out(source: lag.Source, cluster_id: int, now_ms: int) -> SourceOut:
    """Return a source and its partitions as their schemas."""
    return SourceOut(
        source=source.source,
        description=source.description,
        offset=source.raw,
        partitions=[_part(each) for each in lag.add_unread_since(source.parts, cluster_id, now_ms)],
    )


def run_out(run: Run) -> RunOut:
    """Return a run as its schema."""
    return RunOut(
        run_id=run.run_id,
        name=run.name,
        started_at=schemas.format_iso(run.started_ms),
        ended_at=schemas.format_iso(run.ended_ms),
        heard_at=schemas.format_iso(run.heard_ms),
        batch=run.batch_id,
        exception=run.exception,
        spooled=run.spooled,
        dropped=run.dropped,
        spool_age_ms=run.spool_age_ms,
        spark_version=run.spark_version,
    )


def _decision(row: SinkDecision) -> DecisionOut:
    return DecisionOut(
        round=row.round,
        decided=Decided(row.decided),
        decided_at=schemas.format_iso(row.decided_ms),
        by=row.by,
        outcome=DecisionOutcome(row.outcome) if row.outcome else "",
        done_at=schemas.format_iso(row.done_ms),
        done_by=row.done_by,
        reason=row.reason,
        transactions=[_transaction(transaction_from_json(each)) for each in row.transactions],
        lost=row.lost,
    )


def _transaction(each: SinkTransaction) -> LedgerTransactionOut:
    return LedgerTransactionOut(
        transactional_id=each.transactional_id,
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        partition=each.partition,
        partitions=[{"topic": topic, "partition": number} for topic, number in each.partitions],
        records=each.records,
        started_at=schemas.format_iso(each.started_ms),
        timeout_ms=each.timeout_ms,
        written=None
        if each.written is None
        else [PartitionRecordsOut(**found._asdict()) for found in each.written],
        digest=each.digest,
    )


def _part(part: lag.PartitionLag) -> PositionOut:
    row = part.seen
    return PositionOut(
        topic=part.topic,
        partition=part.partition,
        position=part.position,
        planned=part.planned,
        log_start=row.log_start if row else None,
        lso=row.lso if row else None,
        high_watermark=row.high_watermark if row else None,
        lag_lso=part.lag_lso,
        lag_hw=part.lag_hw,
        behind_ms=part.behind_ms,
        deleted_unread=part.lost_offsets,
        waiting=Waiting(part.waiting_state) if part.waiting_state else "",
        blockers=[_blocker(each) for each in part.pins],
    )


def _blocker(pin: PinRecord) -> BlockerOut:
    return BlockerOut.from_blocker(
        BlockingTransaction(
            pin.transactional_id, pin.producer_id, pin.producer_epoch, pin.start_offset, False, True
        )
    )
