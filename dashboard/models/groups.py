"""Consumer groups: their committed offsets, their lag, and the transactions that block them."""

from django.db import models

from dashboard.models.collecting import ManagerOfGroup, Observed, OfCluster, choices_of
from fenceline.kafka.groups import GroupStatus, is_beyond_end, lag_to_lso


class CommitRecord(OfCluster):
    """A group's newest offset commit of a partition, as read from `__consumer_offsets`."""

    #: SHA-256 of the group id's bytes.
    key = models.BinaryField(max_length=32)
    #: Escaped by `fenceline.decode.text.escape_bytes`.
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
    #: The place of the commit in `__consumer_offsets`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()

    class Meta:
        verbose_name = "offset commit"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "key", "topic", "partition"], name="commit_record_key")
        ]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.topic}-{self.partition}@{self.offset}"


class GroupRecord(OfCluster):
    """The members of a group after the last join, as read from `__consumer_offsets`."""

    #: As in CommitRecord.
    key = models.BinaryField(max_length=32)
    group_id = models.TextField()
    #: {member id: [client id, host]} as JSON text.
    members = models.TextField(blank=True)
    #: The place of its newest record in `__consumer_offsets`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()

    class Meta:
        verbose_name = "group membership"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="group_record_key")]

    def __str__(self) -> str:
        return self.group_id


class AddedOffsetsRecord(OfCluster):
    """The offsets of a producer's newest observed transaction in one partition of `__consumer_offsets`.

    `fenceline.kafka.added_offsets.AddedOffsets`; one row for each producer id and partition.
    """

    producer_id = models.BigIntegerField()
    #: The partition of `__consumer_offsets`.
    log_partition = models.IntegerField()
    producer_epoch = models.IntegerField()
    #: Packed by `fenceline.kafka.added_offsets.pack_offsets`: at most 500 of `total`.
    offsets = models.TextField()
    total = models.IntegerField()
    #: "commit" or "abort" once the transaction's marker was read, "" before.
    marker = models.CharField(max_length=6, blank=True)
    #: The number of unread records at `read_ms`, by Fenceline's clock.
    unread = models.BigIntegerField()
    read_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "added offset list"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "producer_id", "log_partition"], name="added_offsets_key"
            )
        ]
        indexes = [models.Index(fields=["cluster", "read_ms"], name="added_offsets_read")]

    def __str__(self) -> str:
        return f"producer id {self.producer_id} in __consumer_offsets-{self.log_partition}"


class Group(Observed):
    """A consumer group at its last poll; its status and lag are those of its worst partition."""

    #: As in CommitRecord.
    key = models.BinaryField(max_length=32)
    group_id = models.TextField()
    #: The common name of groups with random ids; every other group's own id.
    family = models.CharField(max_length=200)
    #: Kafka's terms: Stable, Empty, PreparingRebalance, …; and Classic, Consumer, Share, Streams.
    state = models.CharField(max_length=24, blank=True)
    kind = models.CharField(max_length=16, blank=True)
    #: Its coordinator (a broker), and its partition of `__consumer_offsets`.
    coordinator = models.IntegerField(null=True)
    log_partition = models.IntegerField(null=True)
    members = models.IntegerField(null=True)
    partitions = models.IntegerField(default=0)
    #: Sums over its partitions; None if one is unknown.
    lag_lso = models.BigIntegerField(null=True)
    lag_hw = models.BigIntegerField(null=True)
    #: The longest lag of a partition.
    lag_ms = models.BigIntegerField(null=True)
    #: The lag at its last polls, [[at_ms, lag to LSO, lag to HW], …] as JSON text, oldest first.
    trend = models.TextField(blank=True)
    status = models.CharField(max_length=8, choices=choices_of(GroupStatus))
    #: The number of its partitions at a stuck LSO, and of those with a pending transactional commit.
    blocked = models.IntegerField(default=0)
    unstable = models.IntegerField(default=0)
    #: The application whose transactions commit its offsets, {topic: application} as JSON text: "" without
    #: transactions, null if the producer is known and its transactional id is not. Unchecked topics are
    #: omitted.
    committers = models.TextField(blank=True)
    #: The state stores of a group of Kafka Streams, `fenceline.engines.status.StreamsStore` as JSON text: ""
    #: if brokers did not report them.
    stores = models.TextField(blank=True, db_default="")
    seen_ms = models.BigIntegerField()
    #: Why its data is incomplete; else "".
    error = models.TextField(blank=True)

    class Meta:
        verbose_name = "consumer group"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="group_key")]
        indexes = [models.Index(fields=["cluster", "family"], name="group_family")]

    def __str__(self) -> str:
        return self.group_id


class GroupOffset(models.Model):
    """A group's committed offset of a partition, with its status there."""

    group = models.ForeignKey(Group, models.CASCADE, db_index=False)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    #: None if there is only a pending commit.
    offset = models.BigIntegerField(null=True)
    leader_epoch = models.IntegerField(null=True)
    metadata = models.TextField(blank=True)
    #: The commit time by the coordinator's clock if the log has it, else the first observation; None before
    #: both.
    commit_ms = models.BigIntegerField(null=True)
    #: Whether a transactional commit is pending (UNSTABLE_OFFSET_COMMIT).
    unstable = models.BooleanField(default=False)
    log_start = models.BigIntegerField(null=True)
    lso = models.BigIntegerField(null=True)
    high_watermark = models.BigIntegerField(null=True)
    lag_ms = models.BigIntegerField(null=True)
    #: Whether only markers and aborted records lie between its offset and the LSO: no readable records.
    only_markers = models.BooleanField(default=False)
    status = models.CharField(max_length=8, choices=choices_of(GroupStatus))
    #: `fenceline.kafka.groups.Waiting`: whether it waits at a pinned LSO, or has read past it; "" if the LSO
    #: is not pinned.
    waiting = models.CharField(max_length=16, blank=True)
    #: The time since which it waits there, by Fenceline's clock.
    waiting_ms = models.BigIntegerField(null=True)
    #: The blocking transactions: [{"producer_id", "producer_epoch", "transactional_id", "start_offset"}, …],
    #: and for a pending commit [{"transactional_id", …, "pending": true, "certain": bool}, …].
    blockers = models.JSONField(default=list)
    #: Its last commits or polls, [[at_ms, offset, lag to LSO], …] as JSON text, oldest first.
    points = models.TextField(blank=True)

    objects = ManagerOfGroup()

    class Meta:
        verbose_name = "group offset"
        constraints = [
            models.UniqueConstraint(fields=["group", "topic", "partition"], name="group_offset_partition")
        ]
        indexes = [models.Index(fields=["topic", "partition"], name="group_offset_of_partition")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def beyond_end(self) -> bool:
        return is_beyond_end(self.offset, self.high_watermark)

    @property
    def lag_lso(self) -> int | None:
        """Return the number of offsets that the group can read up to the LSO, None if unknown."""
        ends = self.log_start, self.lso, self.high_watermark
        return lag_to_lso(self.offset, *ends, only_markers=self.only_markers)

    @property
    def lag_hw(self) -> int | None:
        """Return the number of offsets between the group and the log's end, None if unknown."""
        if self.high_watermark is None or self.offset is None or self.beyond_end:
            return None
        return self.high_watermark - self.offset


class DroppedOffset(OfCluster):
    """A former committed offset of a group: expired, deleted, or removed with its topic."""

    #: As in CommitRecord.
    group_id = models.TextField()
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    #: When a poll found it missing, by Fenceline's clock.
    dropped_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "dropped offset"
        indexes = [models.Index(fields=["cluster", "dropped_ms"], name="dropped_offset_at")]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.topic}-{self.partition}@{self.offset}"
