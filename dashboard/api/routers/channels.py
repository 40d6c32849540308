"""`/api/v1/channels` and `/api/v1/deliveries`: receivers of notifications; messages, each try with its
response.

A channel's secret is returned only when it is made.
"""

from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboard.alerts import channels, deliver, validation
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.deliver import notify_pages
from dashboard.api import schemas
from dashboard.api.auth import require_permission
from dashboard.api.problems import Body
from dashboard.api.routers.alerts import KeptMatchers, Matchers, Text, read_matchers
from dashboard.models import Channel, Delivery
from dashboard.runtime.collector_names import ALERTS
from dashboard.system import access
from fenceline.alerts import redact

deliveries_router = Router(tags=["deliveries"])

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

    resolve_firing = staticmethod(lambda row: len(row.held.get("firing", ())))
    resolve_resolved = staticmethod(lambda row: len(row.held.get("resolved", ())))

    @staticmethod
    def resolve_next_try_at(row: Delivery) -> datetime | None:
        return row.next_at if row.state == Delivery.State.PENDING else None


class DeliveryDetail(DeliveryOut):
    """A delivery with the fingerprints of its alerts, its last tries (oldest first), and its body."""

    firing_alerts: list[str]
    resolved_alerts: list[str]
    tries: list[TryOut]
    payload: Any

    resolve_firing_alerts = staticmethod(lambda row: row.held.get("firing", []))
    resolve_resolved_alerts = staticmethod(lambda row: row.held.get("resolved", []))
    resolve_tries = staticmethod(lambda row: list(map(_try, row.tries)))


class DeliveryFilters(schemas.ShortListFilters, alert_queries.DeliveryCriteria):
    """The query string of the list; `channel` is a channel's id."""


@deliveries_router.get("", response=schemas.list_of(DeliveryOut), summary="List deliveries")
def list_deliveries(request: HttpRequest, wanted: Query[DeliveryFilters]) -> dict[str, object]:
    """Deliveries, newest first."""
    before = schemas.read_number(wanted.cursor, "deliveries")
    rows = alert_queries.list_deliveries(wanted, before=before, limit=wanted.limit + 1)
    return schemas.list_answer(*schemas.cut_page("deliveries", rows, wanted.limit), noun=ALERTS)


@deliveries_router.get("/{int:number}", response=DeliveryDetail, summary="One delivery")
def get_delivery(request: HttpRequest, number: int) -> Delivery:
    """Return a delivery by its id, with its tries and its body."""
    return _known_delivery(number)


@deliveries_router.post("/{int:number}/again", response={201: DeliveryOut}, summary="Send a delivery again")
def send_again(request: HttpRequest, number: int) -> Status[Delivery]:
    """Send a message once more, with the same message id; needs the role operator."""
    require_permission(request, access.SEND)
    row = deliver.send_again(_known_delivery(number))
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


def _known_delivery(number: int) -> Delivery:
    return schemas.known(alert_queries.find_delivery(number), f"No delivery {number} is known.")


router = Router(tags=["channels"])


class ChannelOut(Schema):
    """A channel; `url` has no secrets, and waits are null if they are the defaults of `[alerts]`.

    `signs`: messages are signed as Standard Webhooks; `two_secrets`: the old secret signs them as well.
    `failures` counts consecutive rejected messages. `disabled_why` is "" while the channel is enabled.
    """

    id: int
    name: str
    kind: str
    url: str
    signs: bool
    two_secrets: bool
    min_severity: str
    matchers: KeptMatchers
    group_by: list[str]
    group_wait_s: float | None
    group_interval_s: float | None
    repeat_interval_s: float | None
    send_resolved: bool
    enabled: bool
    failures: int
    disabled_at: schemas.Instant | None
    disabled_why: str
    created_by: str
    created_at: schemas.Instant | None

    resolve_url = staticmethod(lambda row: redact.redact_url(row.url))
    resolve_signs = staticmethod(lambda row: bool(row.secret))
    resolve_two_secrets = staticmethod(lambda row: bool(row.old_secret))


class ChannelMade(ChannelOut):
    """A new channel with its secret, which is returned only here; "" if its kind does not sign messages."""

    secret: str


class SecretOut(Schema):
    """A new secret, returned only here; the old secret also signs until it is ended."""

    secret: str


class ChannelPatch(Body):
    """Fields to change; omitted fields keep their value. `enabled` enables or disables the channel."""

    name: Text | None = None
    url: Text | None = None
    min_severity: Text | None = None
    matchers: Matchers | None = None
    group_by: list[str] | None = Field(None, max_length=100)
    group_wait_s: float | None = None
    group_interval_s: float | None = None
    repeat_interval_s: float | None = None
    send_resolved: bool | None = None
    enabled: bool | None = None


class ChannelIn(ChannelPatch):
    """A new channel; `kind` is webhook, alertmanager or apprise."""

    name: Text
    kind: Text
    url: Text


@router.get("", response=schemas.list_of(ChannelOut), summary="List channels")
def list_channels(request: HttpRequest, wanted: Query[schemas.ShortListFilters]) -> dict[str, object]:
    """All channels, by name."""
    (place,) = schemas.decode_cursor(wanted.cursor, "channels", (str,)) or ("",)
    # By code point, because a cursor must not depend on a database's collation.
    channel_rows = sorted(alert_queries.list_channels(), key=lambda row: row.name)
    rows = [row for row in channel_rows if row.name > str(place)]
    page = schemas.cut_page("channels", rows, wanted.limit, lambda row: (row.name,))
    return schemas.list_answer(*page, noun=ALERTS)


@router.post("", response={201: ChannelMade}, summary="Add a channel")
def add_channel(request: HttpRequest, asked: ChannelIn) -> Status[Channel]:
    """Add a channel and return it with its secret, which is not returned again. Needs the role admin."""
    actor = require_permission(request, access.CHANNELS)
    row = channels.add(_draft(asked, kind=asked.kind), by=actor.name, enabled=asked.enabled is not False)
    return Status(201, row)


@router.get("/{int:number}", response=ChannelOut, summary="One channel")
def get_channel(request: HttpRequest, number: int) -> Channel:
    """Return a channel by its id."""
    return _known(number)


@router.patch("/{int:number}", response=ChannelOut, summary="Change a channel")
def change_channel(request: HttpRequest, number: int, asked: ChannelPatch) -> Channel:
    """Change the given fields only; needs the role admin."""
    actor, row = require_permission(request, access.CHANNELS), _known(number)
    if asked.model_fields_set - {"enabled"}:
        channels.change(row, _draft(asked, row=row, kind=row.kind))
    if asked.enabled is not None and asked.enabled != row.enabled:
        channels.enable(row) if asked.enabled else channels.disable(row, by=actor.name)
    return _known(number)


@router.delete("/{int:number}", response={204: None}, summary="Delete a channel")
def delete_channel(request: HttpRequest, number: int) -> Status[None]:
    """Delete a channel and its deliveries; needs the role admin."""
    require_permission(request, access.CHANNELS)
    channels.delete(_known(number))
    return Status(204, None)


@router.post("/{int:number}/secret", response={201: SecretOut}, summary="Make a new secret")
def rotate_secret(request: HttpRequest, number: int) -> Status[SecretOut]:
    """Make a new secret; the old one also signs until it is ended. Needs the role admin."""
    require_permission(request, access.CHANNELS)
    try:
        return Status(201, SecretOut(secret=channels.rotate_secret(_known(number))))
    except validation.Unfit as error:
        raise HttpError(409, str(error)) from error


@router.delete("/{int:number}/secret/old", response=ChannelOut, summary="End the old secret")
def end_old_secret(request: HttpRequest, number: int) -> Channel:
    """Sign with the newest secret only; needs the role admin."""
    require_permission(request, access.CHANNELS)
    channels.end_old(_known(number))
    return _known(number)


@router.post("/{int:number}/test", response=DeliveryDetail, summary="Send a test")
def send_test(request: HttpRequest, number: int) -> Delivery:
    """Send a message with a sample alert once, and return the outcome.

    This also works for a disabled channel. It takes up to `[alerts] timeout_s`; needs the role operator.
    """
    require_permission(request, access.SEND)
    return deliver.send_test(_known(number))


def _known(number: int) -> Channel:
    return schemas.known(alert_queries.find_channel(number), f"No channel {number} is known.")


def _draft(asked: ChannelPatch, *, kind: str, row: Channel | None = None) -> channels.ChannelDraft:
    """Return the draft in a request; omitted fields keep their value, or get the default."""
    known = row or Channel(min_severity="warning")
    sent = asked.model_fields_set

    def setting(name: str) -> Any:
        value = getattr(asked, name)
        return getattr(known, name) if name not in sent or (value is None and name not in _WAITS) else value

    matchers = (
        partial(read_matchers, asked.matchers) if asked.matchers is not None else lambda: known.matchers
    )
    return channels.ChannelDraft(
        name=setting("name"),
        kind=kind,
        url=asked.url or "",
        min_severity=setting("min_severity"),
        matchers=matchers,
        group_by=setting("group_by"),
        waits={name: setting(name) for name in _WAITS},
        send_resolved=setting("send_resolved"),
    )


_WAITS = tuple(name for name, *_ in channels.WAITS)
