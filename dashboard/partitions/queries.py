"""Queries for partitions and their open transactions, for pages and API."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from django.conf import settings
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.expressions import Expression

from dashboard.models import (
    PartitionRecord,
    PinRecord,
    ReplicaLook,
    Transaction,
)
from dashboard.runtime import criteria, loop, visibility
from dashboard.runtime.criteria import Criteria, Number, Page, Sorted, page_of, sorted_columns
from fenceline.decode.record_batches import BatchWriters
from fenceline.decode.typed import read_json, record_of
from fenceline.facts import NOT_REPORTED
from fenceline.grouping import grouped
from fenceline.kafka.partitions import VERDICTS, WORST_VERDICTS, PartitionVerdict, Pin

#: The topic in which coordinators store transactional ids; its partitions' leaders are the coordinators.
STATE_TOPIC = "__transaction_state"
#: The filter for every verdict but clear.
PINNED = "pinned"
#: The filter for partitions that a transaction blocks (`is_blocked`).
BLOCKED = "blocked"
#: The prefix of the names of Kafka's internal topics.
_INTERNAL = "__"
#: Unreadable partitions come before clear ones.
_RANK = Case(
    *(
        When(verdict=verdict.value, then=Value(n))
        for n, verdict in enumerate(WORST_VERDICTS)
        if verdict != PartitionVerdict.CLEAR
    ),
    When(~Q(error=""), then=Value(len(WORST_VERDICTS))),
    default=Value(len(WORST_VERDICTS) + 1),
    output_field=IntegerField(),
)

#: A partition by its cluster's key, topic and number.
Name = tuple[int, str, int]


class PartitionCriteria(Criteria):
    api_only: ClassVar = frozenset({"topic"})

    cluster: criteria.Name = ""
    #: "pinned" for all but clear; "blocked" for partitions blocked by a transaction, also of internal topics.
    verdict: Literal["", "blocked", "pinned", "clear", "open", "late", "hanging", "unknown"] = ""
    topic: criteria.Name = ""
    #: A part of a topic's name, or a full `topic-partition`.
    q: criteria.Search = ""
    #: Whether Kafka's internal topics are listed too.
    internal: bool = False


class SortedPartitions(Sorted, PartitionCriteria):
    sort: Literal["worst", "name", "held", "age"] = "worst"


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of partitions for every verdict; internal topics are counted separately."""

    users: Mapping[str, int] = field(default_factory=dict)
    internal: Mapping[str, int] = field(default_factory=dict)

    def count_of(self, verdict: str, *, internal: bool) -> int:
        """Return the number of partitions with a verdict or "pinned"; "" counts all."""
        return _sum(self.users, verdict) + (self.hidden_count(verdict) if internal else 0)

    def hidden_count(self, verdict: str) -> int:
        """Return the number of internal topics' partitions with a verdict or "pinned"; "" counts all."""
        return _sum(self.internal, verdict)


def verdict_counts(cluster: str) -> Counts:
    """Return the number of partitions by verdict."""
    inner = Q(topic__startswith=_INTERNAL)
    rows = (
        visibility.rows_in(PartitionRecord, cluster)
        .values_list("verdict")
        .annotate(n=Count("id"), internal=Count("id", filter=inner))
    )
    counts = {verdict: (n, internal) for verdict, n, internal in rows}
    by_verdict = {verdict.value: counts.get(verdict.value, (0, 0)) for verdict in VERDICTS}
    return Counts(
        {verdict: n - internal for verdict, (n, internal) in by_verdict.items()},
        {verdict: internal for verdict, (_, internal) in by_verdict.items()},
    )


def is_blocked(row: PartitionRecord, now_ms: int) -> bool:
    """Whether a transaction blocks a partition: for longer than `group_blocked_s`, or because it hangs."""
    if row.verdict in (PartitionVerdict.CLEAR, PartitionVerdict.HANGING):
        return row.verdict == PartitionVerdict.HANGING
    return row.pinned_ms is not None and row.pinned_ms < _blocked_before_ms(now_ms)


def blocked_count(cluster: str, now_ms: int) -> int:
    """Return the number of partitions blocked by a transaction, also of internal topics."""
    return visibility.rows_in(PartitionRecord, cluster).filter(_is_blocked(now_ms)).count()


def blocked_by_cluster(now_ms: int) -> Mapping[str, int]:
    """Return the number of blocked partitions by cluster, without clusters that have none."""
    return visibility.count_by_cluster(visibility.rows_in(PartitionRecord).filter(_is_blocked(now_ms)))


def _is_blocked(now_ms: int) -> Q:
    """Return the condition of `is_blocked`; an index excludes clear partitions."""
    long_ago = Q(pinned_ms__lt=_blocked_before_ms(now_ms))
    return ~Q(verdict="clear") & (Q(verdict=PartitionVerdict.HANGING.value) | long_ago)


def _blocked_before_ms(now_ms: int) -> int:
    return now_ms - settings.FENCELINE.limits.blocked_after_ms


def partition_page(wanted: SortedPartitions, *, page: Number, size: int) -> Page[PartitionRecord]:
    by: dict[str, Sequence[Expression | F]] = {
        "worst": [_RANK, F("pinned_ms")],
        "held": [F("high_watermark") - F("lso")],
        "age": [F("pinned_ms")],
    }
    name = F("topic"), F("partition"), F("cluster_id")
    rows = _filtered(wanted).select_related("cluster").defer("ends", "replicas")
    return page_of(rows.order_by(*sorted_columns(wanted, *by.get(wanted.sort, ()), *name)), page, size)


def partitions_after(
    wanted: PartitionCriteria, *, place: tuple[str, str, int], limit: int
) -> Sequence[PartitionRecord]:
    """Return the next partitions after a cluster, topic and number, in that order."""
    cluster, topic, number = place
    same = Q(cluster__name=cluster)
    behind = (
        Q(cluster__name__gt=cluster) | same & Q(topic__gt=topic) | same & Q(topic=topic, partition__gt=number)
    )
    rows = _filtered(wanted).filter(behind).select_related("cluster").defer("ends")
    return list(rows.order_by("cluster__name", "topic", "partition")[:limit])


def find_partition(cluster: str, topic: str, number: int) -> PartitionRecord | None:
    rows = PartitionRecord.objects.filter(cluster__name=cluster, cluster__configured=True)
    return rows.filter(topic=topic, partition=number).select_related("cluster").first()


def partitions_by_name(names: Iterable[Name]) -> Mapping[Name, PartitionRecord]:
    """Return the known partitions among the names."""
    wanted = set(names)
    rows = PartitionRecord.objects.filter(_among(wanted)).defer("ends") if wanted else ()
    by_name = {(row.cluster_id, row.topic, row.partition): row for row in rows}
    return {name: row for name, row in by_name.items() if name in wanted}


def partition_pins(names: Iterable[Name]) -> Mapping[Name, Sequence[PinRecord]]:
    """Return the open transactions by partition, sorted by start offset: the first one holds the LSO."""
    wanted = set(names)
    pins: dict[Name, list[PinRecord]] = defaultdict(list)
    rows = PinRecord.objects.filter(_among(wanted)).select_related("cluster") if wanted else ()
    for row in rows:
        if (name := (row.cluster_id, row.topic, row.partition)) in wanted:
            pins[name].append(row)
    return {name: sorted(pins_there, key=lambda pin: pin.start_offset) for name, pins_there in pins.items()}


def pins_of(rows: Sequence[Transaction]) -> Mapping[int, Sequence[PinRecord]]:
    """Return the partitions in which ids have open transactions, by the key of the id's row.

    A producer id belongs to one id for ever; an epoch before the current one is an abandoned transaction.
    """
    by_producer = grouped(
        ((row.cluster_id, row.producer_id), row) for row in rows if row.producer_id != NOT_REPORTED
    )
    if not by_producer:
        return {}
    clusters, producers = ({key[n] for key in by_producer} for n in (0, 1))
    pins: dict[int, list[PinRecord]] = defaultdict(list)
    for pin in PinRecord.objects.filter(cluster__in=clusters, producer_id__in=producers):
        for row in by_producer.get((pin.cluster_id, pin.producer_id), ()):
            if pin.transactional_id in ("", row.transactional_id):
                pins[row.pk].append(pin)
    return {
        pk: sorted(pins_of_row, key=lambda pin: (pin.topic, pin.partition))
        for pk, pins_of_row in pins.items()
    }


def replica_answers(row: PartitionRecord) -> Sequence[ReplicaLook]:
    """Return the replicas' last answers about their producers, the leader's first."""
    rows = ReplicaLook.objects.filter(cluster=row.cluster_id, topic=row.topic, partition=row.partition)
    return list(rows.order_by("-leads", "broker"))


def batch_writers(look: ReplicaLook) -> BatchWriters | None:
    """Return the writers of a partition's newest batches on its leader; None if not read."""
    return None if look.writers is None else read_json(BatchWriters, look.writers)


def coordinator_brokers(cluster_id: int, log_partitions: Iterable[int]) -> Mapping[int, int]:
    """Return the coordinators of ids: the known leaders of partitions of `__transaction_state`."""
    rows = PartitionRecord.objects.filter(
        cluster=cluster_id, topic=STATE_TOPIC, partition__in=set(log_partitions), leader__isnull=False
    )
    return {
        number: leader for number, leader in rows.values_list("partition", "leader") if leader is not None
    }


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the worst of the verdicts, clear without any."""
    order = [verdict.value for verdict in VERDICTS]
    return max(verdicts, key=order.index, default=PartitionVerdict.CLEAR.value)


def verdict_of(is_open: bool, pins: Sequence[PinRecord]) -> str:
    """Return the verdict on an id: the worst verdict of the partitions in which its transactions are open.

    An id whose newest transaction has ended may still have a hanging one of an earlier epoch. That end
    outdates every other verdict.
    """
    worst = worst_verdict(pin.verdict for pin in pins)
    if is_open:
        return PartitionVerdict.OPEN.value if worst == PartitionVerdict.CLEAR else worst
    return worst if worst == PartitionVerdict.HANGING else PartitionVerdict.CLEAR.value


def unstable_offsets(row: PartitionRecord) -> int | None:
    """Return the number of offsets after the LSO: an upper bound of the records, as markers count too."""
    if row.high_watermark is None or row.lso is None:
        return None
    return max(0, row.high_watermark - row.lso)


def _sum(counted: Mapping[str, int], verdict: str) -> int:
    pinned = verdict == PINNED
    return sum(
        n
        for counted_verdict, n in counted.items()
        if verdict in ("", counted_verdict) or (pinned and counted_verdict != PartitionVerdict.CLEAR)
    )


def _filtered(wanted: PartitionCriteria) -> QuerySet[PartitionRecord]:
    rows = visibility.rows_in(PartitionRecord, wanted.cluster)
    if wanted.verdict == BLOCKED:
        return rows.filter(_is_blocked(loop.now_ms()), *([_named(wanted.q)] if wanted.q else []))
    if wanted.verdict == PINNED:
        rows = rows.exclude(verdict=PartitionVerdict.CLEAR.value)
    elif wanted.verdict:
        rows = rows.filter(verdict=wanted.verdict)
    if wanted.topic:
        rows = rows.filter(topic=wanted.topic)
    if wanted.q:
        rows = rows.filter(_named(wanted.q))
    return rows if wanted.internal else rows.exclude(topic__startswith=_INTERNAL)


def _named(asked: str) -> Q:
    topic, dash, number = asked.rpartition("-")
    condition = Q(topic__icontains=asked)
    # No partition has a longer number, and the database cannot store one.
    if dash and number.isascii() and number.isdigit() and len(number) <= 9:
        condition |= Q(topic__iendswith=topic, partition=int(number))
    return condition


def _among(names: Iterable[Name]) -> Q:
    """Return a condition that matches the partitions and a few others; the caller filters by name."""
    clusters, topics, numbers = (set(values) for values in zip(*names, strict=True))
    return Q(cluster__in=clusters, topic__in=topics, partition__in=numbers)


def pin_of(row: PinRecord) -> Pin:
    """Return a row of an open transaction in a partition as a `Pin`."""
    return record_of(Pin, row, seen_ms=None)
