"""Flink's jobs, by the folders of their checkpoints, and what those hold of Kafka's sinks."""

from __future__ import annotations

from django.db import models

from dashboard.models.collecting import Observed
from dashboard.models.scope import ManagerOfFlinkJob


class FlinkJob(Observed):
    """A folder that holds the checkpoints of one job, or one savepoint."""

    #: The folder's name, `@` and the beginning of its path's hash.
    ident = models.CharField(max_length=80)
    #: The folder's URL as the configuration's root spells it.
    path = models.TextField()
    #: Flink's id of the job; "" where the folder is not named by one.
    job_id = models.CharField(max_length=32, blank=True)
    #: Prefixes of transactional ids of its Kafka sinks, as its newest readable checkpoint has them.
    prefixes = models.JSONField(default=list)
    #: Its newest checkpoint: its number, when it was completed, by the store's clock; null where it could
    #: not be read.
    checkpoint_id = models.BigIntegerField(null=True)
    completed_ms = models.BigIntegerField(null=True)
    is_savepoint = models.BooleanField(null=True)
    #: How many transactions that checkpoint decided to commit.
    pending = models.IntegerField(default=0)
    #: When the folder was polled last, by our clock.
    seen_ms = models.BigIntegerField()
    #: Why it, or its newest checkpoint, cannot be read; "" when it can.
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = "Flink job"
        verbose_name_plural = "Flink jobs"
        constraints = [models.UniqueConstraint(fields=["cluster", "ident"], name="flink_job_ident")]

    def __str__(self) -> str:
        # A checkpoint has no name of its job: its sinks' prefixes are what an operator chose.
        return ", ".join(self.prefixes) or self.path.rstrip("/").rpartition("/")[2]


class FlinkCheckpointRecord(models.Model):
    """A completed checkpoint that is still there, or a savepoint: never changed, replaced as a whole."""

    job = models.ForeignKey(FlinkJob, models.CASCADE, db_index=False)
    #: The name of its folder; "" where the job's folder is the savepoint itself.
    name = models.CharField(max_length=80, blank=True)
    #: Null where it could not be read.
    checkpoint_id = models.BigIntegerField(null=True)
    version = models.IntegerField(null=True)
    #: Null also where the version does not record it.
    is_savepoint = models.BooleanField(null=True)
    #: By the store's clock; null where the store reports none.
    completed_ms = models.BigIntegerField(null=True)
    #: What it decided to commit: `fenceline.engines.flink.records.Committable` as lists.
    committables = models.JSONField(default=list)
    #: `fenceline.engines.flink.records.WriterState` as lists.
    writers = models.JSONField(default=list)
    #: Entries of sinks that are not Kafka's.
    other_entries = models.IntegerField(default=0)
    #: Why it cannot be read; "" when it can.
    error = models.TextField(blank=True)

    objects = ManagerOfFlinkJob()

    class Meta:
        verbose_name = "Flink checkpoint"
        verbose_name_plural = "Flink checkpoints"
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="checkpoint_of_flink_job")]

    def __str__(self) -> str:
        return self.name or str(self.job)
