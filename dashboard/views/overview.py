"""The first page: is anything stuck, and what needs somebody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse

from dashboard import queries
from dashboard.views import context
from dashboard.views.clock import now_ms
from dashboard.views.page import answer, signed_in
from dashboard.views.verdict import verdict

#: How many of the longest open transactions the page lists.
_LONGEST_OPEN = 8


@signed_in
def overview(request: HttpRequest) -> HttpResponse:
    """Show the verdict, the findings and the freshness of what they stand on."""
    return answer(request, "overview", lambda: _read(request), depends_on=collector_states(request))


def collector_states(request: HttpRequest) -> object:
    """Return what collectors say of themselves: it changes without a new revision."""
    rows = context.of(request).freshness.collectors
    return [(row.pk, row.token, row.seen_through_ms, row.behind, row.alive) for row in rows]


def _read(request: HttpRequest) -> Mapping[str, Any]:
    frame = context.of(request)
    seen = queries.overview(frame.cluster)
    oldest = queries.Filter(cluster=frame.cluster, state="open", sort="started", descending=False)
    longest = queries.transactions(oldest, now_ms=now_ms(request), size=_LONGEST_OPEN)
    clusters = [frame.cluster] if frame.cluster else [row.name for row in frame.clusters]
    said = verdict(
        seen.findings,
        frame.freshness,
        clusters=clusters,
        ids=seen.ids,
        open_now=seen.open,
        oldest_ms=longest.items[0].started_ms if longest.items else None,
        now_ms=now_ms(request),
    )
    return {"verdict": said, "seen": seen, "longest": longest, "several": len(clusters) > 1}
