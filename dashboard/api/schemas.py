"""The shapes of the API: times are ISO 8601 UTC with milliseconds, durations end in `_ms` or `_s`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.http import HttpRequest
from ninja import Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.models import GapRecord
from dashboard.runtime.criteria import Name as Name
from dashboard.runtime.visibility import AnswerVisibility
from fenceline.time_range import InvalidTimeRange, TimeRange, read_time_range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The year 10000: no later instant has an ISO form.
END_OF_TIME_MS = 253_402_300_800_000


class Gap(Schema):
    """Something that could not be seen."""

    cluster: str
    source: str
    scope: str
    since: str
    until: str | None
    reason: str
    count: int


class ListFilters(Schema):
    """How much of a list is asked for: its criteria stand before it."""

    limit: int = Field(100, ge=1, le=1000)
    cursor: str = ""


class RangeFilters(Schema):
    """A range of time; without `from` the last so long."""

    start: Name = Field("", alias="from")
    end: Name = Field("", alias="to")
    last: Name = "1h"

    def time_range(self, now_ms: int) -> TimeRange:
        """Return the range; raises a 400 that names what in it is wrong."""
        try:
            return read_time_range(self.start, self.end, self.last, now_ms=now_ms)
        except InvalidTimeRange as error:
            raise HttpError(400, str(error)) from None


class ShortListFilters(ListFilters):
    """The same of items that cost more."""

    limit: int = Field(100, ge=1, le=500)


class Listing(Schema):
    """The fields of every list beside its items."""

    next: str | None
    as_of: str | None
    gaps: list[Gap]


def refuse_range(request: HttpRequest, noun: str) -> None:
    """Refuse `from` and `to` for a list of what is known as of now: an answer would not be of that range."""
    if {"from", "to"} & request.GET.keys():
        raise HttpError(
            400,
            f"from, to: {noun} are listed as of now, without history; "
            "ask /api/v1/events or /api/v1/transitions for what happened in a range.",
        )


def format_iso(ms: int | None) -> str | None:
    """Return an instant as `2026-11-21T12:16:07.412Z`, None for none."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_moment(moment: datetime | None) -> str | None:
    """Return what `format_iso` does, of a datetime."""
    return None if moment is None else format_iso(instant_ms(moment))


def instant_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; an instant without a zone is UTC."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def gap_schema(row: GapRecord) -> Gap:
    """Return a gap as its schema."""
    return Gap(
        cluster=row.cluster.name,
        source=row.source,
        scope=row.scope,
        since=format_iso(row.since_ms) or "",
        until=format_iso(row.until_ms),
        reason=row.reason,
        count=row.count,
    )


def visibility_fields(seen: AnswerVisibility) -> dict[str, object]:
    """Return `as_of` and `gaps` of a list."""
    return {"as_of": format_iso(seen.as_of_ms), "gaps": [gap_schema(row) for row in seen.gaps]}
