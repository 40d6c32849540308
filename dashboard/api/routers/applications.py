"""`/api/v1/applications`: the applications behind the transactional ids, and how they do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import cursors, schemas
from dashboard.history import queries as history_queries
from dashboard.runtime import visibility
from dashboard.transactions import queries as ids
from fenceline import histograms
from fenceline.histograms import Histogram

router = Router(tags=["applications"])

#: How many tallies one request adds up: some tenths of a second.
MOST_TALLIES = 6_000


class Durations(Schema):
    """Durations of commits, each at most a sixteenth off; null where there was none."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class ApplicationOut(Schema):
    """An application: its ids, and what happened to them in the last `window_s` seconds.

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


class ApplicationList(schemas.Listing):
    items: list[ApplicationOut]


class ApplicationFilters(Schema):
    """The query string of the list."""

    cluster: schemas.Name = ""
    window_s: int = Field(3600, ge=60, le=2_592_000)
    limit: int = Field(100, ge=1, le=500)
    cursor: str = ""


@router.get("", response=ApplicationList, summary="List applications")
def list_applications(request: HttpRequest, wanted: Query[ApplicationFilters]) -> dict[str, object]:
    """Every application that has an id, by cluster and name.

    A page may hold fewer than `limit` and have a `next` all the same: the longer the window, the fewer.
    """
    schemas.refuse_range(request, "applications")
    limit = min(wanted.limit, max(1, MOST_TALLIES // _tallies_in(wanted.window_s)))
    page, following = cursors.cut_page("applications", _names(wanted, limit + 1), limit, tuple)
    return {
        "items": list(_out(page, wanted.window_s)),
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster)),
    }


def _names(wanted: ApplicationFilters, most: int) -> Sequence[tuple[str, str]]:
    """Return cluster and name of the next applications."""
    at = cursors.decode_cursor(wanted.cursor, "applications", (str, str)) or ("", "")
    found: list[tuple[str, str]] = []
    for cluster in sorted(visibility.configured_clusters(), key=lambda row: row.name):
        if cluster.name < str(at[0]) or (wanted.cluster and cluster.name != wanted.cluster):
            continue
        after = str(at[1]) if cluster.name == at[0] else ""
        names = history_queries.application_names(cluster.name, after=after, limit=most - len(found))
        found += [(cluster.name, name) for name in names]
    return found


def _tallies_in(window_s: int) -> int:
    """Return how many tallies an application may have in a window, of each shard."""
    minutes = -(-window_s // history_queries.MINUTE_S)
    return minutes if minutes <= history_queries.MOST_MINUTES else -(-window_s // history_queries.HOUR_S)


def _out(page: Sequence[tuple[str, str]], window_s: int) -> Iterator[ApplicationOut]:
    now_ms = time.time_ns() // 1_000_000
    for cluster in dict.fromkeys(cluster for cluster, _ in page):
        names = [name for of, name in page if of == cluster]
        figures = history_queries.application_figures(
            cluster, since_ms=now_ms - window_s * 1_000, until_ms=now_ms, applications=names
        )
        known, opened = ids.application_sizes(cluster, names)
        for name in names:
            figure = figures.get(name, history_queries.ApplicationHistory())
            yield ApplicationOut(
                cluster=cluster,
                application=name,
                ids=known.get(name, 0),
                open=opened.get(name, 0),
                window_s=window_s,
                counts={kind.value: n for kind, n in sorted(figure.counts.items()) if n},
                open_times=_durations(figure.open_times),
                marker_times=_durations(figure.marker_times),
            )


def _durations(times: Histogram) -> Durations:
    p50, p95, p99 = (histograms.quantile(times, q) for q in (0.5, 0.95, 0.99))
    return Durations(count=sum(times.values()), p50_ms=_whole(p50), p95_ms=_whole(p95), p99_ms=_whole(p99))


def _whole(ms: float | None) -> int | None:
    return None if ms is None else round(ms)
