"""`/api/v1/collectors`: the collectors, their progress and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.runtime import visibility

if TYPE_CHECKING:
    from dashboard.runtime.stale_collectors import LiveCollector

router = Router(tags=["collectors"])


class CollectorOut(Schema):
    """A collector; `alive`: whether its lease is valid; `behind` counts records (null: unknown).

    `requests` and `broker_ms` are its cost for the cluster since its first start. `detail` is further status
    that differs between collectors.
    """

    cluster: str = Field(validation_alias="cluster.name")
    name: str
    alive: bool
    token: int
    seen_through: schemas.Instant | None = Field(validation_alias="seen_through_ms")
    behind: int | None
    records: int
    rate_per_s: float
    undecoded: dict[str, int]
    requests: int
    broker_ms: int
    detail: dict[str, Any]
    error: str
    since: schemas.Instant | None = Field(validation_alias="since_ms")

    @staticmethod
    def resolve_rate_per_s(row: LiveCollector) -> float:
        return round(row.rate, 1)


class CollectorList(schemas.Listing):
    items: list[CollectorOut]


@router.get("", response=CollectorList, summary="List collectors")
def list_collectors(request: HttpRequest, cluster: schemas.Name = "") -> dict[str, object]:
    """Collectors of the configured clusters, in one page."""
    return schemas.list_answer(visibility.list_collectors(cluster), None, cluster)
