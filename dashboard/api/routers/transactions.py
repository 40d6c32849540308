"""`/api/v1/transactions`: the newest state of every transactional id."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.actions import offers
from dashboard.api import cursors, schemas
from dashboard.api.engine_schemas import ConnectorOut
from dashboard.api.offer_schemas import OfferOut
from dashboard.api.routers.transitions import Fact
from dashboard.evaluation import blocking
from dashboard.history import queries as history_queries
from dashboard.models import Transaction
from dashboard.runtime import visibility
from dashboard.streaming.engines import producer_connector
from dashboard.transactions import attributions, id_walk
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.added_offsets import transaction_offsets
from dashboard.transactions.producers import producer_identity
from fenceline.facts import NOT_REPORTED
from fenceline.kafka.added_offsets import AddedOffset, Observation, TransactionOffsets
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.kafka.producer_identity import Engine, ProducerIdentity

router = Router(tags=["transactions"])


class Partition(Schema):
    topic: str
    partition: int


class Coordinator(Schema):
    """The partition of `__transaction_state` that holds the id, null while no record of it was read, and the
    broker that leads it, null where that was not seen.
    """

    partition: int | None
    broker: int | None


class WaitingOut(Schema):
    """Who waits: at the LSO that this transaction holds, or for a commit of its own (`pending`).

    A consumer group, or a streaming query by its identity; the other one is "". Not `certain`: the pending
    commit may be another transaction's; or the query may read uncommitted, which cannot be seen.
    """

    group: str
    query: str
    topic: str
    partition: int
    pending: bool
    certain: bool
    since: str | None


class AddedOffsetOut(Schema):
    """An offset that the transaction added to a group.

    `at` is the commit's instant in its record, by the clock of the group's coordinator; `log_partition` and
    `log_offset` are where that record lies in `__consumer_offsets`.
    """

    group: str
    topic: str
    partition: int
    offset: int
    at: str | None
    log_partition: int
    log_offset: int

    @classmethod
    def from_offset(cls, added: AddedOffset) -> AddedOffsetOut:
        """Return an offset as the API shows it."""
        fields = added._asdict()
        return cls(at=schemas.format_iso(fields.pop("at_ms")), **fields)


class AddedOffsetsOut(Schema):
    """The offsets that the transaction added to groups, as far as they were read by `read_at`.

    `complete`: all that its record names, up to its marker once it is finished; then `missing` is empty.
    `partial`, `none`: `missing` lists what is not known, and why, in a sentence each.
    """

    observation: Observation
    read_at: str | None
    items: list[AddedOffsetOut]
    missing: list[str]

    @classmethod
    def from_offsets(cls, added: TransactionOffsets) -> AddedOffsetsOut:
        """Return offsets as the API shows them."""
        return cls(
            observation=added.observation,
            read_at=schemas.format_iso(added.read_ms),
            items=[AddedOffsetOut.from_offset(each) for each in added.offsets],
            missing=list(added.missing),
        )


class TransactionOut(Schema):
    """A transactional id; `state` is Kafka's own word, `started_at` is null while nothing was begun.

    Epoch and timeout are null while the id is known only from a coordinator's list. `verdict` is the worst of
    those in which it is open: one that an earlier epoch left may hang while `state` is complete.
    """

    cluster: str
    transactional_id: str
    application: str
    state: str
    producer_id: int
    producer_epoch: int | None
    timeout_ms: int | None
    started_at: str | None
    updated_at: str | None
    partitions: list[Partition]
    coordinator: Coordinator
    client_version: int
    verdict: PartitionVerdict
    waiting: list[WaitingOut]
    rev: int


class ProducerPartOut(Schema):
    """What an id names: process, thread, task of Streams; connector, task, or the group that it leads."""

    name: str
    value: str


class ProducerIdentityOut(Schema):
    """The engine, instance and part that use an id.

    `sign` is what shows it besides the id's shape, "" where nothing does. `host` and `group` are "" where
    they are not known.
    """

    engine: Engine
    application: str
    parts: list[ProducerPartOut]
    sign: str
    host: str
    group: str


class TransactionDetail(TransactionOut):
    """A transactional id with its last transitions of any kind, newest first, at most 20.

    `offers` are the acts that may be planned now, by what the planner would refuse. `offsets` are those that
    its newest transaction added to groups. `producer` is null for plain clients, `connector` where no worker
    of Kafka Connect reports the one whose task uses the id.
    """

    producer: ProducerIdentityOut | None
    connector: ConnectorOut | None
    offsets: AddedOffsetsOut
    recent: list[Fact]
    offers: list[OfferOut]


class TransactionList(schemas.Listing):
    items: list[TransactionOut]


class TransactionFilters(schemas.ListFilters, transaction_queries.TransactionCriteria):
    """The query string of the list."""

    application: schemas.Name = Field("", alias="app")


@router.get("", response=TransactionList, summary="List transactional ids")
def list_transactions(request: HttpRequest, wanted: Query[TransactionFilters]) -> dict[str, object]:
    """Every transactional id that matches, as it was first seen; those of one `app` by cluster and id."""
    schemas.refuse_range(request, "transactional ids")
    step = id_walk.transactions_after(
        wanted, place=_place(wanted), limit=wanted.limit, now_ms=time.time_ns() // 1_000_000
    )
    return {
        "items": [TransactionOut(**fields) for fields in _all_fields(step.items)],
        "next": None if step.next is None else cursors.encode_cursor(_order(wanted), *step.next),
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster)),
    }


def _order(wanted: TransactionFilters) -> str:
    return "transactions-by-id" if wanted.application else "transactions-as-seen"


def _place(wanted: TransactionFilters) -> id_walk.Place:
    cluster, name, row = (
        cursors.decode_cursor(wanted.cursor, _order(wanted), (str, str, int)) or id_walk.START
    )
    return str(cluster), str(name), int(row)


@router.get("/{cluster}/{text:transactional_id}", response=TransactionDetail, summary="One transactional id")
def get_transaction(request: HttpRequest, cluster: schemas.Name, transactional_id: str) -> TransactionDetail:
    """The newest state of one id, and how it came there; percent-encode all but letters and digits."""
    row = transaction_queries.find_transaction(cluster, transactional_id)
    if row is None:
        raise Http404(f"No transactional id '{transactional_id}' is known on cluster '{cluster}'.")
    life = history_queries.recent_transitions(row.cluster.name, bytes(row.key), row.log_partition)
    (fields,) = _all_fields([row])
    actions = attributions.of_transitions(row.cluster.name, bytes(row.key), life.recent)
    recent = [Fact.from_transition(each, action) for each, action in zip(life.recent, actions, strict=True)]
    may = offers.of_transactions([row], now_ms=time.time_ns() // 1_000_000)[row.pk]
    offsets = AddedOffsetsOut.from_offsets(transaction_offsets(row))
    producer = producer_identity(row.cluster_id, row.transactional_id)
    connector = producer_connector(row.cluster_id, producer)
    return TransactionDetail(
        **fields,
        producer=_producer(producer),
        connector=ConnectorOut.from_connector(connector) if connector else None,
        offsets=offsets,
        recent=recent,
        offers=OfferOut.from_offers(may),
    )


def _producer(found: ProducerIdentity | None) -> ProducerIdentityOut | None:
    if found is None:
        return None
    parts = [ProducerPartOut(name=name, value=value) for name, value in found.parts]
    return ProducerIdentityOut(**{**found._asdict(), "parts": parts})


def _if_reported(number: int) -> int | None:
    return None if number == NOT_REPORTED else number


def _all_fields(rows: Sequence[Transaction]) -> Sequence[dict[str, Any]]:
    """Return the fields of rows: with who waits, and who coordinates, in a few queries for all."""
    standing, brokers = blocking.waits_of(rows), blocking.coordinator_brokers(rows)
    return [_fields(row, standing[row.pk], brokers.get(row.pk)) for row in rows]


def _fields(row: Transaction, standing: blocking.Waits, broker: int | None) -> dict[str, Any]:
    named = transaction_queries.partitions_of(row)
    return {
        "cluster": row.cluster.name,
        "transactional_id": row.transactional_id,
        "application": row.application,
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": _if_reported(row.producer_epoch),
        "timeout_ms": _if_reported(row.timeout_ms),
        "started_at": schemas.format_iso(row.started_ms),
        "updated_at": schemas.format_iso(row.updated_ms),
        "partitions": [Partition(topic=topic, partition=n) for topic, numbers in named for n in numbers],
        "coordinator": Coordinator(partition=_if_reported(row.log_partition), broker=broker),
        "client_version": row.client_version,
        "verdict": PartitionVerdict(standing.verdict),
        "waiting": [
            WaitingOut(
                group=each.group,
                query="",
                topic=each.topic,
                partition=each.partition,
                pending=each.pending,
                certain=each.certain,
                since=schemas.format_iso(each.since_ms),
            )
            for each in standing.waiting
        ]
        + [
            WaitingOut(
                group="",
                query=each.ident,
                topic=each.topic,
                partition=each.partition,
                pending=False,
                certain=False,
                since=schemas.format_iso(each.since_ms),
            )
            for each in standing.queries
        ],
        "rev": row.rev,
    }
