"""Streaming engines. Spark's queries: their checkpoints, runs and batches, and their sinks' decisions.
Flink's jobs by their checkpoint folders, and what engines' REST APIs report: Flink's runs, connectors.

The rows of a query combine checkpoint, ledger and listener, and each may be missing. Spark keeps about 100
batches; these rows are the history beyond them.
"""

from django.conf import settings
from django.db import models
from django.db.models import BigIntegerField, Case, F, Q, Value, When
from django.db.models.functions import Coalesce, Greatest

from dashboard.models.collecting import ManagerOfFlinkJob, ManagerOfQuery, Observed, OfCluster, choices_of
from fenceline.spark.drivers import GRACE_MS, MISSED, OLDEST_INTERVAL_MS
from fenceline.spark.records import Decided, DecisionOutcome, QueryState


def state_at(now_ms: int) -> Case:
    """Return `streaming.registry.state_now` as SQL: without a heartbeat the reported state is ignored."""
    interval = Coalesce(F("heartbeat_every_ms"), Value(OLDEST_INTERVAL_MS), output_field=BigIntegerField())
    least_ms = Value(int(settings.FENCELINE.limits.listener_silent_s * 1_000), output_field=BigIntegerField())
    limit = Greatest(least_ms, interval * MISSED + GRACE_MS, output_field=BigIntegerField())
    late = Q(heard_ms=None) | Q(heard_ms__lt=Value(now_ms, output_field=BigIntegerField()) - limit)
    runs = Q(state__in=[QueryState.RUNNING.value, QueryState.IDLE.value])
    no_heartbeat = Value(QueryState.UNHEARD.value)
    return Case(When(runs & late, then=no_heartbeat), default=F("state"), output_field=models.CharField())


class Query(Observed):
    """A streaming query, identified by its checkpoint, or by its id while only a listener reports it."""

    #: The query id; with `@` and the beginning of the path's hash for a second folder with the same id, or
    #: only the hash (`path-…`) if the folder has lost its id.
    ident = models.CharField(max_length=80)
    #: Spark's query id, a UUID; "" if the checkpoint has lost it.
    query_id = models.CharField(max_length=36, blank=True, db_index=True)
    name = models.TextField(blank=True)
    #: The folder's URL, beginning with the configured root; "" while no root contains it.
    checkpoint = models.TextField(blank=True)
    #: As reported by its listener; UNHEARD without a report.
    state = models.CharField(max_length=8, choices=choices_of(QueryState))
    run_id = models.CharField(max_length=36, blank=True)
    #: Whether its newest run tracks its progress asynchronously, as its listener reported; null: unknown.
    asynchronous = models.BooleanField(null=True)
    #: Its isolation level in Kafka (`fenceline.facts.Isolation`), as its listener reported; "" if unknown.
    isolation = models.CharField(max_length=16, blank=True, default="")
    #: Its listener's last heartbeat, by Fenceline's clock; begin and end of its newest run, by the driver's.
    heard_ms = models.BigIntegerField(null=True)
    #: The longest interval between its listener's posts, as reported; null if not reported.
    heartbeat_every_ms = models.IntegerField(null=True)
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    exception = models.TextField(blank=True)
    #: The newest batch in the offset log and in the commit log, and the times of these files.
    planned = models.BigIntegerField(null=True)
    finished = models.BigIntegerField(null=True)
    planned_ms = models.BigIntegerField(null=True)
    finished_ms = models.BigIntegerField(null=True)
    #: When a poll last found a newer batch in a log than the poll before, by Fenceline's clock; null if
    #: never.
    advanced_ms = models.BigIntegerField(null=True)
    #: The effect of a restart: `fenceline.spark.restart_prediction.RestartVerdict`, and its sentence; ""
    #: without a checkpoint.
    restart = models.CharField(max_length=24, blank=True)
    restart_words = models.TextField(blank=True)
    #: The kind of its sink: "exactly_once" (Fenceline's), "kafka", "other", or "" if unknown.
    sink = models.CharField(max_length=16, blank=True)
    #: The ledger's id and the prefix of its transactional ids; "" without a ledger.
    ledger_id = models.CharField(max_length=36, blank=True)
    prefix = models.TextField(blank=True)
    generation = models.IntegerField(null=True)
    #: The number of its prepared decisions that are not done, and the time-out of their first transaction.
    prepared = models.IntegerField(default=0)
    expires_ms = models.BigIntegerField(null=True)
    #: For the inspector, as JSON: conf, sources, operators, broken and foreign files, the ledger's damage.
    detail = models.JSONField(default=dict)
    #: When the checkpoint was last polled.
    seen_ms = models.BigIntegerField(null=True)
    #: Why it cannot be read; else "".
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
        # A query without a name has its folder's.
        return self.name or self.checkpoint.rstrip("/").rpartition("/")[2] or self.ident


class Run(models.Model):
    """A run of a query from its start to its end, as its listener reported it."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    run_id = models.CharField(max_length=36)
    name = models.TextField(blank=True)
    #: By the driver's clock.
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    #: Its first and last heartbeat, by Fenceline's clock.
    first_heard_ms = models.BigIntegerField()
    heard_ms = models.BigIntegerField()
    exception = models.TextField(blank=True)
    #: The newest reported batch.
    batch_id = models.BigIntegerField(null=True)
    #: Its listener's spool: waiting events, lost events, and the oldest one's age.
    spooled = models.BigIntegerField(default=0)
    dropped = models.BigIntegerField(default=0)
    spool_age_ms = models.BigIntegerField(null=True)
    #: The versions of Spark and of the listener.
    spark_version = models.CharField(max_length=32, blank=True)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "query run"
        constraints = [models.UniqueConstraint(fields=["query", "run_id"], name="run_of_query")]
        indexes = [models.Index(fields=["query", "heard_ms"], name="run_heard")]

    def __str__(self) -> str:
        return self.run_id


class OperatorStateRecord(models.Model):
    """The files of a stateful operator of a query, from the last listing of the checkpoint's `state/`.

    `fenceline.spark.state_chains.OperatorState`; one row for each operator.
    """

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    operator_id = models.IntegerField()
    name = models.TextField(blank=True)
    #: Packed by `fenceline.spark.state_chains.pack_chains`: chains of at most 1,000 partitions.
    chains = models.TextField()
    #: The number of chains that a restart cannot load.
    broken = models.IntegerField(default=0)
    #: By Fenceline's clock.
    read_ms = models.BigIntegerField()
    #: Why some files are unknown; else "".
    unread = models.TextField(blank=True)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "operator state"
        constraints = [
            models.UniqueConstraint(fields=["query", "operator_id"], name="operator_state_of_query")
        ]

    def __str__(self) -> str:
        return f"operator {self.operator_id} ({self.name})"


class Batch(models.Model):
    """A micro-batch: planned, run, decided, checkpointed; unknown fields are null."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    batch_id = models.BigIntegerField()
    #: From `offsets/N`: the planning time, the watermark, and each source's end offset:
    #: [[source, JSON text or null], …].
    planned_ms = models.BigIntegerField(null=True)
    watermark_ms = models.BigIntegerField(null=True)
    offsets = models.JSONField(default=list)
    #: From `commits/N`: the file's time, by the store's clock, and the next watermark.
    committed_ms = models.BigIntegerField(null=True)
    next_watermark_ms = models.BigIntegerField(null=True)
    #: From the progress event of `run_id`; "" and null without an event.
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
        # A covering index for the search for the slowest batches of a time.
        indexes = [models.Index(fields=["query", "started_ms", "duration_ms"], name="batch_started")]

    def __str__(self) -> str:
        return f"batch {self.batch_id}"


class SinkDecision(models.Model):
    """A decision of a query's exactly-once sink about a batch, and its outcome."""

    query = models.ForeignKey(Query, models.CASCADE, db_index=False)
    batch_id = models.BigIntegerField()
    round = models.IntegerField()
    decided = models.CharField(max_length=8, choices=choices_of(Decided))
    #: "driver" or "operator".
    by = models.CharField(max_length=16)
    #: By the deciding process's clock; and the first poll with it, by Fenceline's clock, null in older rows.
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
    #: "" until it is fully carried out.
    outcome = models.CharField(max_length=9, choices=choices_of(DecisionOutcome), blank=True)
    done_ms = models.BigIntegerField(null=True)
    done_by = models.CharField(max_length=16, blank=True)
    lost = models.JSONField(default=list)

    objects = ManagerOfQuery()

    class Meta:
        verbose_name = "sink decision"
        constraints = [
            models.UniqueConstraint(fields=["query", "batch_id", "round"], name="decision_of_batch")
        ]
        indexes = [
            models.Index(fields=["query"], condition=Q(outcome=""), name="decision_open"),
            models.Index(fields=["query"], condition=Q(outcome="lost"), name="decision_lost"),
        ]

    def __str__(self) -> str:
        return f"batch {self.batch_id}: {self.decided}"


class FlinkJob(Observed):
    """A folder with the checkpoints of one job, or with one savepoint."""

    #: The folder's name, `@` and the beginning of its path's hash.
    ident = models.CharField(max_length=80)
    #: The folder's URL, beginning with the configured root.
    path = models.TextField()
    #: Flink's job id; "" if the folder's name is not one.
    job_id = models.CharField(max_length=32, blank=True)
    #: The transactional id prefixes of its Kafka sinks, from the newest readable checkpoint.
    prefixes = models.JSONField(default=list)
    #: The newest checkpoint's number and completion time (by the store's clock); null if it cannot be read.
    checkpoint_id = models.BigIntegerField(null=True)
    completed_ms = models.BigIntegerField(null=True)
    is_savepoint = models.BooleanField(null=True)
    #: The number of transactions that the newest checkpoint decided to commit.
    pending = models.IntegerField(default=0)
    #: When the folder was last polled, by Fenceline's clock.
    seen_ms = models.BigIntegerField()
    #: Why the folder, or its newest checkpoint, cannot be read; else "".
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = "Flink job"
        constraints = [models.UniqueConstraint(fields=["cluster", "ident"], name="flink_job_ident")]

    def __str__(self) -> str:
        # A checkpoint does not record the job's name; operators choose the prefixes of its sinks.
        return ", ".join(self.prefixes) or self.path.rstrip("/").rpartition("/")[2]


class FlinkCheckpointRecord(models.Model):
    """A completed checkpoint that still exists, or a savepoint; rows are replaced whole, never changed."""

    job = models.ForeignKey(FlinkJob, models.CASCADE, db_index=False)
    #: The name of its folder; "" if the job's folder is the savepoint itself.
    name = models.CharField(max_length=80, blank=True)
    #: Null if it cannot be read.
    checkpoint_id = models.BigIntegerField(null=True)
    version = models.IntegerField(null=True)
    #: Null also if the format version does not record it.
    is_savepoint = models.BooleanField(null=True)
    #: By the store's clock; null if the store reports no time.
    completed_ms = models.BigIntegerField(null=True)
    #: The transactions to commit: `fenceline.engines.flink.records.Committable` as lists.
    committables = models.JSONField(default=list)
    #: `fenceline.engines.flink.records.WriterState` as lists.
    writers = models.JSONField(default=list)
    #: Entries of sinks other than Kafka's.
    other_entries = models.IntegerField(default=0)
    #: Why it cannot be read; else "".
    error = models.TextField(blank=True)

    objects = ManagerOfFlinkJob()

    class Meta:
        verbose_name = "Flink checkpoint"
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="checkpoint_of_flink_job")]

    def __str__(self) -> str:
        return self.name or str(self.job)


class FlinkRunRecord(OfCluster):
    """A run of a Flink job, from its JobManager's last report."""

    #: The JobManager's URL as in the configuration.
    url = models.CharField(max_length=300)
    #: Flink's job id, the name of the job's checkpoint folder.
    job_id = models.CharField(max_length=32)
    #: Flink's version.
    version = models.CharField(max_length=40)
    name = models.TextField()
    #: Flink's term: RUNNING, RESTARTING, FAILED …
    state = models.CharField(max_length=20)
    #: By the JobManager's clock; the end is null while the run goes on.
    started_ms = models.BigIntegerField()
    ended_ms = models.BigIntegerField(null=True)
    #: `fenceline.engines.status.FlinkOperator` as lists.
    operators = models.JSONField(default=list)
    #: `counts`, and the last ones `completed`, `failed`, `restored`: each a ReportedCheckpoint as a list.
    checkpoints = models.JSONField(default=dict)
    #: The time of the API's last answer, by Fenceline's clock.
    seen_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "Flink run"
        constraints = [models.UniqueConstraint(fields=["cluster", "url", "job_id"], name="flink_run_of_api")]

    def __str__(self) -> str:
        return self.name or self.job_id


class ConnectorRecord(OfCluster):
    """A connector of Kafka Connect, from a worker's last report."""

    #: The worker's URL and its `group`, as in the configuration; the group is "" if not configured.
    url = models.CharField(max_length=300)
    group = models.CharField(max_length=255, blank=True)
    version = models.CharField(max_length=40)
    name = models.CharField(max_length=255)
    #: `source` or `sink`.
    kind = models.CharField(max_length=10)
    #: Its Java class.
    connector = models.TextField()
    #: Connect's term: RUNNING, FAILED, PAUSED …
    state = models.CharField(max_length=20)
    worker = models.TextField()
    #: The reason for its failure.
    reason = models.TextField(blank=True)
    #: `fenceline.engines.status.ConnectorTask` as lists.
    tasks = models.JSONField(default=list)
    #: `fenceline.engines.status.DebeziumTopics` as a list; null unless it is a Debezium connector.
    debezium = models.JSONField(null=True)
    seen_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "connector"
        constraints = [models.UniqueConstraint(fields=["cluster", "url", "name"], name="connector_of_api")]

    def __str__(self) -> str:
        return self.name
