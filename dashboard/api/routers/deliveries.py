"""`/api/v1/deliveries`: every message, each try with what was answered; sending one again."""

from __future__ import annotations

from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError

from dashboard.alerts import deliver
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.notify import notify_pages
from dashboard.api import cursors, schemas
from dashboard.api.permissions import require_permission
from dashboard.models import Delivery
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import ALERTS
from dashboard.system import access

router = Router(tags=["deliveries"])

State = Literal["pending", "delivered", "failed"]
Origin = Literal["alert", "test", "again"]


class TryOut(Schema):
    """One try, without secrets: what was sent, and the beginning of what was answered.

    `status` is null and `error` the reason where no answer came; `address` is the one that was connected to.
    """

    at: str | None
    took_ms: int | None
    url: str
    request_headers: dict[str, str]
    status: int | None
    headers: dict[str, str]
    body: str
    address: str
    error: str


class DeliveryOut(Schema):
    """One message to one channel; `message_id` is the same for each try and whenever it is sent again.

    `firing` and `resolved` count the alerts in it, `next_try_at` is null unless it is to be tried.
    """

    id: int
    channel_id: int
    channel: str
    origin: Origin
    state: State
    message_id: str
    group_key: str
    reason: str
    firing: int
    resolved: int
    attempts: int
    created_at: str | None
    next_try_at: str | None
    ended_at: str | None
    error: str


class DeliveryDetail(DeliveryOut):
    """The same with the fingerprints of its alerts, its last tries, the oldest first, and its body."""

    firing_alerts: list[str]
    resolved_alerts: list[str]
    tries: list[TryOut]
    payload: Any


class DeliveryList(schemas.Listing):
    items: list[DeliveryOut]


class DeliveryFilters(schemas.ShortListFilters, alert_queries.DeliveryCriteria):
    """The query string of the list; `channel` is a channel's id."""


@router.get("", response=DeliveryList, summary="List deliveries")
def list_deliveries(request: HttpRequest, wanted: Query[DeliveryFilters]) -> dict[str, object]:
    """Deliveries, the newest first."""
    before = cursors.read_number(wanted.cursor, "deliveries")
    found = alert_queries.list_deliveries(wanted, before=before, limit=wanted.limit + 1)
    page, following = cursors.cut_page("deliveries", found, wanted.limit, cursors.by_key)
    return {
        "items": [DeliveryOut(**delivery_summary(row)) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility("", ALERTS)),
    }


@router.get("/{int:number}", response=DeliveryDetail, summary="One delivery")
def get_delivery(request: HttpRequest, number: int) -> DeliveryDetail:
    """One delivery by its id, with its tries and its body."""
    return delivery_detail(_found(number))


@router.post("/{int:number}/again", response={201: DeliveryOut}, summary="Send a delivery again")
def send_again(request: HttpRequest, number: int) -> Status[DeliveryOut]:
    """Have a message sent once more, with the same message id; needs the role operator."""
    require_permission(request, access.SEND)
    try:
        row = deliver.send_again(_found(number))
    except deliver.CannotSend as error:
        raise HttpError(409, str(error)) from error
    notify_pages()
    return Status(201, DeliveryOut(**delivery_summary(row)))


def delivery_summary(row: Delivery) -> dict[str, Any]:
    """Return the fields of a delivery in a list."""
    return {
        "id": row.pk,
        "channel_id": row.channel_id,
        "channel": row.channel.name,
        "origin": row.origin,
        "state": row.state,
        "message_id": row.message_id,
        "group_key": row.group_key,
        "reason": row.reason,
        "firing": len(row.held.get("firing", ())),
        "resolved": len(row.held.get("resolved", ())),
        "attempts": row.attempts,
        "created_at": schemas.format_moment(row.created_at),
        "next_try_at": schemas.format_moment(row.next_at) if row.state == Delivery.State.PENDING else None,
        "ended_at": schemas.format_moment(row.ended_at),
        "error": row.error,
    }


def delivery_detail(row: Delivery) -> DeliveryDetail:
    """Return a delivery with its attempts and its body."""
    return DeliveryDetail(
        **delivery_summary(row),
        firing_alerts=row.held.get("firing", []),
        resolved_alerts=row.held.get("resolved", []),
        tries=[_try(each) for each in row.tries],
        payload=row.payload,
    )


def _try(each: dict[str, Any]) -> TryOut:
    request = each.get("request") or {}
    return TryOut(
        at=schemas.format_iso(each.get("at_ms")),
        took_ms=each.get("ms"),
        url=request.get("url") or "",
        request_headers=request.get("headers") or {},
        status=each.get("status"),
        headers=each.get("headers") or {},
        body=each.get("body") or "",
        address=each.get("address") or "",
        error=each.get("error") or "",
    )


def _found(number: int) -> Delivery:
    row = alert_queries.find_delivery(number)
    if row is None:
        raise Http404(f"No delivery {number} is known.")
    return row
