"""Schemas of the parts of a streaming query: links, batches, sources, runs, restart safety."""

from collections.abc import Sequence
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.schemas import BlockerOut
from dashboard.models import SinkDecision
from dashboard.runtime.visibility import AnswerVisibility
from dashboard.streaming.lag import PartitionLag
from fenceline.decode.ledger import transaction_from_json
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.spark.batch_chain import BatchStep, LinkState
from fenceline.spark.records import Decided, DecisionOutcome, SinkTransaction
from fenceline.spark.safe_to_restart import RestartSafety


class LinkOut(Schema):
    """A link of a batch's chain; `recovery` is the remedy for a broken link."""

    link: BatchStep
    state: LinkState
    at: schemas.Instant | None = Field(validation_alias="at_ms")
    evidence: str
    recovery: str


class PartitionRecordsOut(Schema):
    """The records that a transaction wrote to a partition."""

    topic: str
    partition: int
    first_offset: int
    records: int


class LedgerTransactionOut(Schema):
    """A transaction of a batch, from the sink's ledger.

    `written` and `digest` are null if the ledger lacks them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: int
    partitions: list[dict[str, str | int]]
    records: int
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    timeout_ms: int
    written: list[PartitionRecordsOut] | None
    digest: str | None

    @staticmethod
    def resolve_partitions(transaction: SinkTransaction) -> object:
        return [place._asdict() for place in transaction.partitions]


class DecisionOut(Schema):
    """The sink's decision about a batch in its last round; `outcome` is "" until it is carried out."""

    round: int
    decided: Decided
    decided_at: schemas.Instant | None = Field(validation_alias="decided_ms")
    by: str
    outcome: DecisionOutcome | Literal[""]
    done_at: schemas.Instant | None = Field(validation_alias="done_ms")
    done_by: str
    reason: str
    transactions: list[LedgerTransactionOut]
    lost: list[str]

    resolve_transactions = staticmethod(lambda row: list(map(transaction_from_json, row.transactions)))


class BatchOut(Schema):
    """A micro-batch; unreported fields are null. `durations_ms` is by Spark's phases.

    `output_rows` is Spark's count of rows written. Where Spark does not count (foreachBatch), it is the
    count in the sink's ledger once the batch is committed. Lost rows do not count.
    """

    batch: int = Field(validation_alias="batch.batch_id")
    planned_at: schemas.Instant | None = Field(validation_alias="batch.planned_ms")
    started_at: schemas.Instant | None = Field(validation_alias="batch.started_ms")
    checkpointed_at: schemas.Instant | None = Field(validation_alias="batch.committed_ms")
    duration_ms: int | None = Field(validation_alias="batch.duration_ms")
    durations_ms: dict[str, int] = Field(validation_alias="batch.durations")
    input_rows: int | None = Field(validation_alias="batch.input_rows")
    output_rows: int | None
    input_rows_per_second: float | None = Field(validation_alias="batch.input_rate")
    processed_rows_per_second: float | None = Field(validation_alias="batch.processed_rate")
    watermark_at: schemas.Instant | None
    run_id: str = Field(validation_alias="batch.run_id")
    decision: DecisionOut | None

    resolve_watermark_at = staticmethod(lambda entry: entry.batch.watermark_ms or None)


class PositionOut(Schema):
    """A query's position in a partition; `position` is the next offset to read.

    `behind_ms` is the age of the unread records. `waiting` relates the position to a pinned LSO.
    `deleted_unread` counts offsets that were deleted before the query read them.
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
    deleted_unread: int | None = Field(validation_alias="lost_offsets")
    waiting: Waiting | Literal[""] = Field(validation_alias="waiting_state")
    blockers: list[BlockerOut]

    resolve_log_start = staticmethod(lambda part: part.seen.log_start if part.seen else None)
    resolve_lso = staticmethod(lambda part: part.seen.lso if part.seen else None)
    resolve_high_watermark = staticmethod(lambda part: part.seen.high_watermark if part.seen else None)

    @staticmethod
    def resolve_blockers(part: PartitionLag) -> object:
        return [
            GroupBlocker(pin.producer_id, pin.producer_epoch, pin.transactional_id, pin.start_offset)
            for pin in part.pins
        ]


class SourceOut(Schema):
    """A source; `offset` is Spark's JSON text, `partitions` are the positions in Kafka."""

    source: str
    description: str
    offset: str | None = Field(validation_alias="raw")
    partitions: list[PositionOut] = Field(validation_alias="parts")


class RunOut(Schema):
    """A run as its listener reported it: `spooled` events wait at the listener, `dropped` events are lost."""

    run_id: str
    name: str
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    ended_at: schemas.Instant | None = Field(validation_alias="ended_ms")
    heard_at: schemas.Instant | None = Field(validation_alias="heard_ms")
    batch: int | None = Field(validation_alias="batch_id")
    exception: str
    spooled: int
    dropped: int
    spool_age_ms: int | None
    spark_version: str


class PreparedOut(Schema):
    """A batch whose commit is decided and not complete."""

    query: str = Field(validation_alias="query.ident")
    name: str = Field(validation_alias="query.name")
    batch: int = Field(validation_alias="batch_id")
    decided_at: schemas.Instant | None = Field(validation_alias="decided_ms")
    transactions: int

    resolve_transactions = staticmethod(lambda row: len(row.transactions))


class SafeOut(Schema):
    """Whether a restart is safe, why, which batches are prepared, and when their transactions expire.

    `safe` and `graceful` are the same: a graceful stop lets the batch in progress finish. `kill`: the driver
    may be killed at any moment; `kill_reason` says why not. `retry_after_s` says when to ask again, null if
    a restart is safe, or if waiting alone changes nothing. `headline` is "" unless a prepared batch stays
    uncommitted. States that pass within a batch do not change these fields.
    """

    safe: bool | None
    graceful: bool | None
    kill: bool | None
    kill_reason: str
    retry_after_s: int | None
    headline: str
    verdict: str = Field(validation_alias="sentence")
    reasons: list[str]
    prepared: list[PreparedOut]
    expires_at: schemas.Instant | None = Field(validation_alias="expires_ms")
    time_left_s: float | None
    open_ids: list[str]


class SafeAnswer(SafeOut):
    """Restart safety with `as_of` and `gaps`; `safe` is null, never true, if too little was observed."""

    as_of: schemas.Instant | None = Field(validation_alias="as_of_ms")
    gaps: list[schemas.Gap]


def safety_fields(
    safe: RestartSafety, prepared: Sequence[SinkDecision], seen: AnswerVisibility, now_ms: int
) -> dict[str, Any]:
    """Return the fields of `SafeAnswer`; `time_left_s` is 0 once the timeout has passed."""
    left_ms = None if safe.expires_ms is None else max(0, safe.expires_ms - now_ms)
    return {
        **safe._asdict(),
        "graceful": safe.safe,
        "prepared": prepared,
        "time_left_s": None if left_ms is None else left_ms / 1_000,
        "as_of_ms": seen.as_of_ms,
        "gaps": seen.gaps,
    }
