"""`/api/v1/collectors`: what each collector reads, and how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from ninja import Router, Schema

from dashboard.api import schemas
from dashboard.runtime import visibility

if TYPE_CHECKING:
    from dashboard.runtime.stale_collectors import LiveCollector

router = Router(tags=["collectors"])


class CollectorOut(Schema):
    """A collector; `alive`: whether its lease is valid; `behind` counts records (null: unknown).

    `requests` and `broker_ms` are what it has cost its cluster since it was first started; `detail` is
    further status, different for each collector.
    """

    cluster: str
    name: str
    alive: bool
    token: int
    seen_through: str | None
    behind: int | None
    records: int
    rate_per_s: float
    undecoded: dict[str, int]
    requests: int
    broker_ms: int
    detail: dict[str, Any]
    error: str
    since: str | None


class CollectorList(schemas.Listing):
    items: list[CollectorOut]


@router.get("", response=CollectorList, summary="List collectors")
def list_collectors(request: HttpRequest, cluster: schemas.Name = "") -> dict[str, object]:
    """Every collector of the configured clusters; they are few, so there is one page."""
    schemas.refuse_range(request, "collectors")
    items = [_out(row) for row in visibility.list_collectors(cluster)]
    return {"items": items, "next": None, **schemas.visibility_fields(visibility.noun_visibility(cluster))}


def _out(row: LiveCollector) -> CollectorOut:
    return CollectorOut(
        cluster=row.cluster.name,
        name=row.name,
        alive=row.alive,
        token=row.token,
        seen_through=schemas.format_iso(row.seen_through_ms),
        behind=row.behind,
        records=row.records,
        rate_per_s=round(row.rate, 1),
        undecoded=row.undecoded,
        requests=row.requests,
        broker_ms=row.broker_ms,
        detail=row.detail,
        error=row.error,
        since=schemas.format_iso(row.since_ms),
    )
