"""Partitions of users' topics, and the transactions that hold their LSO."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Observed, OfCluster, choices_of
from fenceline.kafka.partitions import PartitionVerdict


class PartitionRecord(Observed):
    """The newest known offsets of a partition, and whether a transaction holds its last stable offset."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: Kafka's topic id: the offsets of a re-created topic begin again.
    topic_id = models.CharField(max_length=64, blank=True)
    #: The leading broker; None without a leader.
    leader = models.IntegerField(null=True)
    leader_epoch = models.IntegerField(null=True)
    #: Brokers with a replica: [1, 2, 3].
    replicas = models.JSONField(default=list)
    #: None before the first answer.
    log_start = models.BigIntegerField(null=True)
    lso = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    #: The time of the row's last change; the row is valid until its collector's `seen_through_ms`.
    seen_ms = models.BigIntegerField(null=True)
    #: The time, by Fenceline's clock, since which the LSO is stuck below the high watermark; else None.
    pinned_ms = models.BigIntegerField(null=True)
    verdict = models.CharField(max_length=7, choices=choices_of(PartitionVerdict), default="clear")
    #: Why it cannot be observed, for an operator; else "".
    error = models.TextField(blank=True)
    #: [[at_ms, lso, high watermark], …] as JSON text, oldest first: for lag in seconds
    #: (`fenceline.kafka.offset_histories`).
    ends = models.TextField(blank=True)

    class Meta:
        verbose_name = "partition"
        permissions = [
            ("ask_replicas", "Can ask every replica for its producers"),
            ("view_payload", "Can see keys and values of records"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="partition_record_name")
        ]
        indexes = [
            models.Index(
                fields=["cluster", "pinned_ms"], condition=~Q(verdict="clear"), name="partition_pinned"
            )
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class DeletedPartition(OfCluster):
    """A deleted partition with its last known offsets."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: None if no leader had answered.
    log_start = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    #: When a poll found it deleted, by Fenceline's clock.
    deleted_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "deleted partition"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="deleted_partition_name")
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PinRecord(OfCluster):
    """An open transaction in a partition, from the leader's DescribeProducers, with its owner."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    start_offset = models.BigIntegerField()
    last_sequence = models.IntegerField()
    #: By the producer's clock, so never used to compute an age.
    last_timestamp_ms = models.BigIntegerField()
    #: None before the producer's first marker.
    coordinator_epoch = models.IntegerField(null=True)
    #: By Fenceline's clock.
    first_seen_ms = models.BigIntegerField()
    #: The time, by Fenceline's clock, since which its coordinator reports a Prepare* state; else None.
    prepared_ms = models.BigIntegerField(null=True)
    #: The time of the row's last change; the row is valid until its collector's `seen_through_ms`.
    seen_ms = models.BigIntegerField()
    #: The transactional id of the producer id, as escaped text; "" if unknown.
    transactional_id = models.TextField(blank=True)
    verdict = models.CharField(max_length=7, choices=choices_of(PartitionVerdict))
    #: The reason for the verdict, a `fenceline.kafka.partitions.VerdictReason`.
    ground = models.CharField(max_length=24)

    class Meta:
        verbose_name = "LSO blocker"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic", "partition", "producer_id", "producer_epoch", "start_offset"],
                name="pin_transaction",
            )
        ]
        indexes = [models.Index(fields=["cluster", "producer_id"], name="pin_producer")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.start_offset}"


class ReplicaLook(OfCluster):
    """The producers of a partition at one replica, requested by an operator (`describe-producers`).

    It lists every idempotent producer, also those without a transactional id.
    """

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    broker = models.IntegerField()
    leads = models.BooleanField(default=False)
    seen_ms = models.BigIntegerField()
    #: [{"producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms", "coordinator_epoch",
    #: "start_offset", "transactional_id"}, …]
    producers = models.JSONField(default=list)
    #: The leader's `fenceline.decode.record_batches.BatchWriters`; None for followers, and if not read.
    writers = models.JSONField(null=True)
    error = models.TextField(blank=True)
    #: The producers in the previous answer, and its time; None before a second answer.
    producers_before = models.JSONField(default=list)
    before_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "replica check"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic", "partition", "broker"], name="replica_look_name"
            )
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"
