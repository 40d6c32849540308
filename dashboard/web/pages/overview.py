"""The overview: the open incidents, or those of a range, and the queries that need attention."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from dashboard.alerts import queries as alert_queries
from dashboard.groups import queries as group_queries
from dashboard.history.events import recent_interruptions
from dashboard.incidents import queries as incident_queries
from dashboard.partitions import queries as partition_queries
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.streaming import queries as streaming_queries
from dashboard.transactions import queries as transaction_queries
from dashboard.web import page_context
from dashboard.web.headlines.overview import OverviewFigures, overview_headline, range_headline
from dashboard.web.incidents import cards
from dashboard.web.page_context import first_query
from dashboard.web.pages.queries import query_rows as query_rows
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import page_view
from dashboard.web.routes import PageRoute
from fenceline.kafka.groups import GroupStatus

#: Maximum listed queries; those that need attention most come first.
_MOST_QUERIES = 4
#: Takeovers, fences and timeouts are named for this long.
_RECENT_MS = 600_000
#: Maximum listed incidents. Up to `_ALL_CARDS` are cards; of more, the first `_CARDS` and lines below.
_LISTED, _ALL_CARDS, _CARDS = 6, 3, 1
#: Maximum incidents of a past range.
_PAST = 15


def collector_states(request: HttpRequest) -> object:
    """Return the collectors' own states, which change without a new revision."""
    rows = page_context.chrome_of(request).freshness.collectors
    return [(row.pk, row.token, row.seen_through_ms, row.behind, row.alive) for row in rows]


@page_view("overview/page", collector_states)
def overview_page(request: HttpRequest) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    shown = _past(frame) if frame.time_range.is_past else _now(request, frame)
    # The streaming queries that need attention most, and the number of all queries.
    worst = streaming_queries.worst_queries(frame.cluster, _MOST_QUERIES)
    number = len(worst) if len(worst) < _MOST_QUERIES else streaming_queries.query_count(frame.cluster)
    queries = {"query_number": number, "queries": query_rows(worst, now_ms(request))}
    return {**shown, **queries, "first_query": first_query(request)}


def _past(frame: page_context.Chrome) -> Mapping[str, Any]:
    """Return the incidents that were open at any time of a range that has ended."""
    shown = frame.time_range.window()
    rows = incident_queries.incidents_within(frame.cluster, shown.from_ms, shown.to_ms, limit=_PAST + 1)
    return {
        "verdict": range_headline(len(rows), _PAST),
        "rows": cards.incident_lines(rows[:_PAST], shown.to_ms),
        "several": len(frame.clusters) > 1 and not frame.cluster,
    }


def _now(request: HttpRequest, frame: page_context.Chrome) -> Mapping[str, Any]:
    at_ms = now_ms(request)
    problems = cards.open_problems(frame.cluster, frame.all_findings)
    shown = problems[:_LISTED]
    facts = [problem.facts for problem in shown]
    states = transaction_queries.state_counts(frame.cluster)
    figures = OverviewFigures(
        clusters=[frame.cluster] if frame.cluster else [row.name for row in frame.clusters],
        ids=sum(states.values()),
        open_now=sum(states[state] for state in transaction_queries.OPEN),
        blocked_partitions=partition_queries.blocked_count(frame.cluster, at_ms),
        blocked_groups=group_queries.status_counts(frame.cluster)[GroupStatus.BLOCKED],
    )
    listed = cards.incident_cards(request, shown, facts, cards.shared_effects(problems))
    cards_shown = _CARDS if len(problems) > _ALL_CARDS else _ALL_CARDS
    return {
        "verdict": overview_headline(
            [(problem.severity, known) for problem, known in zip(shown, facts, strict=True)],
            len(problems),
            frame.freshness,
            figures,
            now_ms=at_ms,
        ),
        "cards": listed[:cards_shown],
        "more_lines": listed[cards_shown:],
        "more_cards": len(problems) - len(shown),
        "quiet": alert_queries.unnotified_counts(frame.cluster)[1],
        "open": figures.open_now,
        "several": len(figures.clusters) > 1,
        "recently": recent_interruptions(frame.cluster, since_ms=at_ms - _RECENT_MS),
    }


ROUTES = (PageRoute("overview", "", overview_page, plural="incidents", key="i", shows=EVERYTHING),)
