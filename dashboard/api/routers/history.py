"""`/api/v1/history/…`: reports of the Spark history job by application, by id and by day."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.schemas import Durations
from dashboard.history import job_outputs
from dashboard.history.job_outputs import BusyTransaction, Day, ReportTrouble
from dashboard.runtime import visibility
from fenceline.grouping import grouped
from fenceline.history.reports import Manifest, sum_figures

router = Router(tags=["history"])

_LONGEST_DAYS = 1_100


class Spans(Durations):
    """Durations of commits, accurate to a sixteenth; null without commits."""


class FiguresOut(Schema):
    """Counts and durations; `open_times` run from begin to decision, `marker_times` on to the last marker."""

    commits: int = Field(validation_alias="figures.commits")
    aborts: int = Field(validation_alias="figures.aborts")
    counts: dict[str, int]
    epochs: int = Field(validation_alias="figures.epochs")
    open_times: Spans = Field(validation_alias="figures.open_times")
    marker_times: Spans = Field(validation_alias="figures.marker_times")

    @staticmethod
    def resolve_counts(row: Day | BusyTransaction) -> dict[str, int]:
        return {kind.value: count for kind, count in sorted(row.figures.counts.items())}


class ApplicationDays(FiguresOut):
    """An application's figures over the requested days."""

    application: str


class IdDays(FiguresOut):
    """A transactional id's figures over the requested days."""

    transactional_id: str
    application: str


class DayOut(FiguresOut):
    """The figures of one day, of all applications or of the requested one."""

    day: date


class Reported(Schema):
    """The fields of every report beside its items: the requested days and the job's progress.

    `as_of` is the time at which the job published its newest micro-batch, `batch`.
    """

    cluster: str
    first_day: date
    last_day: date
    batch: int
    records: int
    undecoded: dict[str, int]
    as_of: schemas.Instant
    next: None = None
    gaps: list[schemas.Gap] = []


class ApplicationReports(Reported):
    items: list[ApplicationDays]


class IdReports(Reported):
    items: list[IdDays]
    #: The number of ids in these days; `whole` is false if not all were ranked.
    number: int
    whole: bool


class DayReports(Reported):
    items: list[DayOut]


class HistoryFilters(Schema):
    """The query string; days are UTC. The default is the last 30 days with reports."""

    cluster: schemas.Name = ""
    first_day: date | None = None
    last_day: date | None = None
    application: schemas.Name = ""


class IdFilters(HistoryFilters):
    """The query string with the ranking of ids, `by`."""

    by: Literal["commits", "aborts", "epochs"] = "commits"
    limit: int = Field(20, ge=1, le=500)


@router.get("/applications", response=ApplicationReports, summary="Reports by application")
def list_applications(request: HttpRequest, wanted: Query[HistoryFilters]) -> dict[str, object]:
    """Applications with an ended transaction or a changed id in these days, by name."""
    manifest, first, last = _span(wanted)
    days = _days(manifest, first, last, wanted.application)
    by_name = grouped((row.application, row.figures) for row in days)
    items = [Day("", name, sum_figures(parts)) for name, parts in sorted(by_name.items())]
    return {"items": items, **_seen(manifest, first, last)}


@router.get("/ids", response=IdReports, summary="Reports by transactional id")
def list_ids(request: HttpRequest, wanted: Query[IdFilters]) -> dict[str, object]:
    """The ids with the most commits, aborts or used epochs in these days."""
    manifest, first, last = _span(wanted)
    busiest = job_outputs.busiest_ids(
        settings.FENCELINE.history_url, manifest, first, last,
        application=wanted.application, by=wanted.by, most=wanted.limit,
    )  # fmt: skip
    if isinstance(busiest, ReportTrouble):
        raise _cannot(busiest)
    return {
        "items": busiest.items,
        "number": busiest.number,
        "whole": busiest.whole,
        **_seen(manifest, first, last),
    }


@router.get("/days", response=DayReports, summary="Reports by day")
def list_days(request: HttpRequest, wanted: Query[HistoryFilters]) -> dict[str, object]:
    """Days with activity, oldest first."""
    manifest, first, last = _span(wanted)
    days = _days(manifest, first, last, wanted.application)
    by_day = grouped((row.day, row.figures) for row in days)
    items = [Day(day, "", sum_figures(parts)) for day, parts in sorted(by_day.items())]
    return {"items": items, **_seen(manifest, first, last)}


def _span(wanted: HistoryFilters) -> tuple[Manifest, str, str]:
    """Return the newest manifest and the requested days; raises HttpError with a readable reason."""
    clusters = [row.name for row in visibility.configured_clusters()]
    if not wanted.cluster and len(clusters) != 1:
        raise HttpError(
            400, f"cluster: name one of {', '.join(clusters) or 'none'}; reports are of one each."
        )
    cluster = wanted.cluster or clusters[0]
    if not settings.FENCELINE.history_url:
        raise HttpError(404, "No place for reports is configured: set [history] url.")
    manifest = job_outputs.report_status(settings.FENCELINE.history_url, cluster)
    if not isinstance(manifest, Manifest):
        raise _cannot(manifest or ReportTrouble(job_outputs.NONE_YET, "", "Run the history job."))
    newest = job_outputs.last_day(manifest)
    last = wanted.last_day or (date.fromisoformat(newest) if newest else datetime.now(UTC).date())
    first = wanted.first_day or last - timedelta(days=29)
    if first > last or (last - first).days > _LONGEST_DAYS:
        raise HttpError(400, f"first_day: up to {_LONGEST_DAYS} days, which begin before they end.")
    return manifest, str(first), str(last)


def _cannot(trouble: ReportTrouble) -> HttpError:
    absent = trouble.what == job_outputs.NONE_YET
    return HttpError(404 if absent else 503, f"{trouble.what}: {trouble.why} {trouble.remedy}")


def _days(manifest: Manifest, first: str, last: str, application: str) -> Sequence[Day]:
    days = job_outputs.application_days(settings.FENCELINE.history_url, manifest, first, last)
    if isinstance(days, ReportTrouble):
        raise _cannot(days)
    return [day for day in days if not application or day.application == application]


def _seen(manifest: Manifest, first: str, last: str) -> dict[str, object]:
    return {
        "cluster": manifest.cluster,
        "first_day": first,
        "last_day": last,
        "batch": manifest.batch,
        "records": manifest.records,
        "undecoded": dict(manifest.undecoded),
        "as_of": manifest.at_ms,
        "gaps": [],
    }
