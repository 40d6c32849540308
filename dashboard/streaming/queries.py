"""Queries for streaming queries and their states, and the saved state files of their operators."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final, Literal

from django.db.models import (
    Case,
    Count,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import Expression, OrderBy

from dashboard.models import Batch, OperatorStateRecord, Query, Run, state_at
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Criteria, Name, Number, Page, Search, Sorted, page_of, sorted_columns
from dashboard.runtime.loop import now_ms
from dashboard.runtime.sql import write_rows
from fenceline.grouping import grouped
from fenceline.spark.records import QueryState
from fenceline.spark.state_chains import OperatorState, StateChain, pack_chains, unpack_chains

#: The filter for queries with a prepared batch that is not fully committed.
PREPARED: Final = "prepared"
#: States from worst to harmless: a driver without a heartbeat may be gone.
WORST_STATES = (
    QueryState.FAILED,
    QueryState.UNHEARD,
    QueryState.STOPPED,
    QueryState.RUNNING,
    QueryState.IDLE,
)
#: Kinds of sinks, as in the URL; "unknown" stands for a sink without a report.
SINKS = ("exactly_once", "kafka", "other", "unknown")
#: Batches in the sparkline of a list.
LATELY = 40
#: Maximum runs of a query in one response, newest first.
MOST_RUNS = 20
_AT_ONCE = 200
_RANK = Case(
    When(prepared__gt=0, then=Value(0)),
    When(state_now=QueryState.FAILED.value, then=Value(1)),
    When(~Q(error=""), then=Value(2)),
    *(When(state_now=state.value, then=Value(3 + n)) for n, state in enumerate(WORST_STATES)),
    default=Value(9),
    output_field=IntegerField(),
)


class QueryCriteria(Criteria):
    cluster: Name = ""
    state: Literal["", "prepared", "failed", "unheard", "stopped", "running", "idle"] = ""
    sink: Literal["", "exactly_once", "kafka", "other", "unknown"] = ""
    #: A part of a query's name, id, checkpoint or prefix.
    q: Search = ""


class SortedQueries(Sorted, QueryCriteria):
    sort: Literal["worst", "name", "batch", "age"] = "worst"


def state_counts(cluster: str = "") -> Mapping[str, int]:
    """Return the number of queries with a prepared batch, and the number in each state."""
    is_prepared = Count("id", filter=Q(prepared__gt=0))
    rows = _all(cluster).order_by().values_list(F("state_now"))
    counted = rows.annotate(n=Count("id"), prepared_too=is_prepared)
    counts = {state: (n, prepared) for state, n, prepared in counted}
    by_state = {state.value: counts.get(state.value, (0, 0))[0] for state in WORST_STATES}
    return {PREPARED: sum(prepared for _, prepared in counts.values()), **by_state}


def sink_counts(cluster: str) -> Mapping[str, int]:
    """Return the number of queries by kind of sink."""
    counts = dict(_all(cluster).order_by().values_list("sink").annotate(n=Count("id")))
    return {sink: counts.get("" if sink == "unknown" else sink, 0) for sink in SINKS}


def query_page(
    wanted: SortedQueries, *, page: Number, size: int, first: Sequence[tuple[int, str]] = ()
) -> Page[Query]:
    """Return one page of the matching queries.

    In the order "worst", the queries `first` lead the list: those that need attention, by cluster's key and
    ident.
    """
    leading = []
    if first and wanted.sort == "worst":
        names = enumerate(first)
        places = [When(cluster=cluster, ident=ident, then=Value(n)) for n, (cluster, ident) in names]
        leading = [Case(*places, default=Value(len(first)), output_field=IntegerField())]
    rows = _filtered(wanted).select_related("cluster").order_by(*leading, *_order(wanted))
    return page_of(rows, page, size)


def queries_after(wanted: QueryCriteria, *, place: int, limit: int) -> Sequence[Query]:
    """Return the next queries after a row's key, in the order in which they were first seen."""
    return list(_filtered(wanted).filter(pk__gt=place).select_related("cluster").order_by("pk")[:limit])


def worst_queries(cluster: str, limit: int) -> Sequence[Query]:
    """Return the queries that need attention most."""
    return list(_all(cluster).select_related("cluster").order_by(*_order(SortedQueries()))[:limit])


def query_count(cluster: str) -> int:
    return _all(cluster).count()


def find_query(cluster: str, ident: str) -> Query | None:
    rows = Query.objects.filter(cluster__name=cluster, cluster__configured=True, ident=ident)
    return rows.select_related("cluster").first()


def queries_by_name(asked: str, cluster: str) -> Sequence[Query]:
    """Return the queries with a given ident, else with that query id, else with that name."""
    rows = _all(cluster).select_related("cluster").order_by("cluster__name", "ident")
    for by in ("ident", "query_id", "name"):
        matching = list(rows.filter(**{by: asked})) if asked else []
        if matching:
            return matching
    return []


def newest_batches(queries: Sequence[Query]) -> Mapping[int, int]:
    """Return the number of the newest known batch, by the query's key."""
    if not queries:
        return {}
    first = Batch.objects.filter(query=OuterRef("pk")).order_by("-batch_id").values("batch_id")[:1]
    keys = [row.pk for row in queries]
    newest = Query.objects.filter(pk__in=keys).annotate(newest=Subquery(first)).values_list("pk", "newest")
    return {pk: number for pk, number in newest if number is not None}


def recent_batches(rows: Sequence[Query], most: int = LATELY) -> Mapping[int, Sequence[Batch]]:
    """Return the last batches of queries, oldest first, by the query's key; only figures, without sources."""
    batches: list[Batch] = []
    for upto in batch_portions(newest_batches(rows)):
        last = _any(Q(query=pk, batch_id__gt=number - most) for pk, number in upto.items())
        figures = Batch.objects.filter(last).only(
            "query_id", "batch_id", "planned_ms", "committed_ms", "started_ms", "duration_ms", "input_rows",
            "output_rows", "input_rate", "processed_rate",
        )  # fmt: skip
        batches += figures.order_by("query_id", "batch_id")
    return grouped((batch.query_id, batch) for batch in batches)


def batch_portions(numbers: Mapping[int, int]) -> Iterator[Mapping[int, int]]:
    """Yield batch numbers by query's key in portions: SQLite allows at most 1,000 conditions in a query."""
    items = iter(numbers.items())
    while part := dict(islice(items, _AT_ONCE)):
        yield part


def recent_runs(query: Query) -> Sequence[Run]:
    """Return the last runs of a query, newest first."""
    return list(Run.objects.filter(query=query).order_by("-heard_ms", "-pk")[:MOST_RUNS])


def of_cluster(cluster: str) -> Sequence[Query]:
    return list(_all(cluster).order_by("pk"))


def _all(cluster: str) -> QuerySet[Query]:
    return visibility.rows_in(Query, cluster).annotate(state_now=state_at(now_ms()))


def _filtered(wanted: QueryCriteria) -> QuerySet[Query]:
    rows = _all(wanted.cluster)
    if wanted.state == PREPARED:
        rows = rows.filter(prepared__gt=0)
    elif wanted.state:
        rows = rows.filter(Q(state_now=wanted.state))
    if wanted.sink:
        rows = rows.filter(sink="" if wanted.sink == "unknown" else wanted.sink)
    if not wanted.q:
        return rows
    return rows.filter(
        _any(Q(**{f"{field}__icontains": wanted.q}) for field in ("name", "ident", "checkpoint", "prefix"))
    )


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(or_, conditions)


def _order(wanted: SortedQueries) -> Sequence[OrderBy]:
    by: dict[str, Sequence[Expression | F]] = {
        "worst": [_RANK, F("expires_ms")],
        "batch": [F("planned")],
        "age": [F("finished_ms")],
    }
    return sorted_columns(wanted, *by.get(wanted.sort, ()), F("name"), F("cluster_id"), F("ident"))


def save_operator_state(row: Query, state: Sequence[OperatorState]) -> None:
    """Save the states of one round of listings; delete operators that no longer exist."""
    if not state:
        return
    OperatorStateRecord.objects.filter(query=row).exclude(
        operator_id__in=[operator.operator_id for operator in state]
    ).delete()
    rows = (
        {
            "query_id": row.pk,
            "operator_id": operator.operator_id,
            "name": operator.name,
            "chains": pack_chains(operator.chains),
            "broken": len(operator.broken),
            "read_ms": operator.read_ms,
            "unread": operator.unread,
        }
        for operator in state
    )
    write_rows(OperatorStateRecord, rows, ("query_id", "operator_id"))


def operator_states(row: Query) -> Sequence[OperatorState]:
    """Return the operators of a query by number, each with its broken chains first."""
    return [
        OperatorState(
            record.operator_id, record.name, _broken_first(record.chains), record.read_ms, record.unread
        )
        for record in OperatorStateRecord.objects.filter(query=row).order_by("operator_id")
    ]


def _broken_first(packed: str) -> tuple[StateChain, ...]:
    return tuple(sorted(unpack_chains(packed), key=lambda chain: (not chain.missing_count, chain[:2])))
