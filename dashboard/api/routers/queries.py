"""`/api/v1/queries`: streaming queries, their batches, and whether a restart is safe."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.problems import RefusedRequest
from dashboard.api.query_schemas import (
    BatchOut,
    LinkOut,
    RunOut,
    SafeAnswer,
    SourceOut,
    safety_fields,
)
from dashboard.api.schemas import OwnerOut
from dashboard.models import Query as Row
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import QUERIES
from dashboard.runtime.criteria import Ranged
from dashboard.runtime.loop import now_ms
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import lag as reading
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import chains_of, restart_safety_by_query
from dashboard.streaming.queries import operator_states
from dashboard.streaming.registry import state_now
from dashboard.system import owners
from fenceline.spark.records import QueryState

router = Router(tags=["queries"])


class QueryOut(Schema):
    """A streaming query, known from its checkpoint, its listener, or both.

    `id` identifies it in Fenceline: Spark's query id, unless two folders hold the same one. `planned` and
    `finished` are the newest batches in its offset log and its commit log. `newest` is the newest known
    batch, and `chain` its chain. `restart_words` complete "a restart …". `sink` is "" if unknown. `state` is
    "unheard" if the driver's heartbeat is missing, or no listener reports the query. Lag counts offsets over
    all partitions, null if unknown.
    """

    cluster: str = Field(validation_alias="cluster.name")
    id: str = Field(validation_alias="ident")
    query_id: str
    name: str
    checkpoint: str
    state: QueryState
    run_id: str
    heard_at: schemas.Instant | None = Field(validation_alias="heard_ms")
    started_at: schemas.Instant | None = Field(validation_alias="started_ms")
    ended_at: schemas.Instant | None = Field(validation_alias="ended_ms")
    planned: int | None
    finished: int | None
    newest: int | None
    planned_at: schemas.Instant | None = Field(validation_alias="planned_ms")
    finished_at: schemas.Instant | None = Field(validation_alias="finished_ms")
    chain: list[LinkOut]
    sink: str
    restart: str
    restart_words: str
    prepared: int
    expires_at: schemas.Instant | None = Field(validation_alias="expires_ms")
    safe_to_stop: bool | None
    lag_lso: int | None
    lag_hw: int | None
    seen_at: schemas.Instant | None = Field(validation_alias="seen_ms")
    error: str
    rev: int

    resolve_state = staticmethod(lambda row: state_now(row, now_ms()))


class LedgerOut(Schema):
    """The ledger of an exactly-once sink; `decisions` are counted by outcome, or by decision without one."""

    id: str
    prefix: str
    generation: int | None
    path: str
    decisions: dict[str, int]
    broken: list[dict[str, Any]]


class CheckpointOut(Schema):
    """The contents of a checkpoint: the first and last batch kept, formats, damage, foreign files."""

    kept: dict[str, list[int]]
    versions: dict[str, int | None]
    initial: dict[str, Any]
    operators: list[dict[str, Any]]
    broken: list[dict[str, Any]]
    foreign: list[str]
    asynchronous: bool
    conf: dict[str, str]


class StateChainOut(Schema):
    """One state store of one partition of an operator: its files, and the versions that a restart loads.

    A restart loads version `needed`: the snapshot of version `base` (0: no snapshot), and each delta after
    it. `missing` lists the first of the `missing_count` versions without a file; a restart fails on a missing
    one.
    """

    partition: int
    store: str
    oldest: int | None
    newest: int | None
    snapshots: int
    deltas: int
    size: int
    needed: int | None
    base: int | None
    missing: list[int]
    missing_count: int


class OperatorStateOut(Schema):
    """The state files of a stateful operator; chains that a restart cannot load come first.

    `unread` says why some files are unknown.
    """

    operator_id: int
    name: str
    read_at: schemas.Instant | None = Field(validation_alias="read_ms")
    unread: str
    broken: int
    chains: list[StateChainOut]

    resolve_broken = staticmethod(lambda state: len(state.broken))


class QueryDetail(QueryOut):
    """A query with its sources, checkpoint, state, ledger and last runs."""

    owner: OwnerOut | None
    exception: str
    safe: SafeAnswer
    sources: list[SourceOut]
    checkpoint_holds: CheckpointOut | None
    state_files: list[OperatorStateOut]
    ledger: LedgerOut | None
    runs: list[RunOut]


class QueryFilters(schemas.ListFilters, streaming_queries.QueryCriteria):
    """The query string of the list; `q` is a part of a query's name, id, checkpoint or prefix."""


class BatchFilters(schemas.ListFilters, Ranged):
    """The query string of a query's batches; a range selects the batches that began in it."""

    cluster: schemas.Name = ""


@router.get("", response=schemas.list_of(QueryOut), summary="List streaming queries")
def list_queries(request: HttpRequest, wanted: Query[QueryFilters]) -> dict[str, object]:
    """Streaming queries, in the order in which they were first seen."""
    place = schemas.read_number(wanted.cursor, "queries") or 0
    rows = streaming_queries.queries_after(wanted, place=place, limit=wanted.limit + 1)
    page, following = schemas.cut_page("queries", rows, wanted.limit)
    return schemas.list_answer(_with_progress(page, now_ms()), following, wanted.cluster, QUERIES)


@router.get("/{text:query}/batches", response=schemas.list_of(BatchOut), summary="The batches of a query")
def list_batches(request: HttpRequest, query: schemas.Name, wanted: Query[BatchFilters]) -> dict[str, object]:
    """A query's micro-batches, newest first, beyond the hundred that Spark keeps."""
    row = _one(query, wanted.cluster)
    of = f"batches of {row.pk}"
    before = schemas.read_number(wanted.cursor, of)
    batches = streaming_batches.batches_before(row, before, wanted, limit=wanted.limit + 1)
    page = schemas.cut_page(of, batches, wanted.limit, lambda entry: (entry.batch.batch_id,))
    return schemas.list_answer(*page, row.cluster.name, QUERIES)


@router.get("/{text:query}/safe_to_stop", response=SafeAnswer, summary="Is this query safe to restart now?")
def get_safe_to_stop(
    request: HttpRequest, query: schemas.Name, cluster: schemas.Name = ""
) -> dict[str, object]:
    """Whether a restart now loses or repeats no more records than a later one; for deploy scripts."""
    return _safe(_one(query, cluster), now_ms())


@router.get("/{text:query}", response=QueryDetail, summary="One streaming query")
def get_query(request: HttpRequest, query: schemas.Name, cluster: schemas.Name = "") -> Row:
    """Return a query by its `id`, by Spark's query id, or by its name if that is unique."""
    row, at_ms = _one(query, cluster), now_ms()
    sources = reading.query_sources([row])[row.pk]
    return schemas.add_fields(
        _with_progress([row], at_ms)[0],
        owner=owners.of_query(row),
        safe=_safe(row, at_ms),
        sources=[
            replace(source, parts=reading.add_unread_since(source.parts, row.cluster_id, at_ms))
            for source in sources
        ],
        checkpoint_holds=row.detail if "kept" in row.detail else None,
        state_files=operator_states(row),
        ledger=_ledger(row),
        runs=streaming_queries.recent_runs(row),
    )


def _one(asked: str, cluster: str) -> Row:
    """Return the query with this id or name; raises 404 if there is none, 400 if several match."""
    rows = streaming_queries.queries_by_name(asked, cluster)
    if len(rows) == 1:
        return rows[0]
    where = f" on cluster '{cluster}'" if cluster else ""
    if not rows:
        raise Http404(f"No query '{asked}' is known{where}.")
    raise RefusedRequest(
        400,
        f"'{asked}' means {len(rows)} queries{where}; ask for one of the candidates by its id and cluster.",
        candidates=[
            {"cluster": row.cluster.name, "id": row.ident, "name": row.name, "checkpoint": row.checkpoint}
            for row in rows
        ],
    )


def _safe(row: Row, at_ms: int) -> dict[str, Any]:
    safe, prepared = restart_safety_by_query([row], at_ms)[row.pk], streaming_batches.open_decisions([row])
    return safety_fields(safe, prepared, visibility.noun_visibility(row.cluster.name, QUERIES), at_ms)


def _with_progress(rows: Sequence[Row], at_ms: int) -> Sequence[Row]:
    """Return rows with newest batch, chain, restart safety and lag, read in a few SQL queries."""
    newest, sources = streaming_queries.newest_batches(rows), reading.query_sources(rows)
    chains, safe = chains_of(rows, now_ms=at_ms), restart_safety_by_query(rows, at_ms)
    for row in rows:
        lag = reading.query_lag(sources[row.pk])
        schemas.add_fields(
            row,
            newest=newest.get(row.pk),
            chain=chains[row.pk],
            safe_to_stop=safe[row.pk].safe,
            lag_lso=None if lag.partial else lag.lag_lso,
            lag_hw=None if lag.partial else lag.lag_hw,
        )
    return rows


def _ledger(row: Row) -> LedgerOut | None:
    if not row.ledger_id:
        return None
    detail = row.detail.get("ledger") or {}
    return LedgerOut(
        id=row.ledger_id,
        prefix=row.prefix,
        generation=row.generation,
        path=detail.get("path", ""),
        decisions=dict(streaming_batches.decision_counts(row)),
        broken=detail.get("broken", []),
    )
