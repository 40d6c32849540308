"""`/api/v1/alerts`: findings over time, and why each was notified or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from dashboard.alerts import queries as alert_queries
from dashboard.api import cursors, schemas
from dashboard.models import Alert, Delivery
from dashboard.runtime import loop, visibility
from dashboard.runtime.collector_names import ALERTS
from fenceline.facts import Severity

router = Router(tags=["alerts"])
_CHANGES = 100


class QuietOut(Schema):
    """Why nobody is notified: `by` is the number of a silence or an alert, a channel's name, or ""."""

    kind: str
    by: str
    words: str


class FateOut(Schema):
    """What came of it for one channel: a delivery and its state, or `why` there is none."""

    channel_id: int | None
    channel: str
    delivery_id: int | None
    delivery_state: Delivery.State | Literal[""]
    why: str

    @classmethod
    def from_fate(cls, fate: alert_queries.NotificationOutcome) -> FateOut:
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
    """One change; not `settled`: it is not decided for every channel yet."""

    id: int
    old: str
    new: Alert.State
    at: str | None
    settled: bool
    fates: list[FateOut]


class AlertOut(Schema):
    """A finding over time: the same rule, cluster and subject are the same alert, however often it opens.

    `quiet` are the reasons why nobody is notified of it now, `told` the channels that were notified that it
    fires. `/rules/{rule}` explains its rule.
    """

    id: int
    fingerprint: str
    rule: str
    cluster: str
    subject: str
    severity: Severity
    state: Alert.State
    since: str | None
    fired_at: str | None
    resolved_at: str | None
    flapping_since: str | None
    labels: dict[str, str]
    annotations: dict[str, str]
    affected: list[str]
    quiet: list[QuietOut]
    told: list[FateOut]
    rev: int


class AlertDetail(AlertOut):
    """The same with its changes, the newest first, the last hundred of them."""

    changes: list[ChangeOut]


class AlertList(schemas.Listing):
    items: list[AlertOut]


class AlertFilters(schemas.ShortListFilters, alert_queries.AlertCriteria):
    """The query string of the list.

    `voice`: quiet alerts are those whose notification is suppressed; `q` is a part of a subject or a rule.
    """

    state: Literal["active", "firing", "pending", "resolved", "all"] = "active"


@router.get("", response=AlertList, summary="List alerts")
def list_alerts(request: HttpRequest, wanted: Query[AlertFilters]) -> dict[str, object]:
    """Alerts, the newest first; those that fire or are pending unless `state` is given."""
    before = cursors.read_number(wanted.cursor, "alerts")
    found = alert_queries.alerts_before(before, wanted, limit=wanted.limit + 1, now_ms=loop.now_ms())
    page, following = cursors.cut_page("alerts", found, wanted.limit, cursors.by_key)
    notified = alert_queries.last_notifications(page)
    return {
        "items": [AlertOut(**_out(row, notified[row.pk])) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, ALERTS)),
    }


@router.get("/{int:number}", response=AlertDetail, summary="One alert")
def get_alert(request: HttpRequest, number: int) -> AlertDetail:
    """One alert by its id, with its changes and who was notified of each."""
    row = alert_queries.find_alert(number)
    if row is None:
        raise Http404(f"No alert {number} is known.")
    changes = [_change(each) for each in alert_queries.alert_changes(row, limit=_CHANGES)]
    return AlertDetail(**_out(row, alert_queries.last_notifications([row])[row.pk]), changes=changes)


def _change(change: alert_queries.DecidedChange) -> ChangeOut:
    return ChangeOut(
        id=change.of.pk,
        old=change.of.old,
        new=Alert.State(change.of.new),
        at=schemas.format_iso(change.of.at_ms),
        settled=change.is_settled,
        fates=[FateOut.from_fate(each) for each in change.fates],
    )


def _out(row: Alert, notified: Sequence[alert_queries.NotificationOutcome]) -> dict[str, Any]:
    return {
        "id": row.pk,
        "fingerprint": bytes(row.fingerprint).hex(),
        "rule": row.rule,
        "cluster": row.cluster.name,
        "subject": row.subject,
        "severity": Severity(row.severity),
        "state": Alert.State(row.state),
        "since": schemas.format_iso(row.since_ms),
        "fired_at": schemas.format_iso(row.fired_ms),
        "resolved_at": schemas.format_iso(row.resolved_ms),
        "flapping_since": schemas.format_iso(row.flapping_ms),
        "labels": row.labels,
        "annotations": row.annotations,
        "affected": row.affected,
        "quiet": [QuietOut(kind=kind, by=by.removeprefix("#"), words=words) for kind, by, words in row.quiet],
        "told": [FateOut.from_fate(each) for each in notified],
        "rev": row.rev,
    }
