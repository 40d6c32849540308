"""Schemas of time series: steps with extents, and the gaps between steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from django.http import Http404
from ninja import Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.models import Cluster, GapRecord
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import GROUPS, PARTITIONS, TRANSACTIONS
from dashboard.runtime.loop import now_ms
from dashboard.series import queries as series_queries
from dashboard.series.queries import SubjectReading, explained_holes
from fenceline.series.points import APPLICATION, GROUP, PARTITION, SeriesBucket, SeriesKind
from fenceline.series.reading import MOST_STEPS

_NOUNS: Mapping[SeriesKind, str] = {PARTITION: PARTITIONS, GROUP: GROUPS, APPLICATION: TRANSACTIONS}


class SeriesFilters(schemas.RangeFilters):
    """The query string of a series: a range of time, and the most steps to return."""

    steps: int = Field(MOST_STEPS, ge=10, le=MOST_STEPS)


class WorstFilters(SeriesFilters):
    """The query string of the worst groups: a range, the most steps, and the number of groups."""

    number: int = Field(5, ge=1, le=20)
    steps: int = Field(100, ge=10, le=MOST_STEPS)


class ExtentOut(Schema):
    """The minimum, maximum and last value of a figure in a step; null if unknown."""

    low: int | None
    high: int | None
    last: int | None


class PartitionStep(Schema):
    """Offsets in the step that starts at `at`; `high_watermark` is the one at the step's end.

    `uncommitted` is high watermark minus LSO.
    """

    at: schemas.Instant = Field(validation_alias="at_ms")
    lso: ExtentOut = Field(validation_alias="extents.0")
    uncommitted: ExtentOut = Field(validation_alias="extents.1")
    high_watermark: int | None

    @staticmethod
    def resolve_high_watermark(step: SeriesBucket) -> int | None:
        lso, uncommitted = step.extents
        return None if lso.last is None or uncommitted.last is None else lso.last + uncommitted.last


class GroupStep(Schema):
    """Lag in the step that starts at `at`; `lag_ms` is the age of the oldest unread record.

    `blocked` counts partitions in which the group is BLOCKED.
    """

    at: schemas.Instant = Field(validation_alias="at_ms")
    lag_lso: ExtentOut = Field(validation_alias="extents.0")
    lag_hw: ExtentOut = Field(validation_alias="extents.1")
    lag_ms: ExtentOut = Field(validation_alias="extents.2")
    blocked: ExtentOut = Field(validation_alias="extents.3")


class OpenStep(Schema):
    """Open transactions in the step that starts at `at`: their number, and the oldest one's age in ms.

    `blocked` counts the offsets between LSO and high watermark in partitions with a stuck LSO.
    """

    at: schemas.Instant = Field(validation_alias="at_ms")
    open: ExtentOut = Field(validation_alias="extents.0")
    oldest_ms: ExtentOut = Field(validation_alias="extents.1")
    blocked: ExtentOut = Field(validation_alias="extents.2")


class SeriesListing(schemas.Listing):
    """Steps of `from` ≤ t < `to` in which a figure changed, oldest first; `next` is always null.

    Between two steps without a gap, the last figures of the first step held, and ages grew. A step is
    `step_ms` long. `resolution` is the resolution of the stored points. `gaps` are the gaps in this range.
    """

    range_from: schemas.Instant | None = Field(serialization_alias="from")
    range_to: schemas.Instant | None = Field(serialization_alias="to")
    resolution: Literal["detail", "minute", "hour"]
    step_ms: int
    kept_since: schemas.Instant | None


class PartitionSeries(SeriesListing):
    items: list[PartitionStep]


class GroupSeries(SeriesListing):
    items: list[GroupStep]


class OpenTransactionSeriesOut(SeriesListing):
    """Open transactions of a cluster or of one application."""

    items: list[OpenStep]


class GroupLagSeries(Schema):
    """The lag of one of the worst groups."""

    group: str = Field(validation_alias="name")
    steps: list[GroupStep] = Field(validation_alias="reading.steps")


class WorstGroups(SeriesListing):
    """The groups with the greatest lag to the high watermark in a range, the worst first."""

    items: list[GroupLagSeries]


def series_answer(
    cluster: str,
    kind: SeriesKind,
    name: str,
    wanted: SeriesFilters,
    *,
    is_known: Callable[[], bool],
    unknown: str,
) -> dict[str, object]:
    """Return the response for a subject's series; raises 404 `unknown` for an unknown subject or cluster."""
    at_ms = now_ms()
    shown = wanted.time_range(at_ms)
    row = _cluster(cluster, unknown)
    subject = series_queries.read_series(row.pk, kind, name, shown, now_ms=at_ms, most=wanted.steps)
    if subject.kept_since_ms is None and not is_known():
        raise Http404(unknown)
    return {"items": subject.reading.steps, **_fields(row, subject, [subject], at_ms)}


def worst_groups(cluster: str, wanted: WorstFilters) -> dict[str, object]:
    """Return the groups that were the furthest behind; raises 404 for an unknown cluster."""
    at_ms = now_ms()
    shown = wanted.time_range(at_ms)
    row = _cluster(cluster, f"No cluster '{cluster}' is configured.")
    asked = {"now_ms": at_ms, "most": wanted.steps}
    groups = series_queries.worst_series(row.pk, GROUP, shown, number=wanted.number, **asked)
    # Without a lagging group the response still needs the fields of the range.
    first = groups[0] if groups else series_queries.read_series(row.pk, GROUP, "", shown, **asked)
    return {"items": groups, **_fields(row, first, groups, at_ms)}


def _cluster(name: str, unknown: str) -> Cluster:
    return schemas.known(next(iter(visibility.clusters_named(name)), None) if name else None, unknown)


def _fields(
    cluster: Cluster, of: SubjectReading, subjects: Sequence[SubjectReading], at_ms: int
) -> dict[str, object]:
    """Return the fields of a response beside its items; the subjects share one resolution."""
    sight = visibility.noun_visibility(cluster.name, _NOUNS[of.kind], at_ms)
    return {
        "next": None,
        "range_from": of.reading.from_ms,
        "range_to": of.reading.to_ms,
        "resolution": of.reading.plan.resolution.name.lower(),
        "step_ms": of.reading.plan.step_ms,
        "kept_since": of.kept_since_ms,
        "as_of": schemas.format_iso(sight.as_of_ms),
        "gaps": [gap for subject in subjects for gap in _gaps(cluster, subject)],
    }


def _gaps(cluster: Cluster, subject: SubjectReading) -> Sequence[GapRecord]:
    gaps = explained_holes(cluster.pk, subject)
    for gap in gaps:
        gap.cluster = cluster
    return gaps
