"""Consumer groups: what they committed, how far they are behind, and what they wait for."""

from __future__ import annotations

from django.db import models

from dashboard.models.collecting import Observed, OfCluster
from dashboard.models.scope import ManagerOfGroup
from fenceline.kafka.groups import GroupStatus, is_beyond_end, lag_to_lso


class CommitRecord(OfCluster):
    """The newest commit of a group for a partition that the tail of `__consumer_offsets` has read."""

    #: SHA-256 of the group id's bytes.
    key = models.BinaryField(max_length=32)
    #: As `fenceline.decode.text.escape_bytes` writes it.
    group_id = models.TextField()
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    leader_epoch = models.IntegerField(null=True)
    metadata = models.TextField(blank=True)
    #: By the coordinator's clock.
    commit_ms = models.BigIntegerField()
    #: The last commits, [[commit_ms, offset], …] as JSON text, oldest first.
    commits = models.TextField(blank=True)
    #: Where it lies in `__consumer_offsets`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()

    class Meta:
        verbose_name = "offset commit"
        verbose_name_plural = "offset commits"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "key", "topic", "partition"], name="commit_record_key")
        ]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.topic}-{self.partition}@{self.offset}"


class GroupRecord(OfCluster):
    """The members of a group that the tail of `__consumer_offsets` has read: whoever joined it last."""

    #: As in CommitRecord.
    key = models.BinaryField(max_length=32)
    group_id = models.TextField()
    #: {member id: [client id, host]} as JSON text.
    members = models.TextField(blank=True)
    #: Where the newest of it lies in `__consumer_offsets`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()

    class Meta:
        verbose_name = "group membership"
        verbose_name_plural = "group memberships"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="group_record_key")]

    def __str__(self) -> str:
        return self.group_id


class AddedOffsetsRecord(OfCluster):
    """What one partition of `__consumer_offsets` holds of the newest observed transaction of a producer.

    `fenceline.kafka.added_offsets.AddedOffsets`; one row for each producer id and partition.
    """

    producer_id = models.BigIntegerField()
    #: The partition of `__consumer_offsets`.
    log_partition = models.IntegerField()
    producer_epoch = models.IntegerField()
    #: As `fenceline.kafka.added_offsets.pack_offsets` writes them, of `total` at most 500.
    offsets = models.TextField()
    total = models.IntegerField()
    #: "commit" or "abort" once the transaction's marker was read, "" before.
    marker = models.CharField(max_length=6, blank=True)
    #: How many records were behind what was read, at `read_ms` by our clock.
    unread = models.BigIntegerField()
    read_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "added offset list"
        verbose_name_plural = "added offset lists"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "producer_id", "log_partition"], name="added_offsets_key"
            )
        ]
        indexes = [models.Index(fields=["cluster", "read_ms"], name="added_offsets_read")]

    def __str__(self) -> str:
        return f"producer id {self.producer_id} in __consumer_offsets-{self.log_partition}"


class Group(Observed):
    """One consumer group as it was seen last, its worst partition's status and lag its own."""

    #: As in CommitRecord.
    key = models.BinaryField(max_length=32)
    group_id = models.TextField()
    #: The name under which groups with random ids are folded together; the group's own id for all others.
    family = models.CharField(max_length=200)
    #: Kafka's words: Stable, Empty, PreparingRebalance, …; and Classic, Consumer, Share, Streams.
    state = models.CharField(max_length=24, blank=True)
    kind = models.CharField(max_length=16, blank=True)
    #: The broker that coordinates it, and its partition of `__consumer_offsets`.
    coordinator = models.IntegerField(null=True)
    log_partition = models.IntegerField(null=True)
    members = models.IntegerField(null=True)
    partitions = models.IntegerField(default=0)
    #: Sums over its partitions; None where one is unknown.
    lag_lso = models.BigIntegerField(null=True)
    lag_hw = models.BigIntegerField(null=True)
    #: The longest of its partitions.
    lag_ms = models.BigIntegerField(null=True)
    #: The lag of its last polls, [[at_ms, lag to LSO, lag to HW], …] as JSON text, oldest first.
    trend = models.TextField(blank=True)
    status = models.CharField(max_length=8, choices=[(s.value, s.value) for s in GroupStatus])
    #: How many of its partitions are at a stuck LSO, and how many have a pending transactional commit.
    blocked = models.IntegerField(default=0)
    unstable = models.IntegerField(default=0)
    #: Whose transactions commit its offsets, {topic: application} as JSON text: "" for nobody's, null where
    #: the producer is known and its transactional id is not. A topic that was not checked is left out.
    committers = models.TextField(blank=True)
    #: The state stores of a group of Kafka Streams, `fenceline.engines.streams.StreamsStore` as JSON text: ""
    #: where brokers did not report them.
    stores = models.TextField(blank=True, db_default="")
    seen_ms = models.BigIntegerField()
    #: Why it cannot be seen whole; "" when it can.
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = "consumer group"
        verbose_name_plural = "consumer groups"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="group_key")]
        indexes = [models.Index(fields=["cluster", "family"], name="group_family")]

    def __str__(self) -> str:
        return self.group_id


class GroupOffset(models.Model):
    """What a group committed for one partition, and what that means there."""

    group = models.ForeignKey(Group, models.CASCADE, db_index=False)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: None where only a pending commit is there.
    offset = models.BigIntegerField(null=True)
    leader_epoch = models.IntegerField(null=True)
    metadata = models.TextField(blank=True)
    #: By the coordinator's clock where the log has it, else when we first observed it; None before either.
    commit_ms = models.BigIntegerField(null=True)
    #: Whether a transactional commit of it is pending (UNSTABLE_OFFSET_COMMIT).
    unstable = models.BooleanField(default=False)
    log_start = models.BigIntegerField(null=True)
    lso = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    lag_ms = models.BigIntegerField(null=True)
    #: Between its offset and the LSO lie only markers and aborted records: nothing that it could read.
    only_markers = models.BooleanField(default=False)
    status = models.CharField(max_length=8, choices=[(s.value, s.value) for s in GroupStatus])
    #: `fenceline.kafka.groups.Waiting`: whether it waits at a pinned LSO, or has read past it; "" where none
    #: is.
    waiting = models.CharField(max_length=16, blank=True)
    #: Since when, by our clock, it waits there.
    waiting_ms = models.BigIntegerField(null=True)
    #: What it waits for: [{"producer_id", "producer_epoch", "transactional_id", "start_offset"}, …], and for
    #: a pending commit [{"transactional_id", …, "pending": true, "certain": bool}, …].
    blockers = models.JSONField(default=list)
    #: Its last commits or polls, [[at_ms, offset, lag to LSO], …] as JSON text, oldest first.
    points = models.TextField(blank=True)

    objects = ManagerOfGroup()

    class Meta:
        verbose_name = "group offset"
        verbose_name_plural = "group offsets"
        constraints = [
            models.UniqueConstraint(fields=["group", "topic", "partition"], name="group_offset_partition")
        ]
        indexes = [models.Index(fields=["topic", "partition"], name="group_offset_of_partition")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def beyond_end(self) -> bool:
        """Return whether its offset is past the end of the log."""
        return is_beyond_end(self.offset, self.high_watermark)

    @property
    def lag_lso(self) -> int | None:
        """Return how many offsets the group could read up to the LSO, None where that is unknown."""
        ends = self.log_start, self.lso, self.high_watermark
        return lag_to_lso(self.offset, *ends, only_markers=self.only_markers)

    @property
    def lag_hw(self) -> int | None:
        """Return how many offsets lie before the group up to the end, None where that is unknown."""
        if self.high_watermark is None or self.offset is None or self.beyond_end:
            return None
        return self.high_watermark - self.offset


class DroppedOffset(OfCluster):
    """A committed offset that a group had and has no more: expired, deleted, or gone with its topic."""

    #: As in CommitRecord.
    group_id = models.TextField()
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    #: When our polls missed it, by our clock.
    dropped_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "dropped offset"
        verbose_name_plural = "dropped offsets"
        indexes = [models.Index(fields=["cluster", "dropped_ms"], name="dropped_offset_at")]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.topic}-{self.partition}@{self.offset}"
