"""Transactional ids: their newest state, history and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Observed, OfCluster, ScopedManager, choices_of
from fenceline.facts import (
    OPEN_STATES,
    PREPARED_STATES,
    Confidence,
    TransactionState,
    TransitionKind,
    TransitionReason,
)


def _in_states(states: Sequence[str]) -> models.Func:
    """Return the SQL condition that a transaction is in one of the states.

    The states are literals, not parameters: SQLite uses a partial index only for the same text.
    """
    written = ", ".join(repr(str(state)) for state in states)
    output = models.BooleanField()
    return models.Func(models.F("state"), template=f"%(expressions)s IN ({written})", output_field=output)


#: States with few ids at a time, or with few changes into them.
IDLE = (TransactionState.EMPTY.value, TransactionState.COMPLETE_ABORT.value)
#: Conditions that make a query use the index of open, or of idle, transactions.
IS_OPEN, IS_IDLE = _in_states(OPEN_STATES), _in_states(IDLE)


class Beginning(models.Func):
    """The first 200 characters of a text, in the same SQL for an index and for the queries that use it."""

    template = "substr(%(expressions)s, 1, 200)"
    output_field = models.CharField()


class Ordered(Beginning):
    """`Beginning` in code point order, as in Python and SQLite; PostgreSQL's order depends on its locale.

    Use it only to sort and compare; a case-insensitive search needs the locale's letters.
    """

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=f'{self.template} COLLATE "C"', **context)


#: The sort key of lists of ids: ids may be 32 kB long, index entries may not.
NAME = Ordered("transactional_id")


class _WithoutRecent(ScopedManager["Transaction"]):
    """Loads rows without `recent`, which is deferred."""

    def get_queryset(self) -> models.QuerySet[Transaction]:
        return super().get_queryset().defer("recent")


class Transaction(Observed):
    """The newest known state of a transactional id; one row for each id of a cluster."""

    #: SHA-256 of the id's bytes: ids may be 32 kB long, keys may not.
    key = models.BinaryField(max_length=32)
    #: Escaped by `fenceline.decode.text.escape_bytes`.
    transactional_id = models.TextField()
    application = models.CharField(max_length=200, default="")
    state = models.CharField(max_length=16, choices=choices_of(TransactionState))
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    timeout_ms = models.IntegerField()
    started_ms = models.BigIntegerField(null=True)
    updated_ms = models.BigIntegerField()
    #: [["topic", [0, 2]], …] as JSON text, "" if the record has no partitions. No JSONField: written raw.
    partitions = models.TextField(blank=True)
    partition_count = models.IntegerField()
    #: 0, 1 or 2 (KIP-890); meaningless while Empty.
    client_version = models.SmallIntegerField()
    #: The place of its newest record in `__transaction_state`.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    #: Its last transitions of any kind, newest first, packed by
    #: `fenceline.kafka.fold.transition_ring.pack_ring`.
    recent = models.BinaryField(default=b"", db_default=b"")

    objects: ClassVar[_WithoutRecent] = _WithoutRecent()

    class Meta:
        verbose_name = "transactional id"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="transaction_key")]
        indexes = [
            # Without `started_ms`, which changes with each save: PostgreSQL would write all indexes then.
            models.Index(
                fields=["cluster"],
                condition=Q(state__in=[state.value for state in OPEN_STATES]),
                name="transaction_open",
            ),
            models.Index("cluster", NAME, name="transaction_name"),
            models.Index("cluster", "application", NAME, name="transaction_application"),
            models.Index(fields=["cluster", "state"], condition=Q(state__in=IDLE), name="transaction_idle"),
        ]

    def __str__(self) -> str:
        return self.transactional_id

    @property
    def is_ending(self) -> bool:
        """Whether its end is decided, and markers are being written."""
        return self.state in PREPARED_STATES

    @property
    def is_open(self) -> bool:
        """Whether it blocks a last stable offset."""
        return self.state in OPEN_STATES


class Recent(OfCluster):
    """The last transitions of an id that its coordinator has removed.

    If the id is used again, its row in Transaction has newer transitions.
    """

    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    #: As `recent` in Transaction.
    packed = models.BinaryField()
    #: When the coordinator removed the id; None if unknown.
    expired_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "recent transition list"
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="recent_key")]
        indexes = [
            models.Index(fields=["expired_ms"], condition=Q(expired_ms__isnull=False), name="recent_expired")
        ]

    def __str__(self) -> str:
        return bytes(self.key).hex()


class TransitionRecord(Observed):
    """A notable transition (`facts.Transition`): every kind but the routine ones."""

    #: As in Transaction; the history outlives the id.
    key = models.BinaryField(max_length=32)
    transactional_id = models.TextField()
    application = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=choices_of(TransitionKind))
    confidence = models.CharField(max_length=9, choices=choices_of(Confidence))
    reason = models.CharField(max_length=24, choices=choices_of(TransitionReason))
    at_ms = models.BigIntegerField()
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    previous_epoch = models.IntegerField(null=True)
    timeout_ms = models.IntegerField()
    open_ms = models.BigIntegerField(null=True)
    completed_ms = models.BigIntegerField(null=True)
    gap_ms = models.BigIntegerField(null=True)
    #: For an abort, the partitions that the transaction wrote to: as in Transaction.
    partitions = models.TextField(blank=True)
    #: The record that it was derived from.
    log_partition = models.IntegerField()
    log_offset = models.BigIntegerField()
    #: Kafka's topic id: the offsets of a re-created topic begin again.
    topic_id = models.CharField(max_length=64)
    #: When a later record changed the kind, and the previous kind; None and "" without a change.
    revised_ms = models.BigIntegerField(null=True)
    revised_from = models.CharField(max_length=16, blank=True)
    #: The action of Fenceline that caused it, else None. Actions are kept for ever.
    action = models.ForeignKey("Action", models.SET_NULL, null=True)

    class Meta:
        verbose_name = "transition"
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


class CoordinatorMoveRecord(Observed):
    """Ids whose coordinator changed (`fenceline.kafka.coordinator.CoordinatorMove`)."""

    before_ms = models.BigIntegerField()
    seen_ms = models.BigIntegerField()
    from_broker = models.IntegerField()
    to_broker = models.IntegerField()
    #: Partitions of `__transaction_state`: [3, 17].
    partitions = models.JSONField()
    ids = models.BigIntegerField()
    size = models.BigIntegerField(null=True)
    answered_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "coordinator move"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "seen_ms", "from_broker", "to_broker"], name="coordinator_move"
            )
        ]

    def __str__(self) -> str:
        return f"{self.from_broker} to {self.to_broker}"


class Tally(OfCluster):
    """An application's transitions in a minute or an hour: counts by kind, and durations of commits.

    One more row, of `FOR_EVER_S` and EVERY, is the total of all counts. It only grows: a revised transition
    is counted again there, and its old kind is not subtracted.
    """

    #: Stands for all applications of a cluster together, because adding up thousands is too slow for a page.
    EVERY = ""
    #: The span of the total, which is never pruned; its `start_ms` is 0.
    FOR_EVER_S = 0

    application = models.CharField(max_length=200)
    #: 60, 3600 or FOR_EVER_S.
    span_s = models.IntegerField()
    start_ms = models.BigIntegerField()
    #: Every tail shard has its own rows, so that shards do not wait for each other; readers add them up.
    shard = models.IntegerField()
    #: {"commit": 12, …} as JSON text, every kind but baseline. No JSONField: written raw.
    counts = models.TextField()
    #: Durations of commits from begin to decision, and from decision to the last marker, packed by
    #: `fenceline.series.histograms`.
    open_times = models.TextField()
    marker_times = models.TextField()

    class Meta:
        verbose_name = "tally"
        verbose_name_plural = "tallies"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "span_s", "application", "start_ms", "shard"], name="tally_span"
            )
        ]
        indexes = [models.Index(fields=["span_s", "start_ms"], name="tally_start")]

    def __str__(self) -> str:
        return f"{self.application} at {self.start_ms}"


class StateCount(OfCluster):
    """The number of a cluster's ids in a state, kept with each change: counting 2,000,000 takes seconds."""

    shard = models.IntegerField()
    state = models.CharField(max_length=16)
    #: May be negative in one shard; the sum over all shards never is.
    n = models.BigIntegerField()

    class Meta:
        verbose_name = "state count"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "shard", "state"], name="state_count_state")
        ]

    def __str__(self) -> str:
        return f"{self.state}: {self.n}"


class TopicTally(OfCluster):
    """An application's transactions that wrote to a topic and ended in a span of time.

    A row without counts stands for a transaction that was open at the end of the span.
    """

    application = models.CharField(max_length=200)
    #: "" for the topics beyond the number stored per application.
    topic = models.CharField(max_length=249, blank=True)
    #: The partition of `__consumer_offsets`, which narrows down the group; -1 for other topics.
    partition = models.IntegerField()
    #: 900 or 21,600.
    span_s = models.IntegerField()
    start_ms = models.BigIntegerField()
    #: Every tail shard has its own rows, as in Tally.
    shard = models.IntegerField()
    commits = models.BigIntegerField()
    aborts = models.BigIntegerField()
    #: Times from begin to the last marker of committed transactions, packed by `fenceline.series.histograms`.
    unreadable_times = models.TextField()
    last_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "topic tally"
        verbose_name_plural = "topic tallies"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "span_s", "application", "start_ms", "topic", "partition", "shard"],
                name="topic_tally_span",
            )
        ]
        indexes = [models.Index(fields=["cluster", "span_s", "start_ms"], name="topic_tally_start")]

    def __str__(self) -> str:
        return f"{self.application} to {self.topic}"
