"""`/api/v1/deliveries`: messages, and each try with its response; send a message again."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboard.alerts import deliver
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.deliver import notify_pages
from dashboard.api import cursors, schemas
from dashboard.api.permissions import require_permission
from dashboard.models import Delivery
from dashboard.runtime.collector_names import ALERTS
from dashboard.system import access

router = Router(tags=["deliveries"])

State = Literal["pending", "delivered", "failed"]
Origin = Literal["alert", "test", "again"]


class TryOut(Schema):
    """A try without secrets: the request, and the beginning of the response.

    Without a response `status` is null and `error` the reason. `address` is the IP address of the connection.
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
    """A message to a channel; `message_id` stays the same for every try, also when it is sent again.

    `firing` and `resolved` count its alerts. `next_try_at` is null unless another try is due.
    """

    id: int
    channel_id: int
    channel: str = Field(validation_alias="channel.name")
    origin: Origin
    state: State
    message_id: str
    group_key: str
    reason: str
    firing: int
    resolved: int
    attempts: int
    created_at: schemas.Instant | None
    next_try_at: schemas.Instant | None
    ended_at: schemas.Instant | None
    error: str

    @staticmethod
    def resolve_firing(row: Delivery) -> int:
        return len(row.held.get("firing", ()))

    @staticmethod
    def resolve_resolved(row: Delivery) -> int:
        return len(row.held.get("resolved", ()))

    @staticmethod
    def resolve_next_try_at(row: Delivery) -> datetime | None:
        return row.next_at if row.state == Delivery.State.PENDING else None


class DeliveryDetail(DeliveryOut):
    """A delivery with the fingerprints of its alerts, its last tries (oldest first), and its body."""

    firing_alerts: list[str]
    resolved_alerts: list[str]
    tries: list[TryOut]
    payload: Any

    @staticmethod
    def resolve_firing_alerts(row: Delivery) -> object:
        return row.held.get("firing", [])

    @staticmethod
    def resolve_resolved_alerts(row: Delivery) -> object:
        return row.held.get("resolved", [])

    @staticmethod
    def resolve_tries(row: Delivery) -> object:
        return list(map(_try, row.tries))


class DeliveryList(schemas.Listing):
    items: list[DeliveryOut]


class DeliveryFilters(schemas.ShortListFilters, alert_queries.DeliveryCriteria):
    """The query string of the list; `channel` is a channel's id."""


@router.get("", response=DeliveryList, summary="List deliveries")
def list_deliveries(request: HttpRequest, wanted: Query[DeliveryFilters]) -> dict[str, object]:
    """Deliveries, newest first."""
    before = cursors.read_number(wanted.cursor, "deliveries")
    rows = alert_queries.list_deliveries(wanted, before=before, limit=wanted.limit + 1)
    return schemas.list_answer(*cursors.cut_page("deliveries", rows, wanted.limit), noun=ALERTS)


@router.get("/{int:number}", response=DeliveryDetail, summary="One delivery")
def get_delivery(request: HttpRequest, number: int) -> Delivery:
    """Return a delivery by its id, with its tries and its body."""
    return _known(number)


@router.post("/{int:number}/again", response={201: DeliveryOut}, summary="Send a delivery again")
def send_again(request: HttpRequest, number: int) -> Status[Delivery]:
    """Send a message once more, with the same message id; needs the role operator."""
    require_permission(request, access.SEND)
    try:
        row = deliver.send_again(_known(number))
    except deliver.CannotSend as error:
        raise HttpError(409, str(error)) from error
    notify_pages()
    return Status(201, row)


def _try(attempt: dict[str, Any]) -> TryOut:
    request = attempt.get("request") or {}
    return TryOut(
        at=schemas.format_iso(attempt.get("at_ms")),
        took_ms=attempt.get("ms"),
        url=request.get("url") or "",
        request_headers=request.get("headers") or {},
        status=attempt.get("status"),
        headers=attempt.get("headers") or {},
        body=attempt.get("body") or "",
        address=attempt.get("address") or "",
        error=attempt.get("error") or "",
    )


def _known(number: int) -> Delivery:
    return schemas.known(alert_queries.find_delivery(number), f"No delivery {number} is known.")
