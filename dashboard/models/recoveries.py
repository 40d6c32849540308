"""Episodes: from a transaction's end that its producer did not request until work resumes."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Observed, OfCluster
from fenceline.facts import Confidence, TransitionKind
from fenceline.losses.recoveries import RecoveryOutcome


class Recovery(Observed):
    """An episode of a transactional id (`fenceline.losses.recoveries`)."""

    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200)
    cause = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in TransitionKind])
    confidence = models.CharField(
        max_length=9, choices=[(choice.value, choice.value) for choice in Confidence]
    )
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    #: The transition that began the episode.
    topic_id = models.CharField(max_length=64)
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    #: The correction from the coordinator's clock to Fenceline's, the same for all instants of the row.
    clock_ms = models.BigIntegerField(default=0)
    #: When the abort was decided; when the transaction began, if known.
    opened_ms = models.BigIntegerField()
    begun_ms = models.BigIntegerField(null=True)
    #: The timestamp of CompleteAbort: when the end was decided, and its markers began to be written.
    completed_ms = models.BigIntegerField(null=True)
    #: When the LSO had passed in every partition; when the id or its application committed again; the end.
    released_ms = models.BigIntegerField(null=True)
    #: Whether `released_ms` is the time at which the release was noticed, an upper bound; else it is from
    #: records.
    release_noticed = models.BooleanField(default=False)
    resumed_ms = models.BigIntegerField(null=True)
    #: The transactional id that committed again, as escaped text.
    resumed_by = models.TextField(blank=True)
    closed_ms = models.BigIntegerField(null=True)
    outcome = models.CharField(
        max_length=16, choices=[(choice.value, choice.value) for choice in RecoveryOutcome]
    )
    #: Records held behind the LSO at the release; None if not observed.
    records_released = models.BigIntegerField(null=True)
    #: The partitions that the transaction wrote to: [["topic", [0, 2]], …]
    partitions = models.JSONField(default=list)
    #: The topics among them, as `fenceline.losses.recoveries.WrittenTopic`: [["topic", "topic id", true], …]
    topics = models.JSONField(default=list)
    #: The observed LSOs that it held: [["topic", 0, offset, "topic id"], …]
    pins = models.JSONField(default=list)
    #: The waiting groups, as `fenceline.losses.recoveries.Wait`:
    #: [["group", "topic", 0, offset, since_ms, resumed_ms], …]
    waited = models.JSONField(default=list)
    #: The lost records, as `fenceline.losses.recoveries.LostRecords`:
    #: [["topic", 0, first, last, records, sure, note, …], …]
    lost = models.JSONField(default=list)
    #: Whether the search of every partition's range is done.
    lost_complete = models.BooleanField(default=False)

    class Meta:
        verbose_name = "recovery"
        verbose_name_plural = "recoveries"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic_id", "log_partition", "log_offset"], name="recovery_transition"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "opened_ms"], name="recovery_opened"),
            models.Index(fields=["cluster", "key", "opened_ms"], name="recovery_key"),
            models.Index(fields=["cluster"], condition=Q(closed_ms=None), name="recovery_open"),
        ]

    def __str__(self) -> str:
        return f"{self.transactional_id}: {self.cause}"


class AbortedCommit(OfCluster):
    """A committed transaction that lost records before its commit (`fenceline.losses.aborted_commits`)."""

    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200, blank=True)
    producer_id = models.BigIntegerField()
    #: When it began, by the coordinator's timestamp: identifies the transaction together with the producer
    #: id.
    started_ms = models.BigIntegerField()
    #: When its commit was decided, by Fenceline's clock.
    committed_ms = models.BigIntegerField()
    #: The lost records, as `fenceline.losses.recoveries.LostRecords`:
    #: [["topic", 0, first, last, records, sure, note, …], …]
    lost = models.JSONField(default=list)

    class Meta:
        verbose_name = "lossy commit"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "key", "producer_id", "started_ms"], name="aborted_commit_transaction"
            )
        ]
        indexes = [models.Index(fields=["cluster", "committed_ms"], name="aborted_commit_at")]

    def __str__(self) -> str:
        return f"{self.transactional_id}@{self.started_ms}"
