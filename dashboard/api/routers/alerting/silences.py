"""`/api/v1/silences`: list, make and end silences, which suppress the notification of alerts."""

from datetime import datetime
from functools import partial
from typing import Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from dashboard.alerts import queries as alert_queries
from dashboard.alerts import silences, validation
from dashboard.api import cursors, schemas
from dashboard.api.known_names import Body
from dashboard.api.permissions import (
    KeptMatchers,
    Matchers,
    Text,
    invalid_fields,
    read_matchers,
    require_permission,
)
from dashboard.models import Silence
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ALERTS
from dashboard.system import access

router = Router(tags=["silences"])

State = Literal["active", "scheduled", "expired"]
#: The silence's own check rejects long durations with a reason; this limit prevents an overflow before it.
_LONGEST_S = 1e9


class SilenceOut(Schema):
    """A silence: alerts that match all of its matchers are not notified between its start and its end.

    `ended_by` is the user who ended it early, or "".
    """

    id: int
    state: State
    matchers: KeptMatchers
    starts_at: schemas.Instant | None = Field(validation_alias="starts_ms")
    ends_at: schemas.Instant | None = Field(validation_alias="ends_ms")
    reason: str
    created_by: str
    created_at: schemas.Instant | None
    ended_by: str

    @staticmethod
    def resolve_state(row: Silence) -> State:
        return alert_queries.state_of(row, now_ms=loop.now_ms())


class SilenceIn(Body):
    """A new silence from `starts_at` (default: now) until `ends_at`, or for `duration_s` seconds."""

    matchers: Matchers
    reason: Text
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    duration_s: float | None = Field(None, gt=0, le=_LONGEST_S)


class SilenceList(schemas.Listing):
    items: list[SilenceOut]


class SilenceFilters(Schema):
    """The query string of the list."""

    state: Literal["active", "scheduled", "expired", "all"] = "all"
    limit: int = Field(100, ge=1, le=500)
    cursor: str = ""


@router.get("", response=SilenceList, summary="List silences")
def list_silences(request: HttpRequest, wanted: Query[SilenceFilters]) -> dict[str, object]:
    """Silences, newest first, also expired ones."""
    now_ms, before = loop.now_ms(), cursors.read_number(wanted.cursor, "silences")
    rows = alert_queries.silences_before(before, wanted.state, limit=wanted.limit + 1, now_ms=now_ms)
    return schemas.list_answer(*cursors.cut_page("silences", rows, wanted.limit), noun=ALERTS)


@router.post("", response={201: SilenceOut}, summary="Make a silence")
def make_silence(request: HttpRequest, asked: SilenceIn) -> Status[Silence]:
    """Suppress the notification of matching alerts; needs the role operator."""
    actor = require_permission(request, access.SILENCE)
    draft = silences.SilenceDraft(
        matchers=partial(read_matchers, asked.matchers),
        reason=asked.reason,
        starts=lambda: _ms(asked.starts_at),
        ends=lambda: _ms(asked.ends_at),
        lasts_ms=None if asked.duration_s is None else int(asked.duration_s * 1_000),
    )
    try:
        row = silences.create_silence(draft, by=actor.name, now_ms=loop.now_ms())
    except validation.Unfit as error:
        raise invalid_fields(error) from error
    return Status(201, row)


@router.get("/{int:number}", response=SilenceOut, summary="One silence")
def get_silence(request: HttpRequest, number: int) -> Silence:
    """Return a silence by its id."""
    return _known(number)


@router.delete("/{int:number}", response=SilenceOut, summary="End a silence")
def end_silence(request: HttpRequest, number: int) -> Silence:
    """End a silence now; it stays in the list. Needs the role operator."""
    actor, row = require_permission(request, access.SILENCE), _known(number)
    silences.end_silence(row, by=actor.name, now_ms=loop.now_ms())
    return _known(number)


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else schemas.instant_ms(moment)


def _known(number: int) -> Silence:
    return schemas.known(alert_queries.find_silence(number), f"No silence {number} is known.")
