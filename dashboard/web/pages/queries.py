"""Streaming queries: the list, and each query's own page."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from django.http import HttpRequest

from dashboard.labels.query import STATE_LABELS, sink_words, state_label
from dashboard.models import Batch, FindingRecord, Query
from dashboard.runtime.collector_names import QUERIES
from dashboard.streaming import lag as reading
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import chains_of, restart_safety_by_query
from dashboard.streaming.registry import driver_of, state_now
from dashboard.system import owners
from dashboard.web import addresses, page_context
from dashboard.web import query_detail as one_query
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters, Heading, plain_labels
from dashboard.web.headlines.overview import queries_headline, stuck_queries
from dashboard.web.page_context import attach_lines, first_query
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import CLUSTER, OWNER, clock_steps, list_view, of_known_cluster, page_view
from dashboard.web.routes import MOST_HITS, Hit, PageRoute

#: Countdowns end and heartbeats fall due without a new revision, so a page is rendered again this often.
_passing = clock_steps(2_000)
#: Maximum queries with a finding that are sorted first.
_MOST_FIRST = 200
_HEADINGS: Sequence[Heading] = (
    ("Query", "name", "col-name", "asc"),
    ("State", "worst", "col-status", "asc"),
    ("Finding", "", "col-finding", ""),
    (CLUSTER, "", "col-cluster", ""),
    ("Batch", "batch", "col-batch number", "desc"),
    ("Planned to checkpointed", "", "col-chain", ""),
    ("Last commit", "age", "col-age number", "asc"),
    ("Rows/s", "", "col-rate", ""),
    ("Lag to LSO", "", "col-unread number", ""),
    ("Lag to end", "", "col-lag number", ""),
    ("Application", "", "col-application", ""),
    (OWNER, "", "col-owner", ""),
    ("On restart", "", "col-restart", ""),
    ("Safe to restart", "", "col-stop", ""),
)


class QueryListQuery(list_forms.NumberedList, streaming_queries.SortedQueries):
    """The query string of the list."""


@page_view("queries/detail", _passing)
@of_known_cluster
def query_detail(request: HttpRequest, cluster: str, ident: str) -> Mapping[str, Any]:
    return one_query.query_context(request, cluster, ident)


def query_rows(
    queries: Sequence[Query],
    at_ms: int,
    findings: Mapping[tuple[int, str], FindingRecord] = MappingProxyType({}),
    lags: Mapping[int, reading.QueryLag] = MappingProxyType({}),
) -> Sequence[Mapping[str, Any]]:
    """Return the rows of queries, each with its newest batch, with a dozen SQL queries for all.

    `findings` have keys of a cluster's key and a query's id; `lags` have queries' keys.
    """
    lately = streaming_queries.recent_batches(queries)
    chains, safe = chains_of(queries, now_ms=at_ms), restart_safety_by_query(queries, at_ms)
    return [
        {
            "of": query,
            "newest": next((batch.batch_id for batch in reversed(lately.get(query.pk, ()))), None),
            "chain": chains.get(query.pk, ()),
            "rate": _rate(lately.get(query.pk, ())),
            "safe": safe[query.pk],
            "look": state_label(state_now(query, at_ms), driver_of(query, at_ms)),
            "lag": lags.get(query.pk),
            "owner": owners.of_query(query),
            "finding": findings.get((query.cluster_id, query.ident)),
        }
        for query in queries
    ]


def _rate(lately: Sequence[Batch]) -> Mapping[str, Any]:
    rated = [batch for batch in lately if batch.processed_rate is not None]
    points = [(batch.started_ms or 0, round(batch.processed_rate or 0)) for batch in rated]
    return {"points": points, "newest": rated[-1].processed_rate if rated else None}


@list_view("queries/list", QueryListQuery, _HEADINGS, _passing)
def query_list(request: HttpRequest, wanted: QueryListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    worst = frame.worst_findings("query")
    page = streaming_queries.query_page(
        wanted, page=wanted.page, size=wanted.size, first=list(worst)[:_MOST_FIRST]
    )
    states, sinks = (
        streaming_queries.state_counts(frame.cluster),
        streaming_queries.sink_counts(frame.cluster),
    )
    number, filters = sum(sinks.values()), Filters(request.GET, wanted)
    used = {sink: number for sink, number in sinks.items() if number or sink == wanted.sink}
    findings = [row for row in frame.all_findings if row.subject.startswith("query:")]
    lags = {pk: reading.query_lag(source) for pk, source in reading.query_sources(page.items).items()}
    return {
        "page": page,
        "rows": query_rows(page.items, now_ms(request), worst, lags),
        "filters": [
            filters.row("state", states, STATE_LABELS),
            filters.row(
                "sink", used, plain_labels({sink: sink_words(sink) for sink in used}), every="", words="sink"
            ),
        ]
        if number or wanted.narrowed
        else [],
        "number": number,
        "headline": queries_headline(
            number,
            states,
            stuck_queries(frame.cluster, now_ms(request)),
            findings,
            now_ms(request),
        ),
        "how": attach_lines(request),
        "first_query": first_query(request),
    }


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    rows = streaming_queries.queries_after(
        streaming_queries.QueryCriteria(cluster=cluster, q=asked), place=0, limit=MOST_HITS
    )
    for row in rows:
        yield Hit(row.name or row.ident, addresses.query_of(row), f"{row.ident} · {row.cluster.name}")


ROUTES = (
    PageRoute(
        "queries",
        "queries",
        query_list,
        search=_search,
        plural="Spark queries",
        key="q",
        heading="Monitor",
        shows=QUERIES,
        searched="queries",
        has_files=True,
        as_of_now="The history of states and lag is not kept.",
    ),
    PageRoute(
        "query",
        "queries/<str:cluster>/<text:ident>",
        query_detail,
        parent="queries",
        as_of_now="Its batches are of the range that you chose.",
    ),
)
