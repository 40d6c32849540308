"""The shapes the API speaks: times are ISO 8601 UTC with milliseconds, durations end in `_ms` or `_s`."""

from __future__ import annotations

from datetime import UTC, datetime

from ninja import Schema

from dashboard.models import GapRecord
from dashboard.queries import Sight


class Gap(Schema):
    """Something that could not be seen."""

    cluster: str
    source: str
    scope: str
    since: str
    until: str | None
    reason: str
    count: int


class Listing(Schema):
    """What every list says beside its items."""

    next: str | None
    as_of: str | None
    gaps: list[Gap]


def iso(ms: int | None) -> str | None:
    """Return an instant as `2026-11-21T12:16:07.412Z`, None for none."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def gap(row: GapRecord) -> Gap:
    """Return a gap as the API tells it."""
    return Gap(
        cluster=row.cluster.name,
        source=row.source,
        scope=row.scope,
        since=iso(row.since_ms) or "",
        until=iso(row.until_ms),
        reason=row.reason,
        count=row.count,
    )


def seen(sight: Sight) -> dict[str, object]:
    """Return `as_of` and `gaps` of a list."""
    return {"as_of": iso(sight.as_of_ms), "gaps": [gap(row) for row in sight.gaps]}
