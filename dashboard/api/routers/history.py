"""`/api/v1/history/…`: what the Spark history job has found, by application, by id and by day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.api import schemas
from dashboard.history import parquet
from dashboard.history.report_types import Day, ReportTrouble
from dashboard.runtime import visibility
from fenceline import histograms
from fenceline.histograms import Histogram
from fenceline.reports import Manifest, ReportFigures, sum_figures

router = Router(tags=["history"])

_LONGEST_DAYS = 1_100


class Spans(Schema):
    """Durations of commits, each at most a sixteenth off; null where there was none."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class FiguresOut(Schema):
    """What happened; `open_times` run from begin to decision, `marker_times` from that to the last marker."""

    commits: int
    aborts: int
    counts: dict[str, int]
    epochs: int
    open_times: Spans
    marker_times: Spans


class ApplicationDays(FiguresOut):
    """An application over all the days."""

    application: str


class IdDays(FiguresOut):
    """A transactional id over all the days."""

    transactional_id: str
    application: str


class DayOut(FiguresOut):
    """One day, of all applications or of the one that was asked for."""

    day: date


class Reported(Schema):
    """The fields of every answer beside its items: the requested days, and how far the job has come.

    `as_of` is when it published its newest micro-batch, `batch`.
    """

    cluster: str
    first_day: date
    last_day: date
    batch: int
    records: int
    undecoded: dict[str, int]
    as_of: str
    next: None = None
    gaps: list[schemas.Gap] = []


class ApplicationReports(Reported):
    items: list[ApplicationDays]


class IdReports(Reported):
    items: list[IdDays]
    #: How many ids there are in these days; `whole` is false where not all were ranked.
    number: int
    whole: bool


class DayReports(Reported):
    items: list[DayOut]


class HistoryFilters(Schema):
    """The query string: days are UTC; without `first_day` the last 30 of which there are reports."""

    cluster: schemas.Name = ""
    first_day: date | None = None
    last_day: date | None = None
    application: schemas.Name = ""


class IdFilters(HistoryFilters):
    """The same, and what ids are ranked by."""

    by: Literal["commits", "aborts", "epochs"] = "commits"
    limit: int = Field(20, ge=1, le=500)


@router.get("/applications", response=ApplicationReports, summary="Reports by application")
def list_applications(request: HttpRequest, wanted: Query[HistoryFilters]) -> dict[str, object]:
    """Every application of which a transaction ended or an id changed in these days, by name."""
    manifest, first, last = _span(wanted)
    by_name: dict[str, list[ReportFigures]] = {}
    for each in _days(manifest, first, last, wanted.application):
        by_name.setdefault(each.application, []).append(each.figures)
    items = [{"application": name, **_out(sum_figures(parts))} for name, parts in sorted(by_name.items())]
    return {"items": items, **_seen(manifest, first, last)}


@router.get("/ids", response=IdReports, summary="Reports by transactional id")
def list_ids(request: HttpRequest, wanted: Query[IdFilters]) -> dict[str, object]:
    """The ids with the most commits, aborts or epochs used up in these days."""
    manifest, first, last = _span(wanted)
    found = parquet.busiest_ids(
        settings.FENCELINE.history_url, manifest, first, last,
        application=wanted.application, by=wanted.by, most=wanted.limit,
    )  # fmt: skip
    if isinstance(found, ReportTrouble):
        raise _cannot(found)
    items = [
        {"transactional_id": each.transactional_id, "application": each.application, **_out(each.figures)}
        for each in found.items
    ]
    return {"items": items, "number": found.number, "whole": found.whole, **_seen(manifest, first, last)}


@router.get("/days", response=DayReports, summary="Reports by day")
def list_days(request: HttpRequest, wanted: Query[HistoryFilters]) -> dict[str, object]:
    """Every day on which something happened, oldest first."""
    manifest, first, last = _span(wanted)
    by_day: dict[str, list[ReportFigures]] = {}
    for each in _days(manifest, first, last, wanted.application):
        by_day.setdefault(each.day, []).append(each.figures)
    items = [{"day": day, **_out(sum_figures(parts))} for day, parts in sorted(by_day.items())]
    return {"items": items, **_seen(manifest, first, last)}


def _span(wanted: HistoryFilters) -> tuple[Manifest, str, str]:
    """Return the newest manifest and the days asked for. Whatever is in the way is a problem in words."""
    clusters = [row.name for row in visibility.configured_clusters()]
    if not wanted.cluster and len(clusters) != 1:
        raise HttpError(
            400, f"cluster: name one of {', '.join(clusters) or 'none'}; reports are of one each."
        )
    cluster = wanted.cluster or clusters[0]
    if cluster not in clusters:
        raise HttpError(404, f"cluster: no cluster {cluster!r} is configured.")
    if not settings.FENCELINE.history_url:
        raise HttpError(404, "No place for reports is configured: set [history] url.")
    standing = parquet.report_status(settings.FENCELINE.history_url, cluster)
    if standing.manifest is None:
        raise _cannot(standing.trouble or ReportTrouble(parquet.NONE_YET, "", "Run the history job."))
    newest = parquet.last_day(standing.manifest)
    last = wanted.last_day or (date.fromisoformat(newest) if newest else datetime.now(UTC).date())
    first = wanted.first_day or last - timedelta(days=29)
    if first > last or (last - first).days > _LONGEST_DAYS:
        raise HttpError(400, f"first_day: up to {_LONGEST_DAYS} days, which begin before they end.")
    return standing.manifest, str(first), str(last)


def _cannot(trouble: ReportTrouble) -> HttpError:
    absent = trouble.what == parquet.NONE_YET
    return HttpError(404 if absent else 503, f"{trouble.what}: {trouble.why} {trouble.remedy}")


def _days(manifest: Manifest, first: str, last: str, application: str) -> Sequence[Day]:
    found = parquet.application_days(settings.FENCELINE.history_url, manifest, first, last)
    if isinstance(found, ReportTrouble):
        raise _cannot(found)
    return [each for each in found if not application or each.application == application]


def _seen(manifest: Manifest, first: str, last: str) -> dict[str, object]:
    return {
        "cluster": manifest.cluster,
        "first_day": first,
        "last_day": last,
        "batch": manifest.batch,
        "records": manifest.records,
        "undecoded": dict(manifest.undecoded),
        "as_of": schemas.format_iso(manifest.at_ms),
        "gaps": [],
    }


def _out(figures: ReportFigures) -> dict[str, object]:
    return {
        "commits": figures.commits,
        "aborts": figures.aborts,
        "counts": {kind.value: n for kind, n in sorted(figures.counts.items())},
        "epochs": figures.epochs,
        "open_times": _spans(figures.open_times),
        "marker_times": _spans(figures.marker_times),
    }


def _spans(times: Histogram) -> Spans:
    p50, p95, p99 = (histograms.quantile(times, q) for q in (0.5, 0.95, 0.99))
    return Spans(count=sum(times.values()), p50_ms=_whole(p50), p95_ms=_whole(p95), p99_ms=_whole(p99))


def _whole(ms: float | None) -> int | None:
    return None if ms is None else round(ms)
