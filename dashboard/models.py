"""The tables. Observed state is written by `store` and by the judge alone, and read through `queries`.

Instants that come from Kafka, or are compared with it, are integers of milliseconds (`_ms`): the hot path
writes 100,000 of them a second and formats none. Instants of our own are timestamps (`_at`), so that the
database's clock can judge them.

The cluster of a table has no index of its own where a unique key begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.models import Q

from fenceline.facts import OPEN_STATES, Confidence, Kind, Reason, Severity, State


class Cluster(models.Model):
    """A Kafka cluster of the configuration, and its revision: the counter that orders every change."""

    name = models.CharField(max_length=64, unique=True)
    rev = models.BigIntegerField(default=0)
    #: False once the configuration no longer names it; its rows stay, its pages say so.
    configured = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


def _in_states(states: Sequence[str]) -> models.Func:
    """Return whether a transaction is in one of some states.

    Written out and not as parameters: SQLite takes an index of a part of a table only for the same text.
    """
    written = ", ".join(repr(str(state)) for state in states)
    output = models.BooleanField()
    return models.Func(models.F("state"), template=f"%(expressions)s IN ({written})", output_field=output)


#: States that few ids are in at a time, or that few change into.
IDLE = (State.EMPTY.value, State.COMPLETE_ABORT.value)
#: What a query says to be answered from the index of open, or of idle, transactions.
IS_OPEN, IS_IDLE = _in_states(OPEN_STATES), _in_states(IDLE)


class Beginning(models.Func):
    """The first 200 characters of a text, written alike in an index and in every query that is to use it."""

    template = "substr(%(expressions)s, 1, 200)"
    output_field = models.CharField()


#: What lists of ids are sorted by and searched in: ids may be 32 kB long, an index entry may not.
NAME = Beginning("transactional_id")


class Transaction(models.Model):
    """The newest known state of one transactional id: one row for each id of a cluster."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    #: SHA-256 of the id's bytes: ids may be 32 kB long, a key may not.
    key = models.BinaryField(max_length=32)
    #: As `fenceline.decode.text.escape` writes it.
    transactional_id = models.TextField()
    application = models.CharField(max_length=200, default="")
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
            models.Index("cluster", NAME, name="transaction_name"),
            models.Index("cluster", "application", NAME, name="transaction_application"),
            models.Index(fields=["cluster", "state"], condition=Q(state__in=IDLE), name="transaction_idle"),
        ]

    def __str__(self) -> str:
        return self.transactional_id


class Recent(models.Model):
    """The last transitions of an id, of any kind; not in its row, so that the list's table stays narrow."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    #: As `fenceline.recent.pack` writes them, newest first.
    packed = models.BinaryField()
    #: When the coordinator forgot the id; None while it is known.
    expired_ms = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="recent_key")]
        indexes = [
            models.Index(fields=["expired_ms"], condition=Q(expired_ms__isnull=False), name="recent_expired")
        ]

    def __str__(self) -> str:
        return bytes(self.key).hex()


class TransitionRecord(models.Model):
    """A notable transition (`facts.Transition`): every kind but the everyday ones."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    #: The cluster's revision that told it last.
    rev = models.BigIntegerField()
    #: As in Transaction; an id may be gone while its history stays.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in Kind])
    confidence = models.CharField(max_length=9, choices=[(each.value, each.value) for each in Confidence])
    reason = models.CharField(max_length=24, choices=[(reason.value, reason.value) for reason in Reason])
    at_ms = models.BigIntegerField()
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    previous_epoch = models.IntegerField(null=True)
    timeout_ms = models.IntegerField()
    open_ms = models.BigIntegerField(null=True)
    completed_ms = models.BigIntegerField(null=True)
    gap_ms = models.BigIntegerField(null=True)
    #: The record it was derived from.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    #: Kafka's id of the topic: offsets begin again when it is deleted and made again.
    topic_id = models.CharField(max_length=64)
    #: When a later record changed the verdict, and what it was before; None and "" where none did.
    revised_ms = models.BigIntegerField(null=True)
    revised_from = models.CharField(max_length=16, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "topic_id", "log_partition", "log_offset"], name="transition_record"
            )
        ]
        indexes = [
            models.Index(fields=["cluster", "rev"], name="transition_rev"),
            models.Index(fields=["cluster", "at_ms"], name="transition_at"),
            models.Index(fields=["cluster", "kind", "at_ms"], name="transition_kind"),
            models.Index(fields=["cluster", "application", "at_ms"], name="transition_application"),
            models.Index(fields=["cluster", "key", "at_ms"], name="transition_key"),
        ]

    def __str__(self) -> str:
        return f"{self.transactional_id}: {self.kind}"


class Tally(models.Model):
    """What happened to an application in a minute or an hour: how often each kind, how long commits took."""

    #: Stands for all applications of a cluster together: adding up thousands takes longer than a page may.
    EVERY = ""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    application = models.CharField(max_length=200)
    #: 60 or 3600.
    span_s = models.IntegerField()
    start_ms = models.BigIntegerField()
    #: Each tail shard has rows of its own, so that none waits for another; readers add them up.
    shard = models.IntegerField()
    #: {"commit": 12, …} as JSON text, every kind but baseline. No JSONField: written raw.
    counts = models.TextField()
    #: Begin to decision, and decision to the last marker, of commits: as `fenceline.histograms` packs them.
    open_times = models.TextField()
    marker_times = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "span_s", "application", "start_ms", "shard"], name="tally_span"
            )
        ]
        indexes = [models.Index(fields=["span_s", "start_ms"], name="tally_start")]

    def __str__(self) -> str:
        return f"{self.application} at {self.start_ms}"


class StateCount(models.Model):
    """How many ids of a cluster are in a state, kept as they change: counting 2,000,000 takes seconds."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    shard = models.IntegerField()
    state = models.CharField(max_length=16)
    #: May be below zero in one shard; the sum over all never is.
    n = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "shard", "state"], name="state_count_state")
        ]

    def __str__(self) -> str:
        return f"{self.state}: {self.n}"


class Position(models.Model):
    """The next offset to read in one partition of an internal topic, saved with what came before it."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    next_offset = models.BigIntegerField()
    #: The topic's end when `next_offset` was saved.
    end_offset = models.BigIntegerField()
    #: Kafka's id of the topic: one that was deleted and made again is another topic.
    topic_id = models.CharField(max_length=64)
    #: The first offset after the last stretch that compaction had removed before we came.
    hole_offset = models.BigIntegerField(null=True)

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
    #: What it has cost the cluster since the row was made: requests, and milliseconds of waiting for answers.
    requests = models.BigIntegerField(default=0)
    broker_ms = models.BigIntegerField(default=0)
    #: The same minute by minute: [[minute since the epoch, requests, milliseconds], …], the last few.
    costs = models.JSONField(default=list)
    #: What else it says of itself; each collector's own.
    detail = models.JSONField(default=dict)
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
