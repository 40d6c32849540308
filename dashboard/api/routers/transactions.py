"""`/api/v1/transactions`: the newest state of every transactional id."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import BeforeValidator, Field

from dashboard.actions import offers
from dashboard.api import schemas
from dashboard.api.routers.engines import ConnectorOut
from dashboard.api.routers.events import Fact, recent_facts
from dashboard.api.schemas import OfferOut
from dashboard.engines.queries import producer_connector
from dashboard.evaluation import blocking
from dashboard.history import queries as history_queries
from dashboard.models import Cluster, Transaction
from dashboard.transactions import attributions, id_walk
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.producers import producer_identity, transaction_offsets
from fenceline.facts import NOT_REPORTED, expand_partitions
from fenceline.kafka.added_offsets import NOTHING_ADDED, Observation
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.producer_identity import Engine, ProducerIdentity

#: Kafka's state of an id that its coordinator has removed.
_DEAD = "Dead"

router = Router(tags=["transactions"])


def _if_reported(number: int) -> int | None:
    return None if number == NOT_REPORTED else number


IfReported = Annotated[int | None, BeforeValidator(_if_reported)]


class Partition(Schema):
    topic: str
    partition: int


class Coordinator(Schema):
    """The partition of `__transaction_state` that holds the id, null until a record of the id was read.

    `broker` leads that partition, null if not observed.
    """

    partition: IfReported
    broker: int | None


class WaitingOut(Schema):
    """A reader that waits at the LSO that this transaction holds, or for its own pending commit (`pending`).

    The reader is a consumer group, or a streaming query by its id; the other field is "". `certain` is false
    if the pending commit may be another transaction's, or if the query may read uncommitted.
    """

    group: str
    query: str
    topic: str
    partition: int
    pending: bool
    certain: bool
    since: schemas.Instant | None = Field(validation_alias="since_ms")


class AddedOffsetOut(Schema):
    """An offset that the transaction added to a group.

    `at` is the commit's timestamp in its record, by the clock of the group's coordinator. `log_partition` and
    `log_offset` locate that record in `__consumer_offsets`.
    """

    group: str
    topic: str
    partition: int
    offset: int
    at: schemas.Instant | None = Field(validation_alias="at_ms")
    log_partition: int
    log_offset: int


class AddedOffsetsOut(Schema):
    """The offsets that the transaction added to groups, read up to `read_at`.

    `complete`: every offset of the partitions in its record, up to its marker once it is finished; `missing`
    is empty. `partial`, `none`: `missing` lists the unknown parts and the reasons, one sentence each.
    """

    observation: Observation
    read_at: schemas.Instant | None = Field(validation_alias="read_ms")
    items: list[AddedOffsetOut] = Field(validation_alias="offsets")
    missing: list[str]


class TransactionOut(Schema):
    """A transactional id; `state` is Kafka's term, `started_at` is null without a begun transaction.

    Epoch and timeout are null while the id is known only from a coordinator's list. `verdict` is the worst
    one of the partitions in which the id is open. An earlier epoch's transaction may hang while `state` is
    complete.
    """

    cluster: str = Field(validation_alias="cluster.name")
    transactional_id: str
    application: str
    state: str
    producer_id: int
    producer_epoch: IfReported
    timeout_ms: IfReported
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    updated_at: schemas.Instant | None = Field(validation_alias="updated_ms")
    partitions: list[Partition]
    coordinator: Coordinator
    client_version: int
    verdict: PartitionVerdict
    waiting: list[WaitingOut]
    rev: int

    resolve_partitions = staticmethod(lambda row: expand_partitions(transaction_queries.partitions_of(row)))


class ProducerPartOut(Schema):
    """A part of an id: process, thread or task of Streams; connector, task, or the group that it leads."""

    name: str
    value: str


class ProducerIdentityOut(Schema):
    """The engine, instance and part that use an id.

    `sign` is further evidence beside the id's shape, or "". `host` and `group` are "" if unknown.
    """

    engine: Engine
    application: str
    parts: list[ProducerPartOut]
    sign: str
    host: str
    group: str

    @staticmethod
    def resolve_parts(producer: ProducerIdentity) -> object:
        return [{"name": name, "value": value} for name, value in producer.parts]


class TransactionDetail(TransactionOut):
    """A transactional id with its last transitions of any kind, newest first, at most 20.

    `offers` are the actions that the planner would not refuse now. `offsets` are the offsets that its newest
    transaction added to groups. `producer` is null for plain clients. `connector` is the one whose task uses
    the id, null if no worker of Kafka Connect reports it.
    """

    producer: ProducerIdentityOut | None
    connector: ConnectorOut | None
    offsets: AddedOffsetsOut
    recent: list[Fact]
    offers: list[OfferOut]


class TransactionFilters(schemas.ListFilters, transaction_queries.TransactionCriteria):
    """The query string of the list."""

    application: schemas.Name = Field("", alias="app")


@router.get("", response=schemas.list_of(TransactionOut), summary="List transactional ids")
def list_transactions(request: HttpRequest, wanted: Query[TransactionFilters]) -> dict[str, object]:
    """Transactional ids, in the order in which they were first seen; with `app`, by cluster and id."""
    rows, after = id_walk.transactions_after(
        wanted, place=_place(wanted), limit=wanted.limit, now_ms=time.time_ns() // 1_000_000
    )
    following = None if after is None else schemas.encode_cursor(_order(wanted), *after)
    return schemas.list_answer(_with_waits(rows), following, wanted.cluster)


def _order(wanted: TransactionFilters) -> str:
    return "transactions-by-id" if wanted.application else "transactions-as-seen"


def _place(wanted: TransactionFilters) -> id_walk.Place:
    cluster, name, row = (
        schemas.decode_cursor(wanted.cursor, _order(wanted), (str, str, int)) or id_walk.START
    )
    return str(cluster), str(name), int(row)


@router.get("/{cluster}/{text:transactional_id}", response=TransactionDetail, summary="One transactional id")
def get_transaction(
    request: HttpRequest, cluster: schemas.Name, transactional_id: schemas.Name
) -> Transaction:
    """Return an id's newest state and its last transitions; percent-encode all but letters and digits.

    An id that its coordinator has removed has the state `Dead`.
    """
    row = transaction_queries.find_transaction(cluster, transactional_id)
    if row is None:
        gone = history_queries.forgotten_transaction(cluster, transactional_id)
        if gone is None:
            raise Http404(f"No transactional id '{transactional_id}' is known on cluster '{cluster}'.")
        return _forgotten(cluster, gone)
    recent, _ = history_queries.recent_transitions(row.cluster_id, bytes(row.key), row.log_partition)
    actions = attributions.of_transitions(row.cluster.name, bytes(row.key), recent)
    producer = producer_identity(row.cluster_id, row.transactional_id)
    may = offers.of_transactions([row], now_ms=time.time_ns() // 1_000_000)[row.pk]
    return schemas.add_fields(
        _with_waits([row])[0],
        producer=producer,
        connector=producer_connector(row.cluster_id, producer),
        offsets=transaction_offsets(row),
        recent=recent_facts(recent, actions),
        offers=OfferOut.from_offers(may),
    )


def _forgotten(cluster: str, gone: history_queries.TransactionHistory) -> Transaction:
    """Return an unsaved row with the history of an expired id; an expired id has no open transaction."""
    (newest,) = history_queries.of_id(cluster, gone.key, limit=1)
    actions = attributions.of_transitions(cluster, gone.key, gone.recent)
    row = Transaction(
        cluster=Cluster(name=cluster),
        transactional_id=gone.transactional_id,
        application=gone.application,
        state=_DEAD,
        producer_id=newest.producer_id,
        producer_epoch=newest.producer_epoch,
        timeout_ms=newest.timeout_ms,
        updated_ms=gone.expired_ms or newest.at_ms,
        client_version=0,
        log_partition=newest.log_partition,
        rev=0,
    )
    return schemas.add_fields(
        row,
        coordinator={"partition": row.log_partition, "broker": None},
        verdict=PartitionVerdict.CLEAR,
        waiting=[],
        producer=None,
        connector=None,
        offsets=NOTHING_ADDED,
        recent=recent_facts(gone.recent, actions),
        offers=[],
    )


def _with_waits(rows: Sequence[Transaction]) -> Sequence[Transaction]:
    """Return rows with their waiting readers and coordinators, read in a few SQL queries for all rows."""
    waits, brokers = blocking.waits_of(rows), blocking.coordinator_brokers(rows)
    for row in rows:
        schemas.add_fields(
            row,
            coordinator={"partition": row.log_partition, "broker": brokers.get(row.pk)},
            verdict=waits[row.pk].verdict,
            waiting=_waiting(waits[row.pk]),
        )
    return rows


def _waiting(waits: blocking.Waits) -> Sequence[dict[str, Any]]:
    own = {"group": "", "pending": False, "certain": False}
    return [
        *({**asdict(reader), "query": ""} for reader in waits.waiting),
        *({**query._asdict(), **own, "query": query.ident} for query in waits.queries),
    ]
