"""Schemas and types that several routers share, and cursors: the place where a list continues, as opaque
text. Times are ISO 8601 UTC with milliseconds, durations end in `_ms` or `_s`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self, TypeAlias, TypeVar

from django.http import Http404
from django.urls import register_converter
from django.urls.converters import StringConverter
from ninja import Schema
from ninja.errors import HttpError
from pydantic import BeforeValidator, Field, create_model

from dashboard.actions.offers import Offer, available_offers
from dashboard.runtime.collector_names import TRANSACTIONS
from dashboard.runtime.criteria import Name as Name
from dashboard.runtime.visibility import AnswerVisibility, noun_visibility
from fenceline.history.time_range import InvalidTimeRange, TimeRange, read_time_range
from fenceline.plans.plan import Act
from fenceline.series import histograms
from fenceline.series.histograms import Histogram

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The year 10000, which has no ISO form.
END_OF_TIME_MS = 253_402_300_800_000
Row = TypeVar("Row")


def format_iso(ms: int | None) -> str | None:
    """Return an instant as `2026-11-21T12:16:07.412Z`; None for None."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; an instant without a zone is UTC."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _iso_of(value: object) -> object:
    if isinstance(value, datetime):
        return format_iso(instant_ms(value))
    return format_iso(value) if isinstance(value, int) else value


#: A row's instant (ms since 1970, or a datetime) as ISO 8601; None stays None in an optional field.
Instant: TypeAlias = Annotated[str, BeforeValidator(_iso_of)]


class Gap(Schema):
    """A part of the cluster that a source could not observe for a time."""

    cluster: str = Field(validation_alias="cluster.name")
    source: str
    scope: str
    since: Instant = Field(validation_alias="since_ms")
    until: Instant | None = Field(validation_alias="until_ms")
    reason: str
    count: int


class ListFilters(Schema):
    """Page size and cursor of a list; a list's own criteria extend it."""

    limit: int = Field(100, ge=1, le=1000)
    cursor: str = ""


class RangeFilters(Schema):
    """A range of time; without `from` it is the duration `last` up to now."""

    start: Name = Field("", alias="from")
    until: Name = Field("", alias="to")
    last: Name = "1h"

    def time_range(self, now_ms: int) -> TimeRange:
        """Return the range; raises a 400 that says why it is invalid."""
        try:
            return read_time_range(self.start, self.until, self.last, now_ms=now_ms)
        except InvalidTimeRange as error:
            raise HttpError(400, str(error)) from None


class ShortListFilters(ListFilters):
    """Page size and cursor of a list whose items cost more to read."""

    limit: int = Field(100, ge=1, le=500)


class Listing(Schema):
    """The fields of every list beside its items."""

    next: str | None
    as_of: str | None
    gaps: list[Gap]


def list_of(item: type[Schema]) -> type[Listing]:
    """Return the schema of a list of items, with their name: `AlertList` for `AlertOut`."""
    name = f"{item.__name__.removesuffix('Out')}List"
    items = list[item]  # type: ignore[valid-type]
    return create_model(name, __base__=Listing, __module__=item.__module__, items=(items, ...))


def list_answer(
    rows: object, following: str | None, cluster: str = "", noun: str = TRANSACTIONS
) -> dict[str, object]:
    """Return a page of a list, the cursor of the next page, and how far the noun was observed."""
    return {"items": rows, "next": following, **visibility_fields(noun_visibility(cluster, noun))}


def add_fields(row: Row, **values: object) -> Row:
    """Set attributes on a row that its schema reads beside the columns; they are read for many rows at once.

    Raises TypeError for the name of a reverse relation.
    """
    for name, value in values.items():
        setattr(row, name, value)
    return row


def known(row: Row | None, unknown: str) -> Row:
    """Return a row; raises a 404 with the text `unknown` for None."""
    if row is None:
        raise Http404(unknown)
    return row


def visibility_fields(seen: AnswerVisibility) -> dict[str, object]:
    return {"as_of": format_iso(seen.as_of_ms), "gaps": seen.gaps}


class AnyText(StringConverter):
    """An id in a path, percent-decoded: any text, also the line breaks that `path` does not match."""

    regex = r"[\s\S]+"


register_converter(AnyText, "text")


class OwnerOut(Schema):
    """The owner, from the configuration's `[[owners]]`; fields that it omits are empty."""

    team: str
    contact: str
    runbook: str


def _quantile_ms(times: Histogram, share: float) -> int | None:
    duration_ms = histograms.quantile(times, share)
    return None if duration_ms is None else round(duration_ms)


class Durations(Schema):
    """Durations of commits, accurate to a sixteenth; null without commits."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None

    resolve_count = staticmethod(lambda times: sum(times.values()))
    resolve_p50_ms = staticmethod(lambda times: _quantile_ms(times, 0.5))
    resolve_p95_ms = staticmethod(lambda times: _quantile_ms(times, 0.95))
    resolve_p99_ms = staticmethod(lambda times: _quantile_ms(times, 0.99))


class BlockerOut(Schema):
    """A transaction that a group waits for.

    `pending`: the transaction holds the group's own pending commit. `certain` is false for one of several
    candidates.
    """

    transactional_id: str
    producer_id: int | None
    producer_epoch: int | None
    start_offset: int | None
    pending: bool
    certain: bool


class OfferOut(Schema):
    """An act that the planner would not refuse: the `act` and a subject of `POST /api/v1/actions/plan`."""

    act: Act
    subject: str

    @classmethod
    def from_offers(cls, offers: Sequence[Offer]) -> list[Self]:
        """Return the offers that the planners do not refuse, one for each subject."""
        return [
            cls(act=offer.act, subject=subject)
            for offer in available_offers(offers)
            for subject in offer.subjects
        ]


#: The numbers in a cursor are below this: a database stores no larger ones.
_MOST = 2**63
Place = tuple[int | str, ...]


def encode_cursor(of: str, *after: int | str) -> str:
    """Return a cursor of the list `of` that continues after the row at the place `after`."""
    return base64.urlsafe_b64encode(json.dumps([of, *after]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, of: str, like: tuple[type[int | str], ...]) -> Place | None:
    """Return the place in a cursor of this list, as values of the types `like`; None without a cursor.

    Any other cursor raises a 400: another list's cursor would silently continue at the wrong place.
    """
    if not cursor:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or [type(value) for value in values] != [str, *like]:
        raise _wrong_cursor()
    if values[0] != of or not all(map(_is_storable, values)):
        raise _wrong_cursor()
    return tuple(values[1:])


def read_number(cursor: str, of: str) -> int | None:
    """Return the number in a cursor of the list `of`; None without a cursor."""
    place = decode_cursor(cursor, of, (int,))
    return None if place is None else int(place[0])


def by_key(row: Any) -> Place:
    """Return a row's place in a list ordered by primary key."""
    return (row.pk,)


def cut_page(
    of: str, rows: Sequence[Row], limit: int, place: Callable[[Row], Place] = by_key
) -> tuple[Sequence[Row], str | None]:
    """Return the first `limit` rows, and a cursor after them if there are more."""
    more = len(rows) > limit
    return rows[:limit], encode_cursor(of, *place(rows[limit - 1])) if more else None


def _is_storable(value: int | str) -> bool:
    return value.isprintable() if isinstance(value, str) else 0 <= value < _MOST


def _wrong_cursor() -> HttpError:
    return HttpError(400, "cursor: not one of this list; use the 'next' of the page before.")
