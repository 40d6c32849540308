"""Partitions of users' topics, and the transactions that hold them back."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Observed, OfCluster
from fenceline.kafka.partitions import PartitionVerdict


class PartitionRecord(Observed):
    """The newest known offsets of one partition, and whether something holds back its last stable offset."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: Kafka's id of the topic: offsets begin again when it is deleted and made again.
    topic_id = models.CharField(max_length=64, blank=True)
    #: The broker that leads it; None while none does.
    leader = models.IntegerField(null=True)
    leader_epoch = models.IntegerField(null=True)
    #: Brokers that hold a replica: [1, 2, 3].
    replicas = models.JSONField(default=list)
    #: None before the first answer.
    log_start = models.BigIntegerField(null=True)
    lso = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    #: When anything of this changed last; it is valid until its collector's `seen_through_ms`.
    seen_ms = models.BigIntegerField(null=True)
    #: Since when, by our clock, the LSO is stuck at this value below the high watermark; None unless it is.
    pinned_ms = models.BigIntegerField(null=True)
    verdict = models.CharField(
        max_length=7, choices=[(v.value, v.value) for v in PartitionVerdict], default="clear"
    )
    #: Why it cannot be seen, in words for an operator; "" when it can.
    error = models.TextField(blank=True)
    #: [[at_ms, lso, high watermark], …] as JSON text, oldest first: for lag in seconds
    #: (`fenceline.kafka.end_offset_history`).
    ends = models.TextField(blank=True)

    class Meta:
        verbose_name = "partition"
        verbose_name_plural = "partitions"
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
    """A partition that was known and does not exist any more, with its last known offsets."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: None where no leader had answered.
    log_start = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    #: When our polls found it gone, by our clock.
    deleted_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "deleted partition"
        verbose_name_plural = "deleted partitions"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="deleted_partition_name")
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PinRecord(OfCluster):
    """A transaction that is open in a partition, by its leader's DescribeProducers, and its owner."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    start_offset = models.BigIntegerField()
    last_sequence = models.IntegerField()
    #: The producer's own clock: never used for ages.
    last_timestamp_ms = models.BigIntegerField()
    #: None before any marker of this producer.
    coordinator_epoch = models.IntegerField(null=True)
    #: By our clock.
    first_seen_ms = models.BigIntegerField()
    #: Since when, by our clock, its coordinator reports a Prepare* state; None in any other state.
    prepared_ms = models.BigIntegerField(null=True)
    #: When anything of this changed last; it is valid until its collector's `seen_through_ms`.
    seen_ms = models.BigIntegerField()
    #: The id that the producer id belongs to, as escaped text; "" where none is known.
    transactional_id = models.TextField(blank=True)
    verdict = models.CharField(max_length=7, choices=[(v.value, v.value) for v in PartitionVerdict])
    #: `fenceline.kafka.partitions.VerdictReason`: why this verdict.
    ground = models.CharField(max_length=24)

    class Meta:
        verbose_name = "LSO blocker"
        verbose_name_plural = "LSO blockers"
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
    """The producers of a partition by one replica, requested by an operator (`describe-producers`).

    Everyone who writes with idempotence is listed, also without a transactional id.
    """

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    broker = models.IntegerField()
    leads = models.BooleanField(default=False)
    seen_ms = models.BigIntegerField()
    #: [{"producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms", "coordinator_epoch",
    #: "start_offset", "transactional_id"}, …]
    producers = models.JSONField(default=list)
    #: Of the leader, a `fenceline.decode.record_batches.BatchWriters`; None of others, and where not read.
    writers = models.JSONField(null=True)
    error = models.TextField(blank=True)
    #: The producers of the answer before this one, and when it came; None before a second answer.
    producers_before = models.JSONField(default=list)
    before_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "replica check"
        verbose_name_plural = "replica checks"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic", "partition", "broker"], name="replica_look_name"
            )
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"
