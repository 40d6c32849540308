"""Flink jobs by their checkpoint folders, and what engines' REST APIs report: Flink's runs, connectors."""

from django.db import models

from dashboard.models.collecting import ManagerOfFlinkJob, Observed, OfCluster


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
    #: `fenceline.engines.flink.job_status.FlinkOperator` as lists.
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
    #: `fenceline.engines.connect.ConnectorTask` as lists.
    tasks = models.JSONField(default=list)
    #: `fenceline.engines.connect.DebeziumTopics` as a list; null unless it is a Debezium connector.
    debezium = models.JSONField(null=True)
    seen_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "connector"
        constraints = [models.UniqueConstraint(fields=["cluster", "url", "name"], name="connector_of_api")]

    def __str__(self) -> str:
        return self.name
