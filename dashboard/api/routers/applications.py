"""`/api/v1/applications`: the applications of the transactional ids, and their figures."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.schemas import Durations
from dashboard.history import queries as history_queries
from dashboard.runtime import visibility
from dashboard.transactions import queries as ids
from dashboard.transactions import queries as transaction_queries
from fenceline.history.reports import ReportFigures

router = Router(tags=["applications"])

#: The most tallies that a request adds up, in some tenths of a second.
MOST_TALLIES = 6_000


class ApplicationOut(Schema):
    """An application: its ids, and their transitions in the last `window_s` seconds.

    `open_times` run from begin to decision, `marker_times` from decision to the last marker.
    """

    cluster: str
    application: str
    ids: int
    open: int
    window_s: int
    counts: dict[str, int]
    open_times: Durations
    marker_times: Durations


class ApplicationFilters(Schema):
    """The query string of the list."""

    cluster: schemas.Name = ""
    window_s: int = Field(3600, ge=60, le=2_592_000)
    limit: int = Field(100, ge=1, le=500)
    cursor: str = ""


@router.get("", response=schemas.list_of(ApplicationOut), summary="List applications")
def list_applications(request: HttpRequest, wanted: Query[ApplicationFilters]) -> dict[str, object]:
    """Applications with a transactional id, by cluster and name.

    A page with a `next` may have fewer than `limit` items: the longer the window, the fewer.
    """
    # An application has at most one tally per shard of each minute, or of each hour of a longer window.
    minutes = -(-wanted.window_s // history_queries.MINUTE_S)
    hours = -(-wanted.window_s // history_queries.HOUR_S)
    tallies = minutes if minutes <= history_queries.MOST_MINUTES else hours
    limit = min(wanted.limit, max(1, MOST_TALLIES // tallies))
    page, following = schemas.cut_page("applications", _names(wanted, limit + 1), limit, tuple)
    return schemas.list_answer(list(_with_figures(page, wanted.window_s)), following, wanted.cluster)


def _names(wanted: ApplicationFilters, most: int) -> Sequence[tuple[str, str]]:
    """Return the cluster and name of the next applications."""
    at = schemas.decode_cursor(wanted.cursor, "applications", (str, str)) or ("", "")
    names: list[tuple[str, str]] = []
    for cluster in sorted(visibility.configured_clusters(), key=lambda row: row.name):
        if cluster.name < str(at[0]) or (wanted.cluster and cluster.name != wanted.cluster):
            continue
        after = str(at[1]) if cluster.name == at[0] else ""
        known = transaction_queries.application_names(cluster.name, after=after, limit=most - len(names))
        names += [(cluster.name, name) for name in known]
    return names


def _with_figures(page: Sequence[tuple[str, str]], window_s: int) -> Iterator[dict[str, Any]]:
    """Yield the fields of `ApplicationOut`; figures are read for all applications of a cluster at once."""
    now_ms = time.time_ns() // 1_000_000
    for cluster in dict.fromkeys(cluster for cluster, _ in page):
        names = [name for of, name in page if of == cluster]
        figures = history_queries.application_figures(
            cluster, since_ms=now_ms - window_s * 1_000, until_ms=now_ms, applications=names
        )
        known, opened = ids.application_sizes(cluster, names)
        for name in names:
            figure = figures.get(name, ReportFigures())
            yield {
                "cluster": cluster,
                "application": name,
                "ids": known.get(name, 0),
                "open": opened.get(name, 0),
                "window_s": window_s,
                "counts": {kind.value: n for kind, n in sorted(figure.counts.items())},
                "open_times": figure.open_times,
                "marker_times": figure.marker_times,
            }
