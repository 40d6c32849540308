"""`/api/v1/partitions`: where each log begins, is readable to and ends, and what holds it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import WithJsonSchema

from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import OwnerOut
from dashboard.api.series_schemas import PartitionSeries, SeriesFilters, partition_step, series_answer
from dashboard.groups import queries as group_queries
from dashboard.models import PartitionRecord, PinRecord
from dashboard.partitions import queries as partition_queries
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.system import owners
from fenceline.kafka.end_offset_history import unpack_ends
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.series.points import PARTITION

router = Router(tags=["partitions"])

_MOST_READERS = 1_000
#: No partition has a larger number.
_LARGEST = 2**31

#: Written in full: refusals of acts have a `Ground` of their own, and a description knows a name once.
PinGround = Annotated[
    VerdictReason, WithJsonSchema({"type": "string", "enum": [each.value for each in VerdictReason]})
]


class OpenTransaction(Schema):
    """A transaction that is open in a partition, as its leader describes it.

    `first_seen_at` is our clock's, `last_record_at` the producer's own. `transactional_id` is "" where no id
    with this producer id is known.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_sequence: int
    coordinator_epoch: int | None
    verdict: PartitionVerdict
    ground: PinGround
    first_seen_at: str | None
    last_record_at: str | None


class PartitionOut(Schema):
    """A partition; `held` is high watermark minus LSO, a bound of the records held back.

    `pinned_since` is since when its LSO is stuck, null unless it is; `changed_at` is when the newest of its
    figures was read; `error` is why it cannot be read. `transactions` come by
    their first offset: the first one holds the LSO.
    """

    cluster: str
    topic: str
    partition: int
    verdict: PartitionVerdict
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    held: int | None
    pinned_since: str | None
    changed_at: str | None
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    transactions: list[OpenTransaction]
    error: str
    rev: int


class Reader(Schema):
    """A group that committed for a partition; `waiting` is "" where nothing is pinned there."""

    group: str
    offset: int | None
    waiting: Waiting | Literal[""]
    waiting_since: str | None
    commit_pending: bool


class End(Schema):
    at: str
    lso: int
    high_watermark: int


class ProducerOut(Schema):
    """An active producer; `start_offset` is null unless a transaction of it is open there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_record_at: str | None
    coordinator_epoch: int | None
    start_offset: int | None


class ReplicaOut(Schema):
    """The last answer of one replica, requested by an operator."""

    broker: int
    leads: bool
    seen_at: str | None
    producers: list[ProducerOut]
    error: str


class PartitionDetail(PartitionOut):
    """A partition with its groups (those that wait first, at most 1,000), its last ends, and its replicas."""

    owner: OwnerOut | None
    readers: list[Reader]
    ends: list[End]
    looks: list[ReplicaOut]


class PartitionList(schemas.Listing):
    items: list[PartitionOut]


class PartitionFilters(schemas.ListFilters, partition_queries.PartitionCriteria):
    """The query string of the list; `q` is part of a topic's name, or `topic-partition`."""


@router.get("", response=PartitionList, summary="List partitions")
def list_partitions(request: HttpRequest, wanted: Query[PartitionFilters]) -> dict[str, object]:
    """Every partition that a transaction, a group or a query touches, by cluster, topic and number."""
    schemas.refuse_range(request, "partitions")
    cluster, topic, number = cursors.decode_cursor(wanted.cursor, "partitions", (str, str, int)) or (
        "",
        "",
        0,
    )
    place = (str(cluster), str(topic), int(number))
    found = partition_queries.partitions_after(wanted, place=place, limit=wanted.limit + 1)
    page, following = cursors.cut_page("partitions", found, wanted.limit, _place)
    return {
        "items": _out(page),
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, PARTITIONS)),
    }


@router.get("/{cluster}/{topic}/{int:partition}", response=PartitionDetail, summary="One partition")
def get_partition(
    request: HttpRequest, cluster: schemas.Name, topic: schemas.Name, partition: int
) -> PartitionDetail:
    """One partition, its consumers, its end offsets over time, and its replicas' producers."""
    row = partition_queries.find_partition(cluster, topic, partition) if partition < _LARGEST else None
    if row is None or not row.cluster.configured:
        raise Http404(f"No partition '{topic}-{partition}' is watched on cluster '{cluster}'.")
    readers = group_queries.partition_readers(row.cluster_id, topic, partition, most=_MOST_READERS)
    (out,) = _out([row])
    return PartitionDetail(
        **out.dict(),
        owner=OwnerOut.from_owner(owners.find_owner(str(row), topic)),
        readers=[
            Reader(
                group=each.group.group_id,
                offset=each.offset,
                waiting=Waiting(each.waiting) if each.waiting else "",
                waiting_since=schemas.format_iso(each.waiting_ms),
                commit_pending=each.unstable,
            )
            for each in readers
        ],
        ends=[
            End(at=schemas.format_iso(end.at_ms) or "", lso=end.lso, high_watermark=end.high_watermark)
            for end in unpack_ends(row.ends)
        ],
        looks=[
            ReplicaOut(
                broker=answer.broker,
                leads=answer.leads,
                seen_at=schemas.format_iso(answer.seen_ms),
                producers=[_producer(each) for each in answer.producers],
                error=answer.error,
            )
            for answer in partition_queries.replica_answers(row)
        ],
    )


@router.get(
    "/{cluster}/{topic}/{int:partition}/series",
    response=PartitionSeries,
    by_alias=True,
    summary="The offsets of a partition over time",
)
def get_partition_series(
    request: HttpRequest,
    cluster: schemas.Name,
    topic: schemas.Name,
    partition: int,
    wanted: Query[SeriesFilters],
) -> dict[str, object]:
    """LSO, high watermark and what is uncommitted, in a range of time; also of a partition that is gone."""

    def is_watched() -> bool:
        found = partition_queries.find_partition(cluster, topic, partition) if partition < _LARGEST else None
        return found is not None

    name = f"{topic}-{partition}"
    found = series_answer(cluster, PARTITION, name, wanted, partition_step, is_known=is_watched)
    if found is None:
        raise Http404(f"No partition '{name}' was ever watched on cluster '{cluster}'.")
    return found


def _out(rows: Sequence[PartitionRecord]) -> list[PartitionOut]:
    open_in = partition_queries.partition_pins((row.cluster_id, row.topic, row.partition) for row in rows)
    return [
        PartitionOut(
            cluster=row.cluster.name,
            topic=row.topic,
            partition=row.partition,
            verdict=PartitionVerdict(row.verdict),
            log_start=row.log_start,
            lso=row.lso,
            high_watermark=row.high_watermark,
            held=partition_queries.unstable_offsets(row),
            pinned_since=schemas.format_iso(row.pinned_ms),
            changed_at=schemas.format_iso(row.seen_ms),
            leader=row.leader,
            leader_epoch=row.leader_epoch,
            replicas=row.replicas,
            transactions=[_open(pin) for pin in open_in.get((row.cluster_id, row.topic, row.partition), ())],
            error=row.error,
            rev=row.rev,
        )
        for row in rows
    ]


def _open(pin: PinRecord) -> OpenTransaction:
    return OpenTransaction(
        transactional_id=pin.transactional_id,
        producer_id=pin.producer_id,
        producer_epoch=pin.producer_epoch,
        start_offset=pin.start_offset,
        last_sequence=pin.last_sequence,
        coordinator_epoch=pin.coordinator_epoch,
        verdict=PartitionVerdict(pin.verdict),
        ground=VerdictReason(pin.ground),
        first_seen_at=schemas.format_iso(pin.first_seen_ms),
        last_record_at=_producers_clock(pin.last_timestamp_ms),
    )


def _producer(packed: dict[str, Any]) -> ProducerOut:
    return ProducerOut(
        transactional_id=packed.get("transactional_id") or "",
        producer_id=packed["producer_id"],
        producer_epoch=packed["producer_epoch"],
        last_sequence=packed["last_sequence"],
        last_record_at=_producers_clock(packed["last_timestamp_ms"]),
        coordinator_epoch=packed["coordinator_epoch"],
        start_offset=packed["start_offset"],
    )


def _producers_clock(ms: int) -> str | None:
    """Return an instant that a producer claims, None where none is: it may write any number."""
    return schemas.format_iso(ms) if 0 <= ms < schemas.END_OF_TIME_MS else None


def _place(row: PartitionRecord) -> tuple[str, str, int]:
    return row.cluster.name, row.topic, row.partition
