"""What the API shows of figures over time: steps with extents, and the holes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from ninja import Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.models import Cluster
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import GROUPS, PARTITIONS, TRANSACTIONS
from dashboard.runtime.loop import now_ms
from dashboard.series import queries as series_queries
from dashboard.series.holes import explained_holes
from dashboard.series.queries import SubjectReading
from fenceline.series.points import APPLICATION, GROUP, PARTITION, Extent, SeriesKind
from fenceline.series.reading import MOST_STEPS, SeriesStep

_NOUNS: Mapping[SeriesKind, str] = {PARTITION: PARTITIONS, GROUP: GROUPS, APPLICATION: TRANSACTIONS}


class SeriesFilters(schemas.RangeFilters):
    """The query string of a series: a range of time, and in how many steps it is read at most."""

    steps: int = Field(MOST_STEPS, ge=10, le=MOST_STEPS)


class WorstFilters(SeriesFilters):
    """The same, and of how many groups."""

    number: int = Field(5, ge=1, le=20)
    steps: int = Field(100, ge=10, le=MOST_STEPS)


class ExtentOut(Schema):
    """The least, the greatest and the last of a figure in a step; null where it was not known."""

    low: int | None
    high: int | None
    last: int | None

    @classmethod
    def from_extent(cls, extent: Extent) -> ExtentOut:
        """Return an extent as the API shows it."""
        return cls(low=extent.low, high=extent.high, last=extent.last)


class PartitionStep(Schema):
    """Offsets in the step from `at` on; `high_watermark` is the one at its end.

    `uncommitted` is high watermark minus LSO.
    """

    at: str
    lso: ExtentOut
    uncommitted: ExtentOut
    high_watermark: int | None


class GroupStep(Schema):
    """Lag in the step from `at` on; `lag_ms` is the age of the oldest unread record.

    `blocked` counts partitions in which the group is BLOCKED.
    """

    at: str
    lag_lso: ExtentOut
    lag_hw: ExtentOut
    lag_ms: ExtentOut
    blocked: ExtentOut


class OpenStep(Schema):
    """Open transactions in the step from `at` on: how many, the age of the oldest in ms, what they block.

    `blocked` counts the offsets between LSO and high watermark of partitions whose LSO does not move.
    """

    at: str
    open: ExtentOut
    oldest_ms: ExtentOut
    blocked: ExtentOut


class SeriesListing(schemas.Listing):
    """Steps of `from` ≤ t < `to` in which something changed, oldest first; `next` is always null.

    Between two steps without a gap in between, the last figures of the first one held; ages grew. A step is
    `step_ms` long. `resolution` is what it was read from. `gaps` are those of this range.
    """

    range_from: str | None = Field(serialization_alias="from")
    range_to: str | None = Field(serialization_alias="to")
    resolution: Literal["detail", "minute", "hour"]
    step_ms: int
    kept_since: str | None


class PartitionSeries(SeriesListing):
    items: list[PartitionStep]


class GroupSeries(SeriesListing):
    items: list[GroupStep]


class OpenTransactionSeriesOut(SeriesListing):
    """Of all applications of a cluster, or of one."""

    items: list[OpenStep]


class GroupLagSeries(Schema):
    """One of the groups that were the furthest behind."""

    group: str
    steps: list[GroupStep]


class WorstGroups(SeriesListing):
    """The groups with the greatest lag to the high watermark in a range, the worst first."""

    items: list[GroupLagSeries]


def partition_step(step: SeriesStep) -> PartitionStep:
    """Return a step of a partition as the API shows it."""
    lso, uncommitted = step.extents
    known = lso.last is not None and uncommitted.last is not None
    return PartitionStep(
        at=schemas.format_iso(step.at_ms) or "",
        lso=ExtentOut.from_extent(lso),
        uncommitted=ExtentOut.from_extent(uncommitted),
        high_watermark=(lso.last or 0) + (uncommitted.last or 0) if known else None,
    )


def group_step(step: SeriesStep) -> GroupStep:
    """Return a step of a group as the API shows it."""
    lag_lso, lag_hw, lag_ms, blocked = map(ExtentOut.from_extent, step.extents)
    at = schemas.format_iso(step.at_ms) or ""
    return GroupStep(at=at, lag_lso=lag_lso, lag_hw=lag_hw, lag_ms=lag_ms, blocked=blocked)


def open_step(step: SeriesStep) -> OpenStep:
    """Return a step of an application as the API shows it."""
    opened, oldest_ms, blocked = map(ExtentOut.from_extent, step.extents)
    at = schemas.format_iso(step.at_ms) or ""
    return OpenStep(at=at, open=opened, oldest_ms=oldest_ms, blocked=blocked)


def series_answer(
    cluster: str,
    kind: SeriesKind,
    name: str,
    wanted: SeriesFilters,
    to_step: Callable[[SeriesStep], Schema],
    *,
    is_known: Callable[[], bool],
) -> dict[str, object] | None:
    """Return what the API answers of a subject; None where neither it nor its cluster was ever known."""
    at_ms = now_ms()
    shown = wanted.time_range(at_ms)
    row = _cluster(cluster)
    if row is None:
        return None
    found = series_queries.read_series(row.pk, kind, name, shown, now_ms=at_ms, most=wanted.steps)
    if found.kept_since_ms is None and not is_known():
        return None
    return {"items": [to_step(step) for step in found.reading.steps], **_fields(row, found, [found], at_ms)}


def worst_groups(cluster: str, wanted: WorstFilters) -> dict[str, object] | None:
    """Return the groups that were the furthest behind; None where the cluster is not known."""
    at_ms = now_ms()
    shown = wanted.time_range(at_ms)
    row = _cluster(cluster)
    if row is None:
        return None
    asked = {"now_ms": at_ms, "most": wanted.steps}
    found = series_queries.worst_series(row.pk, GROUP, shown, number=wanted.number, **asked)
    # Without any group behind, the range is answered all the same.
    first = found[0] if found else series_queries.read_series(row.pk, GROUP, "", shown, **asked)
    items = [
        GroupLagSeries(group=each.name, steps=[group_step(step) for step in each.reading.steps])
        for each in found
    ]
    return {"items": items, **_fields(row, first, found, at_ms)}


def _cluster(name: str) -> Cluster | None:
    return next(iter(visibility.clusters_named(name) if name else ()), None)


def _fields(
    cluster: Cluster, of: SubjectReading, subjects: Sequence[SubjectReading], at_ms: int
) -> dict[str, object]:
    """Return what an answer has beside its items, of subjects that were read alike."""
    sight = visibility.noun_visibility(cluster.name, _NOUNS[of.kind], at_ms)
    return {
        "next": None,
        "range_from": schemas.format_iso(of.reading.from_ms),
        "range_to": schemas.format_iso(of.reading.to_ms),
        "resolution": of.reading.plan.resolution.name.lower(),
        "step_ms": of.reading.plan.step_ms,
        "kept_since": schemas.format_iso(of.kept_since_ms),
        "as_of": schemas.format_iso(sight.as_of_ms),
        "gaps": [gap for each in subjects for gap in _gaps(cluster, each)],
    }


def _gaps(cluster: Cluster, subject: SubjectReading) -> list[schemas.Gap]:
    return [
        schemas.Gap(
            cluster=cluster.name,
            source=hole.source,
            scope=hole.scope,
            since=schemas.format_iso(hole.from_ms) or "",
            until=schemas.format_iso(hole.to_ms),
            reason=hole.reason,
            count=1,
        )
        for hole in explained_holes(cluster.pk, subject)
    ]
