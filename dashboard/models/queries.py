"""Streaming queries of Spark: their checkpoints, runs and batches, and what their sink decided.

What checkpoint, ledger and listener report comes together here; each may be missing. Spark keeps about
100 batches: these rows are the history beyond them.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Observed
from dashboard.models.scope import ManagerOfQuery
from fenceline.spark.records import Decided, DecisionOutcome, QueryState


class Query(Observed):
    """One streaming query, by its checkpoint, or by its id alone while only a listener knows it."""

    #: The query id; with `@` and the beginning of the path's hash for a second folder of the same id, or the
    #: hash alone (`path-…`) where the folder has lost its identity.
    ident = models.CharField(max_length=80)
    #: Spark's id of it, a UUID; "" where its checkpoint has lost it.
    query_id = models.CharField(max_length=36, blank=True, db_index=True)
    name = models.TextField(blank=True)
    #: The folder's URL as the configuration's root spells it; "" while no root holds it.
    checkpoint = models.TextField(blank=True)
    #: As reported by its listener; UNHEARD without a report.
    state = models.CharField(max_length=8, choices=[(choice.value, choice.value) for choice in QueryState])
    run_id = models.CharField(max_length=36, blank=True)
    #: Whether its newest run tracks its progress asynchronously, as its listener reported; null: unknown.
    asynchronous = models.BooleanField(null=True)
    #: How it reads Kafka (`fenceline.facts.Isolation`), as its listener reported; "" is unknown.
    isolation = models.CharField(max_length=16, blank=True, default="")
    #: The last heartbeat of its listener, by our clock; begin and end of its newest run, by its driver's.
    heard_ms = models.BigIntegerField(null=True)
    #: How often its listener posts at least, as it reports; null where it reports no interval.
    heartbeat_every_ms = models.IntegerField(null=True)
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    exception = models.TextField(blank=True)
    #: The newest batch in the offset log and in the commit log, and when those files were written.
    planned = models.BigIntegerField(null=True)
    finished = models.BigIntegerField(null=True)
    planned_ms = models.BigIntegerField(null=True)
    finished_ms = models.BigIntegerField(null=True)
    #: When a poll last found a newer batch in a log than the poll before, by our clock; null: none did.
    advanced_ms = models.BigIntegerField(null=True)
    #: What a restart would do: `fenceline.spark.restart_prediction.RestartVerdict`, and its sentence; ""
    #: without a checkpoint.
    restart = models.CharField(max_length=24, blank=True)
    restart_words = models.TextField(blank=True)
    #: What kind of sink it has: "exactly_once" (ours), "kafka", "other", or "" where it is unknown.
    sink = models.CharField(max_length=16, blank=True)
    #: The ledger's own id and the prefix of its transactional ids; "" where it has none.
    ledger_id = models.CharField(max_length=36, blank=True)
    prefix = models.TextField(blank=True)
    generation = models.IntegerField(null=True)
    #: How many of its decisions are prepared and not done, and when their first transaction times out.
    prepared = models.IntegerField(default=0)
    expires_ms = models.BigIntegerField(null=True)
    #: For the inspector, as JSON: conf, sources, operators, broken and foreign files, the ledger's damage.
    detail = models.JSONField(default=dict)
    #: When the checkpoint was polled last.
    seen_ms = models.BigIntegerField(null=True)
    #: Why it cannot be read; "" when it can.
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = "streaming query"
        verbose_name_plural = "streaming queries"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "ident"], name="query_ident"),
            models.UniqueConstraint(
                fields=["cluster", "checkpoint"], condition=~Q(checkpoint=""), name="query_checkpoint"
            ),
        ]

    def __str__(self) -> str:
        # A query that was given no name is known by its folder's.
        return self.name or self.checkpoint.rstrip("/").rpartition("/")[2] or self.ident


class Run(models.Model):
    """One run of a query: from its start to its end, as reported by its listener."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    run_id = models.CharField(max_length=36)
    name = models.TextField(blank=True)
    #: By the driver's clock.
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    #: By our clock: its first and last heartbeat.
    first_heard_ms = models.BigIntegerField()
    heard_ms = models.BigIntegerField()
    exception = models.TextField(blank=True)
    #: The newest batch that it reported.
    batch_id = models.BigIntegerField(null=True)
    #: Its listener's spool: events waiting, dropped for ever, the oldest one's age.
    spooled = models.BigIntegerField(default=0)
    dropped = models.BigIntegerField(default=0)
    spool_age_ms = models.BigIntegerField(null=True)
    #: The versions of Spark and of the listener.
    spark_version = models.CharField(max_length=32, blank=True)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "query run"
        verbose_name_plural = "query runs"
        constraints = [models.UniqueConstraint(fields=["query", "run_id"], name="run_of_query")]
        indexes = [models.Index(fields=["query", "heard_ms"], name="run_heard")]

    def __str__(self) -> str:
        return self.run_id


class OperatorStateRecord(models.Model):
    """The files of one stateful operator of a query, as its checkpoint's `state/` was listed last.

    `fenceline.spark.state_chains.OperatorState`; one row for each operator.
    """

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    operator_id = models.IntegerField()
    name = models.TextField(blank=True)
    #: As `fenceline.spark.state_chains.pack_chains` writes them: of at most 1,000 partitions.
    chains = models.TextField()
    #: How many of them a restart cannot load.
    broken = models.IntegerField(default=0)
    #: By our clock.
    read_ms = models.BigIntegerField()
    #: Why a part of it is not known; "" where all of it is.
    unread = models.TextField(blank=True)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "operator state"
        verbose_name_plural = "operator states"
        constraints = [
            models.UniqueConstraint(fields=["query", "operator_id"], name="operator_state_of_query")
        ]

    def __str__(self) -> str:
        return f"operator {self.operator_id} ({self.name})"


class Batch(models.Model):
    """One micro-batch: planned, run, decided, checkpointed; each part null where it is unknown."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    batch_id = models.BigIntegerField()
    #: From `offsets/N`: when it was planned, the watermark it uses, and how far each source goes:
    #: [[source, JSON text or null], …].
    planned_ms = models.BigIntegerField(null=True)
    watermark_ms = models.BigIntegerField(null=True)
    offsets = models.JSONField(default=list)
    #: From `commits/N`: when the file was written, by the store's clock, and the watermark after it.
    committed_ms = models.BigIntegerField(null=True)
    next_watermark_ms = models.BigIntegerField(null=True)
    #: From the progress event of `run_id`; "" and null where none came.
    run_id = models.CharField(max_length=36, blank=True)
    started_ms = models.BigIntegerField(null=True)
    duration_ms = models.BigIntegerField(null=True)
    input_rows = models.BigIntegerField(null=True)
    output_rows = models.BigIntegerField(null=True)
    input_rate = models.FloatField(null=True)
    processed_rate = models.FloatField(null=True)
    #: Milliseconds by phase; `fenceline.spark.records.SourceProgress` and `OperatorProgress` as lists of
    #: mappings.
    durations = models.JSONField(default=dict)
    sources = models.JSONField(default=list)
    operators = models.JSONField(default=list)
    rev = models.BigIntegerField()

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "batch"
        verbose_name_plural = "batches"
        constraints = [models.UniqueConstraint(fields=["query", "batch_id"], name="batch_of_query")]
        # Has all that the search for the slowest batches of a time reads.
        indexes = [models.Index(fields=["query", "started_ms", "duration_ms"], name="batch_started")]

    def __str__(self) -> str:
        return f"batch {self.batch_id}"


class SinkDecision(models.Model):
    """A decision of a query's exactly-once sink about a batch, and what came of it."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    batch_id = models.BigIntegerField()
    round = models.IntegerField()
    decided = models.CharField(max_length=8, choices=[(choice.value, choice.value) for choice in Decided])
    #: "driver" or "operator".
    by = models.CharField(max_length=16)
    #: By the clock of the process that decided, and when a poll found it first, by ours; null of an older
    #: row.
    decided_ms = models.BigIntegerField()
    first_seen_ms = models.BigIntegerField(null=True)
    run_id = models.CharField(max_length=36, blank=True)
    generation = models.IntegerField()
    reason = models.TextField(blank=True)
    #: [{"partition", "attempt", "transactional_id", "producer_id", "producer_epoch", "partitions":
    #: [["topic", 0], …], "records", "started_ms", "timeout_ms"}, …]
    transactions = models.JSONField(default=list)
    #: [[source, JSON text or null, JSON text or null], …]
    input = models.JSONField(default=list)
    #: "" while it is not carried out to the end.
    outcome = models.CharField(
        max_length=9, choices=[(choice.value, choice.value) for choice in DecisionOutcome], blank=True
    )
    done_ms = models.BigIntegerField(null=True)
    done_by = models.CharField(max_length=16, blank=True)
    lost = models.JSONField(default=list)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "sink decision"
        verbose_name_plural = "sink decisions"
        constraints = [
            models.UniqueConstraint(fields=["query", "batch_id", "round"], name="decision_of_batch")
        ]
        indexes = [
            models.Index(fields=["query"], condition=Q(outcome=""), name="decision_open"),
            models.Index(fields=["query"], condition=Q(outcome="lost"), name="decision_lost"),
        ]

    def __str__(self) -> str:
        return f"batch {self.batch_id}: {self.decided}"
