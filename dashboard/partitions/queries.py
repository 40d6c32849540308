"""Partitions and the transactions open in them, for pages and API: a reader beside `queries`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.expressions import Expression, OrderBy

from dashboard.models import (
    PartitionRecord,
    PinRecord,
    ReplicaLook,
    Transaction,
)
from dashboard.runtime import criteria
from dashboard.runtime.criteria import Criteria, Sorted
from dashboard.runtime.paging import Number, Page, page_of
from fenceline.facts import NOT_REPORTED
from fenceline.kafka.partitions import VERDICTS, WORST_VERDICTS, PartitionVerdict, Pin, VerdictReason

#: The topic in which coordinators keep transactional ids; its partitions' leaders are the coordinators.
STATE_TOPIC = "__transaction_state"
#: What stands for every verdict but clear.
PINNED = "pinned"
#: Topics of Kafka's own begin so.
_INTERNAL = "__"
_HELD = F("high_watermark") - F("lso")
#: What cannot be seen comes before what is clear.
_RANK = Case(
    *(
        When(verdict=each.value, then=Value(n))
        for n, each in enumerate(WORST_VERDICTS)
        if each != PartitionVerdict.CLEAR
    ),
    When(~Q(error=""), then=Value(len(WORST_VERDICTS))),
    default=Value(len(WORST_VERDICTS) + 1),
    output_field=IntegerField(),
)

#: A partition by its cluster's key, topic and number.
Name = tuple[int, str, int]


class PartitionCriteria(Criteria):
    """Which partitions a list is asked for."""

    api_only: ClassVar = frozenset({"topic"})

    cluster: criteria.Name = ""
    #: "pinned" for all but clear.
    verdict: Literal["", "pinned", "clear", "open", "late", "hanging", "unknown"] = ""
    topic: criteria.Name = ""
    #: A part of a topic's name, or a whole `topic-partition`.
    q: criteria.Name = ""
    #: Whether Kafka's own topics are listed too.
    internal: bool = False


class SortedPartitions(Sorted, PartitionCriteria):
    """Partitions in an order."""

    sort: Literal["worst", "name", "held", "age"] = "worst"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many partitions have each verdict, every verdict present; internal topics are counted apart."""

    users: Mapping[str, int] = field(default_factory=dict)
    internal: Mapping[str, int] = field(default_factory=dict)

    def count_of(self, verdict: str, *, internal: bool) -> int:
        """Return how many have a verdict, "pinned", or any for ""."""
        return _sum(self.users, verdict) + (self.hidden_count(verdict) if internal else 0)

    def hidden_count(self, verdict: str) -> int:
        """Return how many of the internal topics' have a verdict, "pinned", or any for ""."""
        return _sum(self.internal, verdict)


def verdict_counts(cluster: str) -> Counts:
    """Return how many partitions have each verdict."""
    inner = Q(topic__startswith=_INTERNAL)
    rows = _all(cluster).values_list("verdict").annotate(n=Count("id"), internal=Count("id", filter=inner))
    found = {verdict: (n, internal) for verdict, n, internal in rows}
    each = {verdict.value: found.get(verdict.value, (0, 0)) for verdict in VERDICTS}
    return Counts(
        {verdict: n - internal for verdict, (n, internal) in each.items()},
        {verdict: internal for verdict, (_, internal) in each.items()},
    )


def blocked_count(cluster: str) -> int:
    """Return how many partitions are blocked, internal topics' too; most are not, and are not counted."""
    return _all(cluster).filter(~Q(verdict="clear")).count()


def partition_page(wanted: SortedPartitions, *, page: Number, size: int) -> Page[PartitionRecord]:
    """Return one page of the partitions that `wanted` describes."""
    rows = _filtered(wanted).select_related("cluster").defer("ends", "replicas")
    return page_of(rows.order_by(*_order(wanted)), page, size)


def partitions_after(
    wanted: PartitionCriteria, *, place: tuple[str, str, int], limit: int
) -> Sequence[PartitionRecord]:
    """Return the next partitions behind a cluster, topic and number, in that order."""
    cluster, topic, number = place
    same = Q(cluster__name=cluster)
    behind = (
        Q(cluster__name__gt=cluster) | same & Q(topic__gt=topic) | same & Q(topic=topic, partition__gt=number)
    )
    rows = _filtered(wanted).filter(behind).select_related("cluster").defer("ends")
    return list(rows.order_by("cluster__name", "topic", "partition")[:limit])


def find_partition(cluster: str, topic: str, number: int) -> PartitionRecord | None:
    """Return one partition, None where it is not known."""
    rows = PartitionRecord.objects.select_related("cluster")
    return rows.filter(cluster__name=cluster, topic=topic, partition=number).first()


def partitions_by_name(names: Iterable[Name]) -> Mapping[Name, PartitionRecord]:
    """Return the partitions of some names that are known."""
    wanted = set(names)
    rows = PartitionRecord.objects.filter(_among(wanted)).defer("ends", "replicas") if wanted else ()
    found = {(row.cluster_id, row.topic, row.partition): row for row in rows}
    return {name: row for name, row in found.items() if name in wanted}


def partition_pins(names: Iterable[Name]) -> Mapping[Name, Sequence[PinRecord]]:
    """Return the open transactions of partitions, each one's first in the log first: that is the LSO's."""
    wanted = set(names)
    found: dict[Name, list[PinRecord]] = defaultdict(list)
    rows = PinRecord.objects.filter(_among(wanted)).select_related("cluster") if wanted else ()
    for row in rows:
        if (name := (row.cluster_id, row.topic, row.partition)) in wanted:
            found[name].append(row)
    return {name: sorted(each, key=lambda pin: pin.start_offset) for name, each in found.items()}


def pins_of(rows: Sequence[Transaction]) -> Mapping[int, Sequence[PinRecord]]:
    """Return where the transactions of ids are open, by the key of their row.

    A producer id is one id's for ever; an epoch before the present one's is a transaction that was left.
    """
    by_producer = {(row.cluster_id, row.producer_id): row for row in rows if row.producer_id != NOT_REPORTED}
    if not by_producer:
        return {}
    clusters, producers = ({key[n] for key in by_producer} for n in (0, 1))
    found: dict[int, list[PinRecord]] = defaultdict(list)
    for pin in PinRecord.objects.filter(cluster__in=clusters, producer_id__in=producers):
        row = by_producer.get((pin.cluster_id, pin.producer_id))
        if row is not None and pin.transactional_id in ("", row.transactional_id):
            found[row.pk].append(pin)
    return {pk: sorted(each, key=lambda pin: (pin.topic, pin.partition)) for pk, each in found.items()}


def replica_answers(row: PartitionRecord) -> Sequence[ReplicaLook]:
    """Return the replicas' last answers about their producers, the leader first."""
    rows = ReplicaLook.objects.filter(cluster=row.cluster_id, topic=row.topic, partition=row.partition)
    return list(rows.order_by("-leads", "broker"))


def coordinator_brokers(cluster_id: int, log_partitions: Iterable[int]) -> Mapping[int, int]:
    """Return the brokers that coordinate ids: who leads partitions of `__transaction_state`, where known."""
    rows = PartitionRecord.objects.filter(
        cluster=cluster_id, topic=STATE_TOPIC, partition__in=set(log_partitions), leader__isnull=False
    )
    return {
        number: leader for number, leader in rows.values_list("partition", "leader") if leader is not None
    }


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the worst of some verdicts, clear for none."""
    order = [verdict.value for verdict in VERDICTS]
    return max(verdicts, key=order.index, default=PartitionVerdict.CLEAR.value)


def verdict_of(is_open: bool, found: Sequence[PinRecord]) -> str:
    """Return the verdict on an id: the worst of where its transactions are open.

    An id whose newest transaction is over can still have one that hangs, left by an earlier epoch; any other
    verdict was the end's to overtake.
    """
    worst = worst_verdict(pin.verdict for pin in found)
    if is_open:
        return PartitionVerdict.OPEN.value if worst == PartitionVerdict.CLEAR else worst
    return worst if worst == PartitionVerdict.HANGING else PartitionVerdict.CLEAR.value


def unstable_offsets(row: PartitionRecord) -> int | None:
    """Return how many offsets lie behind the LSO: a bound of the records, since markers count too."""
    if row.high_watermark is None or row.lso is None:
        return None
    return max(0, row.high_watermark - row.lso)


def _sum(counted: Mapping[str, int], verdict: str) -> int:
    pinned = verdict == PINNED
    return sum(
        n
        for each, n in counted.items()
        if verdict in ("", each) or (pinned and each != PartitionVerdict.CLEAR)
    )


def _all(cluster: str) -> QuerySet[PartitionRecord]:
    rows = PartitionRecord.objects.filter(cluster__configured=True)
    return rows.filter(cluster__name=cluster) if cluster else rows


def _filtered(wanted: PartitionCriteria) -> QuerySet[PartitionRecord]:
    rows = _all(wanted.cluster)
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
    found = Q(topic__icontains=asked)
    # Longer numbers are none of a partition, and no integer of the database.
    if dash and number.isascii() and number.isdigit() and len(number) <= 9:
        found |= Q(topic__iendswith=topic, partition=int(number))
    return found


def _among(names: Iterable[Name]) -> Q:
    """Return what narrows to some partitions, and a few more: their own pairs are picked afterwards."""
    clusters, topics, numbers = (set(each) for each in zip(*names, strict=True))
    return Q(cluster__in=clusters, topic__in=topics, partition__in=numbers)


def _order(wanted: SortedPartitions) -> Sequence[OrderBy]:
    by: dict[str, Sequence[Expression | F]] = {
        "worst": [_RANK, F("pinned_ms")],
        "held": [_HELD],
        "age": [F("pinned_ms")],
    }
    chosen: list[Expression | F] = [*by.get(wanted.sort, ()), F("topic"), F("partition"), F("cluster_id")]
    first, *rest = chosen
    turned = OrderBy(first, descending=wanted.descending, nulls_last=True)
    return [turned, *(OrderBy(each, nulls_last=True) for each in rest)]


def pin_of(row: PinRecord) -> Pin:
    """Return a row of an open transaction in a partition as a fact."""
    return Pin(
        row.topic,
        row.partition,
        row.producer_id,
        row.producer_epoch,
        row.start_offset,
        row.last_sequence,
        row.last_timestamp_ms,
        row.coordinator_epoch,
        row.first_seen_ms,
        row.transactional_id,
        PartitionVerdict(row.verdict),
        VerdictReason(row.ground),
        row.prepared_ms,
    )
