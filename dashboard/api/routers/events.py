"""`/api/v1/events` and `/api/v1/transitions`: the events of every source in a range of time; state changes of
transactional ids, with their evidence.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.api import schemas
from dashboard.history import events as event_queries
from dashboard.history import queries as history_queries
from dashboard.models import Action
from dashboard.runtime import visibility
from dashboard.runtime.criteria import Ranged
from dashboard.transactions import attributions
from fenceline.facts import Confidence, Transition, TransitionKind
from fenceline.history.timeline import EventPlace, EventSource
from fenceline.plans.plan import Act
from fenceline.text import explain_transition

router = Router(tags=["events"])


class EventOut(Schema):
    """An event.

    `what` is a term of its source, such as a transition's kind or a finding's `opened`. `subject` is
    `kind:name`. `number` is that of the incident, alert, delivery, action or recovery, else null. `count` is
    set for routine transitions: the number of one kind in an application in the minute that starts at `at`.
    """

    at: schemas.Instant | None = Field(validation_alias="at_ms")
    source: EventSource
    what: str
    cluster: str
    subject: str
    application: str
    severity: str
    confidence: Confidence | Literal[""]
    text: str
    number: int | None
    count: int | None

    resolve_number = staticmethod(lambda event: event.number or None)
    resolve_count = staticmethod(lambda event: event.count or None)


class EventList(schemas.Listing):
    """Events of `from` ≤ t < `to`, newest first.

    `gaps` are the gaps in the range. `kept_since` names each source whose older events are deleted.
    """

    items: list[EventOut]
    range_from: str | None = Field(serialization_alias="from")
    range_to: str | None = Field(serialization_alias="to")
    kept_since: dict[EventSource, str | None]


class EventFilters(schemas.ListFilters, event_queries.EventCriteria, schemas.RangeFilters):
    """The query string of the list; without `from` the range is the duration `last` up to now."""


@router.get("", response=EventList, by_alias=True, summary="List events of a range of time")
def list_events(request: HttpRequest, wanted: Query[EventFilters]) -> dict[str, object]:
    """Events in a range, newest first. Routine transitions are folded unless `unfolded`.

    Give `from` and `to` with a cursor, because the range of `last` moves. A page with a `next` may have fewer
    than `limit` items.
    """
    now_ms = time.time_ns() // 1_000_000
    shown = wanted.time_range(now_ms)
    place = schemas.decode_cursor(wanted.cursor, "events", (int, int, int))
    before = None if place is None else EventPlace(*map(int, place))
    page = event_queries.newest_events(wanted, shown, before=before, limit=wanted.limit)
    cut = event_queries.sources_cut(shown, settings.FENCELINE.retention, now_ms=now_ms)
    return {
        "items": page.items,
        "next": None if page.next is None else schemas.encode_cursor("events", *page.next),
        "range_from": schemas.format_iso(shown.from_ms),
        "range_to": schemas.format_iso(shown.to_ms),
        "kept_since": {source: schemas.format_iso(since_ms) for source, since_ms in cut.items()},
        "as_of": schemas.format_iso(visibility.noun_visibility(wanted.cluster).as_of_ms),
        "gaps": event_queries.gaps_within(wanted.cluster, shown),
    }


transitions_router = Router(tags=["transitions"])

#: The kinds that are stored as rows; a transaction's `recent` has the other ones.
NotableKind = Literal[
    "client_abort", "timeout", "takeover", "reinit", "self_recovery", "admin_fence", "admin_abort",
    "rotation", "empty_abort", "abort", "expiry",
]  # fmt: skip

#: The list names in the cursors of the two orders: a cursor of one order is invalid in the other.
_NEWEST, _BY_REVISION = "transitions-newest", "transitions-told"


class ActionRef(Schema):
    """An action of Fenceline, `/api/v1/actions/{id}`, and the user who executed it."""

    id: int
    act: Act
    executed_by: str


class Fact(Schema):
    """A state change of an id; `at` is by the coordinator's clock, `open_ms` runs from begin to decision.

    `action` is the action of Fenceline that caused it, by the coordinator's answer; else null.
    """

    kind: TransitionKind
    confidence: Confidence
    evidence: str
    at: schemas.Instant | None = Field(validation_alias="at_ms")
    completed_at: schemas.Instant | None = Field(validation_alias="completed_ms")
    producer_id: int
    producer_epoch: int
    previous_epoch: int | None
    timeout_ms: int
    open_ms: int | None
    partition: int
    offset: int
    action: ActionRef | None


class TransitionOut(Fact):
    """A notable transition; `revised_from` is its first classification, null if never revised."""

    partition: int = Field(validation_alias="log_partition")
    offset: int = Field(validation_alias="log_offset")
    rev: int
    cluster: str = Field(validation_alias="cluster.name")
    transactional_id: str
    application: str
    revised_at: schemas.Instant | None = Field(validation_alias="revised_ms")
    revised_from: TransitionKind | None

    resolve_evidence = staticmethod(history_queries.verdict_evidence)
    resolve_revised_from = staticmethod(lambda row: row.revised_from or None)


class TransitionFilters(Ranged):
    """The query string of the list; `since` is an older name of `from`."""

    cluster: schemas.Name = ""
    #: Only transitions derived or revised after this revision of the cluster, in that order.
    since_rev: int | None = Field(None, ge=0, lt=2**63)
    since: datetime | None = None
    kind: NotableKind | Literal[""] = ""
    confidence: Literal["", "certain", "probable", "ambiguous"] = ""
    application: schemas.Name = ""
    transactional_id: schemas.Name = ""
    limit: int = Field(100, ge=1, le=1000)
    cursor: str = ""


@transitions_router.get("", response=schemas.list_of(TransitionOut), summary="List transitions")
def list_transitions(request: HttpRequest, wanted: Query[TransitionFilters]) -> dict[str, object]:
    """Notable transitions, newest first; with `since_rev` in the order in which they were derived or revised.

    A page with a `next` may have fewer than `limit` items, because one request searches 10,000 transitions.
    """
    matching = _filter(wanted)
    order = _NEWEST if wanted.since_rev is None else _BY_REVISION
    place = schemas.decode_cursor(wanted.cursor, order, (int, int))
    if wanted.since_rev is None:
        end = None if wanted.to_ms is None else (wanted.to_ms, 0)
        before = end if place is None else (int(place[0]), int(place[1]))
        page = history_queries.newest_transitions(matching, limit=wanted.limit, before=before)
    else:
        rev, row = place or (wanted.since_rev, 0)
        page = history_queries.transitions_since(
            matching, since_rev=int(rev), after=int(row), limit=wanted.limit
        )
    following = None if page.next is None else schemas.encode_cursor(order, *page.next)
    return schemas.list_answer(page.items, following, wanted.cluster)


def recent_facts(recent: Sequence[Transition], actions: Sequence[Action | None]) -> Sequence[dict[str, Any]]:
    """Return the fields of `Fact` for transitions without rows, each with the action that caused it."""
    return [
        {
            **fact._asdict(),
            "evidence": explain_transition(fact, attributions.action_words(action)),
            "action": action,
        }
        for fact, action in zip(recent, actions, strict=True)
    ]


def _filter(wanted: TransitionFilters) -> history_queries.HistoryCriteria:
    cluster = wanted.cluster
    if wanted.since_rev is not None and not cluster:
        names = [row.name for row in visibility.configured_clusters()]
        if len(names) > 1:
            raise HttpError(400, f"since_rev: name the cluster whose revision it is: {', '.join(names)}.")
        cluster = names[0] if names else ""
    return history_queries.HistoryCriteria(
        cluster=cluster,
        kinds=(TransitionKind(wanted.kind),) if wanted.kind else (),
        confidence=wanted.confidence,
        application=wanted.application,
        transactional_id=wanted.transactional_id,
        since_ms=schemas.instant_ms(wanted.since) if wanted.since else wanted.from_ms,
        until_ms=wanted.to_ms,
    )
