"""The first page: the open incidents, and how everything else is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse

from dashboard.alerts import queries as alert_queries
from dashboard.groups import queries as group_queries
from dashboard.history import queries as history_queries
from dashboard.labels.status import WORST_VERDICTS
from dashboard.partitions import queries as partition_queries
from dashboard.streaming import queries as streaming_queries
from dashboard.transactions import queries as transaction_queries
from dashboard.web import page_context
from dashboard.web.charts import figures
from dashboard.web.headlines import overview_headline
from dashboard.web.incidents import cards
from dashboard.web.pages.queries import query_rows as query_rows
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.request_time import now_ms
from fenceline.facts import TransitionKind
from fenceline.kafka.groups import GroupStatus

_STRIP_MS = 3_600_000
_STRIP_KINDS = ((TransitionKind.COMMIT,), *(kinds for _, kinds, _ in figures.STRIP))
#: How many of the longest open transactions the page lists.
_LONGEST_OPEN = 8
#: How many of the queries that need somebody most it lists.
_MOST_QUERIES = 6
#: How many incidents it lists.
_CARDS = 50


@signed_in
def overview_page(request: HttpRequest) -> HttpResponse:
    """Show the verdict, the open incidents and the freshness of what they stand on."""
    # The strip moves with the clock.
    moved = (now_ms(request) // 60_000, collector_states(request))
    return render_page(request, "overview/page", lambda: _read(request), depends_on=moved)


def collector_states(request: HttpRequest) -> object:
    """Return what collectors say of themselves: it changes without a new revision."""
    rows = page_context.chrome_of(request).freshness.collectors
    return [(row.pk, row.token, row.seen_through_ms, row.behind, row.alive) for row in rows]


def _read(request: HttpRequest) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    states = transaction_queries.state_counts(frame.cluster)
    longest = transaction_queries.open_longest(frame.cluster, _LONGEST_OPEN)
    open_now = sum(states[state] for state in transaction_queries.OPEN)
    clusters = [frame.cluster] if frame.cluster else [row.name for row in frame.clusters]
    held, waiting = (
        partition_queries.verdict_counts(frame.cluster),
        group_queries.status_counts(frame.cluster),
    )
    pinned = held.count_of(partition_queries.PINNED, internal=True)
    problems = cards.open_problems(frame.cluster, frame.all_findings)
    said = overview_headline(
        [each.findings[0] for each in problems],
        frame.freshness,
        clusters=clusters,
        ids=sum(states.values()),
        open_now=open_now,
        oldest_ms=longest[0].started_ms if longest else None,
        pinned=pinned,
        blocked=waiting[GroupStatus.BLOCKED],
        now_ms=now_ms(request),
    )
    return {
        "looked": [row.name for row in frame.freshness.collectors if row.seen_through_ms is not None],
        "held": [(each.value, held.count_of(each, internal=True)) for each in WORST_VERDICTS],
        "pinned": pinned,
        "waiting": waiting,
        "verdict": said,
        "cards": cards.incident_cards(request, problems[:_CARDS]),
        "more_cards": len(problems[_CARDS:]),
        "quiet": alert_queries.unnotified_counts(frame.cluster)[1],
        "states": states,
        "ids": sum(states.values()),
        "open": open_now,
        "longest": longest,
        **_queries(request, frame.cluster),
        "several": len(clusters) > 1,
        **_strip(request, frame.cluster),
    }


def _queries(request: HttpRequest, cluster: str) -> Mapping[str, Any]:
    """Return the streaming queries that need somebody most, and how many there are."""
    worst = streaming_queries.worst_queries(cluster, _MOST_QUERIES)
    number = len(worst) if len(worst) < _MOST_QUERIES else streaming_queries.query_count(cluster)
    return {"query_number": number, "queries": query_rows(worst, now_ms(request))}


def _strip(request: HttpRequest, cluster: str) -> Mapping[str, Any]:
    """Return what happened in each minute of the last hour, as a chart, in words and in figures."""
    now = now_ms(request)
    minutes = history_queries.transition_buckets(
        cluster, since_ms=now - _STRIP_MS, until_ms=now, step_s=history_queries.MINUTE_S
    )
    sums = [
        (
            "commits",
            TransitionKind.COMMIT,
            sum(minute.count_of([TransitionKind.COMMIT]) for minute in minutes),
        )
    ]
    sums += [
        (words, like, sum(minute.count_of(kinds) for minute in minutes))
        for words, kinds, like in figures.STRIP
    ]
    said = ", ".join(f"{n:,} {words[:-1] if n == 1 else words}" for words, _, n in sums)
    return {
        "strip": figures.activity_strip(minutes) if any(n for _, _, n in sums) else None,
        "strip_words": f"Per minute, in the last hour: {said}.",
        "strip_sums": sums,
        "minutes": [
            (each.start_ms, [each.count_of(kinds) for kinds in _STRIP_KINDS]) for each in reversed(minutes)
        ],
    }
