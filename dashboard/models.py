"""The tables. Observed state is written by `store` and by the judge alone, and read through `queries`.

Instants that come from Kafka, or are compared with it, are integers of milliseconds (`_ms`): the hot path
writes 100,000 of them a second and formats none. Instants of our own are timestamps (`_at`), so that the
database's clock can judge them.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from fenceline.facts import OPEN_STATES, Severity, State


class Cluster(models.Model):
    """A Kafka cluster of the configuration, and its revision: the counter that orders every change."""

    name = models.CharField(max_length=64, unique=True)
    rev = models.BigIntegerField(default=0)
    #: False once the configuration no longer names it; its rows stay, its pages say so.
    configured = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Transaction(models.Model):
    """The newest known state of one transactional id: one row for each id of a cluster."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    #: SHA-256 of the id's bytes: ids may be 32 kB long, a key may not.
    key = models.BinaryField(max_length=32)
    #: As `fenceline.decode.text.escape` writes it.
    transactional_id = models.TextField()
    state = models.CharField(max_length=16, choices=[(state.value, state.value) for state in State])
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    timeout_ms = models.IntegerField()
    started_ms = models.BigIntegerField(null=True)
    updated_ms = models.BigIntegerField()
    #: [["topic", [0, 2]], …] as JSON text, "" where the record has none. No JSONField: written raw.
    partitions = models.TextField(blank=True)
    partition_count = models.IntegerField()
    #: 0, 1 or 2 (KIP-890); meaningless while Empty.
    client_version = models.SmallIntegerField()
    #: Where its newest record lies in `__transaction_state`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    rev = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="transaction_key")]
        indexes = [
            models.Index(
                fields=["cluster", "started_ms"],
                condition=Q(state__in=[state.value for state in OPEN_STATES]),
                name="transaction_open",
            ),
        ]

    def __str__(self) -> str:
        return self.transactional_id


class Position(models.Model):
    """The next offset to read in one partition of an internal topic, saved with what came before it."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    next_offset = models.BigIntegerField()
    #: The topic's end when `next_offset` was saved.
    end_offset = models.BigIntegerField()
    #: Kafka's id of the topic: one that was deleted and made again is another topic.
    topic_id = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="position_partition")
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Collector(models.Model):
    """A collector's lease and what it says of itself.

    `token` is a fencing token: it grows with every new holder, and every save names the token it was given,
    so a holder that was paused past its expiry can write nothing.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    name = models.CharField(max_length=64)
    token = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=128, blank=True)
    #: By the database's clock.
    expires_at = models.DateTimeField()
    #: Everything before this instant has been seen; None before the first complete look.
    seen_through_ms = models.BigIntegerField(null=True)
    behind = models.BigIntegerField(null=True)
    #: Records read since the row was made.
    records = models.BigIntegerField(default=0)
    #: Records per second over the last save.
    rate = models.FloatField(default=0)
    #: {"value_version": 3, …}: records that could not be decoded, by reason.
    undecoded = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    #: When the error, or its absence, began.
    since_ms = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="collector_name")]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class GapRecord(models.Model):
    """Something that could not be seen: where, since when, why, and when sight came back."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    source = models.CharField(max_length=64)
    scope = models.CharField(max_length=300)
    since_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(null=True)
    reason = models.TextField()
    #: How often it was seen: compaction leaves many small holes, each no news of its own.
    count = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "source", "scope"], condition=Q(until_ms=None), name="gap_open_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class FindingRecord(models.Model):
    """A rule's verdict about a subject over time: open while `closed_at` is empty."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    #: SHA-256 of cluster, rule and subject: a subject may be longer than an index entry.
    fingerprint = models.BinaryField(max_length=32)
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in Severity])
    summary = models.TextField()
    evidence = models.TextField()
    next_step = models.TextField()
    affected = models.JSONField(default=list)
    since_ms = models.BigIntegerField()
    seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    #: Whether the last tick could see everything the rule needs.
    complete = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(closed_at=None), name="finding_open_once"
            )
        ]
        indexes = [models.Index(fields=["cluster", "seen_at"], name="finding_seen")]

    def __str__(self) -> str:
        return self.summary


class Token(models.Model):
    """A bearer token of the API. Only its digest is kept."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMIN = "admin"
        INGEST = "ingest"

    name = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=8, choices=Role)
    #: SHA-256 of the token, in hexadecimal.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"
