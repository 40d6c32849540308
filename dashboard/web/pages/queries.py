"""Every streaming query: the list, and each query's own page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from dashboard.labels.query import state_label
from dashboard.labels.status import StatusLabel
from dashboard.models import Batch, FindingRecord, Query
from dashboard.streaming import lag as reading
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import chains_of, restart_safety_by_query
from dashboard.streaming.registry import driver_of, state_now
from dashboard.system import access, owners
from dashboard.web import page_context
from dashboard.web import query_detail as one_query
from dashboard.web.action_buttons import request_actor
from dashboard.web.checkpoint_context import state_keys_context
from dashboard.web.empty_state import why_empty
from dashboard.web.errors import forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.columns import Heading, table_columns
from dashboard.web.headlines.queries import queries_headline, stuck_queries
from dashboard.web.onboarding import attach_lines
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from fenceline.owners import Owner
from fenceline.spark.batch_chain import ChainLink
from fenceline.spark.safe_to_restart import RestartSafety

#: Countdowns end, and heartbeats fall due, without any change: a page is made anew so often.
_PASSING_MS = 2_000
#: How many of the queries that have a finding come first.
_MOST_FIRST = 200
_CLUSTER, _OWNER = "Cluster", "Owner"
_HEADINGS: Sequence[Heading] = (
    ("Query", "name", "col-name", "asc"),
    ("State", "worst", "col-status", "asc"),
    ("Finding", "", "col-finding", ""),
    (_CLUSTER, "", "col-cluster", ""),
    ("Batch", "batch", "col-batch number", "desc"),
    ("Planned to checkpointed", "", "col-chain", ""),
    ("Last commit", "age", "col-age number", "asc"),
    ("Rows/s", "", "col-rate", ""),
    ("Lag to LSO", "", "col-unread number", ""),
    ("Lag to end", "", "col-lag number", ""),
    ("Application", "", "col-application", ""),
    (_OWNER, "", "col-owner", ""),
    ("On restart", "", "col-restart", ""),
    ("Safe to restart", "", "col-stop", ""),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows per second over the last batches: when each began, oldest first, and the newest."""

    points: Sequence[tuple[int, int]]
    newest: float | None


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One query: its newest batch and that one's chain, how fast and how far behind it is."""

    of: Query
    newest: int | None
    chain: Sequence[ChainLink]
    rate: Rate
    safe: RestartSafety
    look: StatusLabel
    lag: reading.QueryLag | None = None
    owner: Owner | None = None
    finding: FindingRecord | None = None


class QueryListQuery(list_forms.NumberedList, streaming_queries.SortedQueries):
    """The query string of the list."""


@signed_in
def query_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the streaming queries that the query string asks for."""
    wanted = list_forms.read_request(request, QueryListQuery)
    passing = now_ms(request) // _PASSING_MS
    return render_page(request, "queries/list", lambda: _list(request, wanted), depends_on=passing)


@signed_in
def query_detail(request: HttpRequest, cluster: str, ident: str) -> HttpResponse:
    """Show how one query does from its offset log to the brokers, or that it is not known."""
    if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    passing = now_ms(request) // _PASSING_MS
    return render_page(
        request,
        "queries/detail",
        lambda: one_query.query_context(request, cluster, ident),
        depends_on=passing,
    )


@signed_in
def query_state_keys(request: HttpRequest, cluster: str, ident: str) -> HttpResponse:
    """Show the keys of a query's state that the job has read, to whoever may see them."""
    if refused := access.missing_role(request_actor(request), access.STATE_KEYS):
        return forbidden_page(request, refused)
    row = streaming_queries.find_query(cluster, ident)
    if row is None or not settings.FENCELINE.state_keys_url:
        raise Http404("No state keys are configured for such a query.")
    return render_page(
        request, "queries/state_keys", lambda: state_keys_context(row), depends_on=now_ms(request)
    )


def query_rows(
    found: Sequence[Query],
    at_ms: int,
    findings: Mapping[tuple[int, str], FindingRecord] = MappingProxyType({}),
    lags: Mapping[int, reading.QueryLag] = MappingProxyType({}),
) -> Sequence[QueryRow]:
    """Return queries as lists show them, each with its newest batch: in a dozen questions for all of them.

    `findings` are by cluster's key and a query's id, `lags` by a query's key.
    """
    lately = streaming_queries.recent_batches(found)
    chains, safe = chains_of(found, now_ms=at_ms), restart_safety_by_query(found, at_ms)
    return [
        QueryRow(
            of=each,
            newest=next((batch.batch_id for batch in reversed(lately.get(each.pk, ()))), None),
            chain=chains.get(each.pk, ()),
            rate=_rate(lately.get(each.pk, ())),
            safe=safe[each.pk],
            look=state_label(state_now(each, at_ms), driver_of(each, at_ms)),
            lag=lags.get(each.pk),
            owner=owners.of_query(each),
            finding=findings.get((each.cluster_id, each.ident)),
        )
        for each in found
    ]


def _rate(lately: Sequence[Batch]) -> Rate:
    rated = [batch for batch in lately if batch.processed_rate is not None]
    points = [(batch.started_ms or 0, round(batch.processed_rate or 0)) for batch in rated]
    return Rate(points, rated[-1].processed_rate if rated else None)


def _list(request: HttpRequest, wanted: QueryListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    worst = frame.worst_findings("query")
    page = streaming_queries.query_page(
        wanted, page=wanted.page, size=wanted.size, first=list(worst)[:_MOST_FIRST]
    )
    states, sinks = (
        streaming_queries.state_counts(frame.cluster),
        streaming_queries.sink_counts(frame.cluster),
    )
    number = sum(sinks.values())
    shown = {_CLUSTER: several, _OWNER: frame.has_owners}
    headings = [each for each in _HEADINGS if shown.get(each[0], True)]
    found = [row for row in frame.all_findings if row.subject.startswith("query:")]
    lags = {pk: reading.query_lag(of) for pk, of in reading.query_sources(page.items).items()}
    return {
        "wanted": wanted,
        "narrowed": wanted.narrowed,
        "page": page,
        "rows": query_rows(page.items, now_ms(request), worst, lags),
        "columns": table_columns(headings, wanted.sort, descending=wanted.descending),
        "states": states.items(),
        "sinks": [(sink, n) for sink, n in sinks.items() if n or sink == wanted.sink],
        "number": number,
        "headline": queries_headline(
            number,
            states,
            stuck_queries(frame.cluster, now_ms(request)),
            found,
            now_ms(request),
        ),
        "sizes": list_forms.SIZES,
        "several": several,
        "empty": "" if page.items else ("none" if not number and not wanted.narrowed else "unmatched"),
        "blind": why_empty(frame, narrowed=False) if not number else "",
        "how": attach_lines(request),
    }
