"""`/api/v1/alerts`: alerts, and the reason why each was notified or not."""

from collections.abc import Sequence
from typing import Literal, Self

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.alerts import queries as alert_queries
from dashboard.api import cursors, schemas
from dashboard.models import Alert, Delivery
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ALERTS
from fenceline.facts import Severity

router = Router(tags=["alerts"])
_CHANGES = 100


class QuietOut(Schema):
    """A reason against notifying; `by` is the number of a silence or an alert, a channel's name, or ""."""

    kind: str
    by: str
    words: str


class FateOut(Schema):
    """The outcome for one channel: a delivery and its state, or the reason (`why`) for no delivery."""

    channel_id: int | None
    channel: str
    delivery_id: int | None
    delivery_state: Delivery.State | Literal[""]
    why: str

    @classmethod
    def from_fate(cls, fate: alert_queries.NotificationOutcome) -> Self:
        """Return the outcome for a channel as its schema."""
        channel, delivery = fate.channel, fate.delivery
        return cls(
            channel_id=channel.pk if channel else None,
            channel=channel.name if channel else "",
            delivery_id=delivery.pk if delivery else None,
            delivery_state=Delivery.State(delivery.state) if delivery else "",
            why=fate.why,
        )


class ChangeOut(Schema):
    """A change of an alert's state; `settled` once the notification is decided for every channel."""

    id: int = Field(validation_alias="of.pk")
    old: str = Field(validation_alias="of.old")
    new: Alert.State = Field(validation_alias="of.new")
    at: schemas.Instant | None = Field(validation_alias="of.at_ms")
    settled: bool = Field(validation_alias="is_settled")
    fates: list[FateOut]

    @staticmethod
    def resolve_fates(change: alert_queries.DecidedChange) -> object:
        return list(map(FateOut.from_fate, change.fates))


class AlertOut(Schema):
    """An alert: all findings of one rule, cluster and subject over time are the same alert.

    `quiet` are the reasons why nobody is notified now. `told` are the channels that were notified that the
    alert fires. `/rules/{rule}` explains its rule.
    """

    id: int
    fingerprint: str
    rule: str
    cluster: str = Field(validation_alias="cluster.name")
    subject: str
    severity: Severity
    state: Alert.State
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    fired_at: schemas.Instant | None = Field(validation_alias="fired_ms")
    resolved_at: schemas.Instant | None = Field(validation_alias="resolved_ms")
    flapping_since: schemas.Instant | None = Field(validation_alias="flapping_ms")
    labels: dict[str, str]
    annotations: dict[str, str]
    affected: list[str]
    quiet: list[QuietOut]
    told: list[FateOut] = Field(validation_alias="notified")
    rev: int

    @staticmethod
    def resolve_fingerprint(row: Alert) -> str:
        return bytes(row.fingerprint).hex()

    @staticmethod
    def resolve_quiet(row: Alert) -> object:
        return [{"kind": kind, "by": by.removeprefix("#"), "words": words} for kind, by, words in row.quiet]


class AlertDetail(AlertOut):
    """An alert with its last hundred changes, newest first."""

    changes: list[ChangeOut]

    @staticmethod
    def resolve_changes(row: Alert) -> object:
        return alert_queries.alert_changes(row, limit=_CHANGES)


class AlertList(schemas.Listing):
    items: list[AlertOut]


class AlertFilters(schemas.ShortListFilters, alert_queries.AlertCriteria):
    """The query string of the list.

    `voice`: quiet alerts are those whose notification is suppressed; `q` is a part of a subject or a rule.
    """

    state: Literal["active", "firing", "pending", "resolved", "all"] = "active"


@router.get("", response=AlertList, summary="List alerts")
def list_alerts(request: HttpRequest, wanted: Query[AlertFilters]) -> dict[str, object]:
    """Alerts, newest first; without `state` the firing and pending ones."""
    before = cursors.read_number(wanted.cursor, "alerts")
    rows = alert_queries.alerts_before(before, wanted, limit=wanted.limit + 1, now_ms=loop.now_ms())
    page, following = cursors.cut_page("alerts", rows, wanted.limit)
    return schemas.list_answer(_with_notified(page), following, wanted.cluster, ALERTS)


@router.get("/{int:number}", response=AlertDetail, summary="One alert")
def get_alert(request: HttpRequest, number: int) -> Alert:
    """Return an alert by its id, with its changes and the outcome of each for the channels."""
    row = schemas.known(alert_queries.find_alert(number), f"No alert {number} is known.")
    return _with_notified([row])[0]


def _with_notified(rows: Sequence[Alert]) -> Sequence[Alert]:
    """Return rows with the channels last notified of each alert, read for all rows at once."""
    notified = alert_queries.last_notifications(rows)
    for row in rows:
        schemas.add_fields(row, notified=list(map(FateOut.from_fate, notified[row.pk])))
    return rows
