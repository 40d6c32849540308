"""`/api/v1/partitions`: each log's start, LSO and end, and the transactions that hold the LSO."""

from collections.abc import Sequence
from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import BeforeValidator, Field, WithJsonSchema

from dashboard.api import schemas
from dashboard.api.schemas import OwnerOut
from dashboard.api.series_schemas import PartitionSeries, SeriesFilters, series_answer
from dashboard.groups import queries as group_queries
from dashboard.history import record_lens
from dashboard.history.record_lens import RecordLens
from dashboard.models import PartitionRecord
from dashboard.partitions import queries as partition_queries
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.system import owners
from fenceline.decode.record_batches import SequenceStep
from fenceline.facts import TopicPartition
from fenceline.kafka.groups import Waiting
from fenceline.kafka.offset_histories import unpack_ends
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.kafka.record_fate import RecordFate, is_visible
from fenceline.series.points import PARTITION

router = Router(tags=["partitions"])

_MOST_READERS = 1_000

#: An inline enum: refused actions have a `Ground` too, and OpenAPI needs unique schema names.
PinGround = Annotated[
    VerdictReason, WithJsonSchema({"type": "string", "enum": [reason.value for reason in VerdictReason]})
]


def _producer_instant(ms: int) -> str | None:
    return schemas.format_iso(ms) if 0 <= ms < schemas.END_OF_TIME_MS else None


#: A producer's own timestamp, None if it is no date: a producer may write any number.
ProducerInstant = Annotated[str | None, BeforeValidator(_producer_instant)]


class OpenTransaction(Schema):
    """An open transaction in a partition, from the partition leader's DescribeProducers.

    `first_seen_at` is by Fenceline's clock, `last_record_at` by the producer's. `transactional_id` is "" if
    no id with this producer id is known.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_sequence: int
    coordinator_epoch: int | None
    verdict: PartitionVerdict
    ground: PinGround
    first_seen_at: schemas.Instant | None = Field(validation_alias="first_seen_ms")
    last_record_at: ProducerInstant = Field(validation_alias="last_timestamp_ms")


class PartitionOut(Schema):
    """A partition; `held` is high watermark minus LSO, an upper bound of the unreadable records.

    `pinned_since` is the time at which its LSO got stuck, else null. `changed_at` is the time of its newest
    figure. `error` says why the partition cannot be read. `transactions` are sorted by first offset: the
    first one holds the LSO.
    """

    cluster: str = Field(validation_alias="cluster.name")
    topic: str
    partition: int
    verdict: PartitionVerdict
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    held: int | None
    pinned_since: schemas.Instant | None = Field(validation_alias="pinned_ms")
    changed_at: schemas.Instant | None = Field(validation_alias="seen_ms")
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    transactions: list[OpenTransaction]
    error: str
    rev: int

    resolve_held = staticmethod(partition_queries.unstable_offsets)


class Reader(Schema):
    """A group that committed offsets of a partition; `waiting` is "" unless the LSO is pinned."""

    group: str = Field(validation_alias="group.group_id")
    offset: int | None
    waiting: Waiting | Literal[""]
    waiting_since: schemas.Instant | None = Field(validation_alias="waiting_ms")
    commit_pending: bool = Field(validation_alias="unstable")


class End(Schema):
    at: schemas.Instant = Field(validation_alias="at_ms")
    lso: int
    high_watermark: int


class ProducerOut(Schema):
    """An active producer; `start_offset` is null unless it has an open transaction in the partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_record_at: ProducerInstant = Field(validation_alias="last_timestamp_ms")
    coordinator_epoch: int | None
    start_offset: int | None

    resolve_transactional_id = staticmethod(lambda packed: packed.get("transactional_id") or "")


class SequenceBreakOut(Schema):
    """A stored batch that does not begin with its producer's next sequence: a "gap" or a "repeat"."""

    offset: int
    producer_id: int
    producer_epoch: int
    last: int
    found: int
    step: SequenceStep


class WritersOut(Schema):
    """Records in a range of offsets by kind of producer; `producers` counts them by idempotent producer id.

    `following` batches were compared with the one before; `broken` of them do not begin with the next
    sequence.
    """

    from_offset: int
    to_offset: int
    transactional: int
    idempotent: int
    plain: int
    producers: list[tuple[int, int]]
    following: int
    broken: int
    breaks: list[SequenceBreakOut]


class ReplicaOut(Schema):
    """A replica's last answer, requested by an operator; `writers` describes the leader's newest records."""

    broker: int
    leads: bool
    seen_at: schemas.Instant | None = Field(validation_alias="seen_ms")
    producers: list[ProducerOut]
    writers: WritersOut | None
    error: str

    resolve_writers = staticmethod(partition_queries.batch_writers)


class PartitionDetail(PartitionOut):
    """A partition with its groups (waiting ones first, at most 1,000), its last end offsets and replicas."""

    owner: OwnerOut | None
    readers: list[Reader]
    ends: list[End]
    looks: list[ReplicaOut]

    resolve_owner = staticmethod(lambda row: owners.find_owner(str(row), row.topic))

    @staticmethod
    def resolve_readers(row: PartitionRecord) -> object:
        return group_queries.partition_readers(row.cluster_id, row.topic, row.partition, most=_MOST_READERS)

    resolve_ends = staticmethod(lambda row: unpack_ends(row.ends))
    resolve_looks = staticmethod(partition_queries.replica_answers)


class PartitionFilters(schemas.ListFilters, partition_queries.PartitionCriteria):
    """The query string of the list; `q` is part of a topic's name, or `topic-partition`."""


@router.get("", response=schemas.list_of(PartitionOut), summary="List partitions")
def list_partitions(request: HttpRequest, wanted: Query[PartitionFilters]) -> dict[str, object]:
    """Partitions that a transaction, a group or a query uses, by cluster, topic and number."""
    cluster, topic, number = schemas.decode_cursor(wanted.cursor, "partitions", (str, str, int)) or (
        "",
        "",
        0,
    )
    place = (str(cluster), str(topic), int(number))
    rows = partition_queries.partitions_after(wanted, place=place, limit=wanted.limit + 1)
    page, following = schemas.cut_page("partitions", rows, wanted.limit, _place)
    return schemas.list_answer(_with_transactions(page), following, wanted.cluster, PARTITIONS)


@router.get("/{cluster}/{topic}/{int:partition}", response=PartitionDetail, summary="One partition")
def get_partition(
    request: HttpRequest, cluster: schemas.Name, topic: schemas.Name, partition: int
) -> PartitionRecord:
    """Return a partition, its consumers, its end offsets over time, and its replicas' producers."""
    unknown = f"No partition '{topic}-{partition}' is watched on cluster '{cluster}'."
    row = schemas.known(partition_queries.find_partition(cluster, topic, partition), unknown)
    return _with_transactions([row])[0]


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
    """LSO, high watermark and uncommitted offsets in a range of time, also of a deleted partition."""

    def is_watched() -> bool:
        return bool(partition_queries.find_partition(cluster, topic, partition))

    name = f"{topic}-{partition}"
    unknown = f"No partition '{name}' was ever watched on cluster '{cluster}'."
    return series_answer(cluster, PARTITION, name, wanted, is_known=is_watched, unknown=unknown)


class BatchHeaderOut(Schema):
    """The header of a record batch, offsets inclusive; `marker` is "commit", "abort", or "" for records."""

    first: int
    last: int
    records: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    marker: str
    base_sequence: int
    last_sequence: int
    newest_record_at: ProducerInstant = Field(validation_alias="max_timestamp_ms")


class BatchOfQueryOut(Schema):
    """A query and its batch; `batch_id` is null if unknown."""

    query: str = Field(validation_alias="query.ident")
    batch_id: int | None


class MovedOffset(Schema):
    group: str
    topic: str
    partition: int
    offset: int


class RecordLensOut(Schema):
    """One offset of a partition, as its leader returns it now.

    `fate` is the record's outcome. `visible` tells for each isolation level whether a consumer receives the
    record, null if unknown. `moved_offsets` are the offsets in its transaction, null once the id began
    another.
    """

    cluster: str
    topic: str = Field(validation_alias="where.topic")
    partition: int = Field(validation_alias="where.partition")
    offset: int = Field(validation_alias="look.offset")
    fate: RecordFate
    log_start: int = Field(validation_alias="look.log_start")
    lso: int = Field(validation_alias="look.lso")
    high_watermark: int = Field(validation_alias="look.high_watermark")
    visible: dict[Literal["read_committed", "read_uncommitted"], bool | None]
    record_at: ProducerInstant
    transactional_id: str
    application: str
    batch: BatchHeaderOut | None
    marker: BatchHeaderOut | None = Field(validation_alias="look.marker")
    stale_behind: BatchHeaderOut | None = Field(validation_alias="look.newer_epoch")
    neighbours: list[BatchHeaderOut]
    written_by: BatchOfQueryOut | None
    read_by: list[BatchOfQueryOut]
    moved_offsets: list[MovedOffset] | None

    @staticmethod
    def resolve_visible(lens: RecordLens) -> dict[str, bool | None]:
        return {
            f"read_{'' if committed else 'un'}committed": is_visible(lens.look, committed=committed)
            for committed in (True, False)
        }

    resolve_record_at = staticmethod(lambda lens: lens.record.at_ms if lens.record else -1)
    resolve_moved_offsets = staticmethod(lambda lens: lens.offsets.offsets if lens.offsets else None)


@router.get(
    "/{cluster}/{topic}/{int:partition}/records/{int:offset}",
    response=RecordLensOut,
    summary="What became of one record",
)
def get_record(
    request: HttpRequest, cluster: schemas.Name, topic: schemas.Name, partition: int, offset: int
) -> RecordLens:
    """Ask the leader about one offset: is its record committed, aborted, open or gone, and who wrote it?"""
    return record_lens.look_at_record(cluster, TopicPartition(topic, partition), offset)


def _with_transactions(rows: Sequence[PartitionRecord]) -> Sequence[PartitionRecord]:
    """Return rows with their open transactions, read for all rows at once."""
    pins = partition_queries.partition_pins((row.cluster_id, row.topic, row.partition) for row in rows)
    for row in rows:
        schemas.add_fields(row, transactions=pins.get((row.cluster_id, row.topic, row.partition), ()))
    return rows


def _place(row: PartitionRecord) -> tuple[str, str, int]:
    return row.cluster.name, row.topic, row.partition
