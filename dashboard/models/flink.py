"""Flink jobs by their checkpoint folders, and the Kafka sinks' state in the checkpoints."""

from django.db import models

from dashboard.models.collecting import Observed
from dashboard.models.scope import ManagerOfFlinkJob


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
        verbose_name_plural = "Flink jobs"
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
        verbose_name_plural = "Flink checkpoints"
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="checkpoint_of_flink_job")]

    def __str__(self) -> str:
        return self.name or str(self.job)
