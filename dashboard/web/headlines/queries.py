"""All streaming queries in one sentence, the worst first. Pure except for one database query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.labels.query import STATE_LABELS
from dashboard.models import FindingRecord, Query
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import is_overdue, prepared_batches
from dashboard.streaming.queries import PREPARED
from dashboard.streaming.registry import driver_of
from fenceline.facts import Severity
from fenceline.formatting import count_noun
from fenceline.spark.records import QueryState
from fenceline.spark.safe_to_restart import prepared_headline

#: Maximum queries with a prepared batch that are searched for the one whose batch is lost first.
_MOST_STUCK = 200
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class QueryHeadline:
    """A sentence, its tone and the figures below it."""

    tone: str
    sentence: str
    figures: Sequence[str]


def stuck_queries(cluster: str, now_ms: int) -> Sequence[Query]:
    """Return the queries whose prepared batch has waited past its limit, by the deadline of its loss."""
    prepared = streaming_queries.SortedQueries(cluster=cluster, state=PREPARED)
    page = streaming_queries.query_page(prepared, page=1, size=_MOST_STUCK)
    late = {
        decision.query_id
        for decision in streaming_batches.open_decisions(page.items)
        if is_overdue(decision.query, decision, now_ms) or driver_of(decision.query, now_ms).alive is False
    }
    return [row for row in page.items if row.pk in late]


def queries_headline(
    number: int,
    states: Mapping[str, int],
    waiting: Sequence[Query],
    findings: Sequence[FindingRecord],
    now_ms: int,
) -> QueryHeadline:
    """Return the verdict on `number` queries; `findings` are theirs, the worst first."""
    queries = count_noun(number, "query")
    figures = [
        f"{states[state]:,} {STATE_LABELS[state].words}"
        for state in streaming_queries.WORST_STATES
        if states[state]
    ]
    needs = [row for row in findings if row.severity != Severity.INFO]
    if waiting:
        return _waits(queries, waiting, figures, now_ms)
    if needs:
        summary = needs[0].summary.rstrip(".")
        shown = summary if len(summary) <= _LONGEST else f"{summary[:_LONGEST]}…"
        more = f", and {len(needs) - 1} more" if len(needs) > 1 else ""
        return QueryHeadline(needs[0].severity, f"{queries}; {shown}{more}.", figures)
    if failed := states[QueryState.FAILED]:
        return QueryHeadline("critical", f"{queries}; {failed:,} of them failed.", figures)
    silent = states[QueryState.UNHEARD]
    if silent == number:
        return QueryHeadline("unknown", f"{queries}; no heartbeat from any driver.", figures)
    return QueryHeadline("ok", f"{queries}, no uncommitted batch.", figures)


def _waits(queries: str, waiting: Sequence[Query], figures: Sequence[str], now_ms: int) -> QueryHeadline:
    row = waiting[0]
    more = f" (+{len(waiting) - 1} more)" if len(waiting) > 1 else ""
    prepared = prepared_batches(row, streaming_batches.open_decisions([row]), now_ms)
    first = prepared_headline(prepared, driver_of(row, now_ms), now_ms=now_ms, of=str(row))
    return QueryHeadline("critical", f"{first.removesuffix('.')}{more}; {queries}.", figures)
