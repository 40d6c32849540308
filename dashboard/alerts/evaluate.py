"""Evaluate a cluster's alerts in a tick: findings to alerts, changes and deliveries, in one transaction.

It reads the evaluator's findings, unresolved alerts, and the newest message of each group; `engine`,
`grouping` and `notification_decision` derive the rest. It begins with the lease, which guards alerts and
their messages, so only one of two concurrent ticks writes. A killed tick has written nothing, and the next
one does its work. The number of SQL queries does not depend on the number of unchanged alerts.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from django.conf import settings
from django.db.models import Max, QuerySet
from django.db.models.functions import Now

from dashboard.alerts.alert_set import Book, state_of
from dashboard.alerts.validation import compile_pattern
from dashboard.models import Alert, AlertChange, Channel, Collector, Delivery, FindingRecord, Silence
from dashboard.runtime.collector_names import ALERTS
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import prepared, update_rows
from dashboard.runtime.write_transactions import CollectorTransaction, retry_write, write_transaction
from fenceline.alerts import engine, grouping, notification_decision, payload
from fenceline.alerts.engine import FIRING, Alerting, StateChange
from fenceline.alerts.grouping import Item, LastNotification, Route, Sending
from fenceline.alerts.notification_decision import Muting, Why
from fenceline.decode.typed import record_of
from fenceline.grouping import grouped
from fenceline.incidents.findings import IncidentCause

NAME = ALERTS
#: Maximum messages to one channel in one tick; the others follow in the next.
MOST_MESSAGES = 100
#: Milliseconds before effects are notified, because they end a moment after their cause.
SETTLE_MS = 10_000
#: The columns of an alert that a change keeps.
_SAID = ("severity", "labels", "annotations", "since_ms", "fired_ms", "resolved_ms")
#: The key in our collector's row for the last processed finding.
_UPTO = "finding"


@retry_write
def evaluate_alerts(lease: Lease, *, now_ms: int) -> int:
    """Evaluate one cluster once; return the number of new messages. Raises `LeaseLost`."""
    with write_transaction(lease, {"seen_through_ms": now_ms}, lock_cluster=False) as write:
        return _Tick(lease, settings.FENCELINE.alerts, now_ms).run(write)


class _Tick:
    def __init__(self, lease: Lease, limits: Alerting, now_ms: int) -> None:
        self._lease, self._limits, self._now_ms = lease, limits, now_ms
        self._book = Book(lease, limits)

    def run(self, write: CollectorTransaction) -> int:
        after = self._upto(write.collector)
        happened, upto = self._book.follow_findings(after, self._now_ms)
        changes = [*self._unsettled(), *self._note(happened)]
        routes = [_route(row, self._limits) for row in _channels()]
        # The newest messages of all groups by channel.
        standing = grouped(
            (row.channel_id, _last_notification(row)) for row in _standing_rows(self._lease.cluster_id)
        )
        items = self._items(changes, standing)
        silences = Silence.objects.filter(starts_ms__lte=self._now_ms, ends_ms__gt=self._now_ms)
        muting = Muting(items.values(), silences.order_by("pk"), compile_pattern)
        self._mark_loud(items, muting, routes)
        views = [self._notify(route, items, standing[route.number], muting) for route in routes]
        settled = self._settle(changes, items, views)
        self._save_reasons(items, muting, views)
        if write.collector.detail != {_UPTO: upto}:
            write.collector.detail = {_UPTO: upto}
            write.collector.save(update_fields=["detail"])
        if self._book.is_changed or settled:
            self._book.save(write.next_rev())
            write.notify_after_commit("alerts")
        return sum(len(view.outlook.sendings) for view in views)

    def _upto(self, collector: Collector) -> int:
        """Return the last processed finding; findings that closed before the first tick are not notified."""
        last_finding = collector.detail.get(_UPTO)
        if last_finding is not None:
            return int(last_finding)
        rows = FindingRecord.objects.filter(cluster_id=self._lease.cluster_id)
        return rows.aggregate(newest=Max("pk"))["newest"] or 0

    def _unsettled(self) -> list[AlertChange]:
        unsettled = _unsettled_changes()
        numbers = {change.alert_id for change in unsettled}
        of_cluster = Alert.objects.filter(cluster_id=self._lease.cluster_id)
        alerts = of_cluster.in_bulk(numbers) if numbers else {}
        changes = [change for change in unsettled if change.alert_id in alerts]
        for change in changes:
            change.alert = self._book.adopt_row(alerts[change.alert_id])
        return changes

    def _note(self, happened: Iterable[tuple[Alert, StateChange]]) -> list[AlertChange]:
        return AlertChange.objects.bulk_create(
            AlertChange(
                alert=row,
                old=change.old,
                new=change.new,
                at_ms=change.at_ms,
                said={name: getattr(change.state, name) for name in _SAID},
            )
            for row, change in happened
        )

    def _items(
        self, changes: Iterable[AlertChange], standing: Mapping[int, Sequence[LastNotification]]
    ) -> dict[str, Item]:
        """Return the alerts that fire, that a group holds, or with an unsettled change."""
        held = {name for messages in standing.values() for message in messages for name in message.firing}
        self._book.load_alerts(bytes.fromhex(name) for name in held)
        needed = held | {bytes(change.alert.fingerprint).hex() for change in changes}
        return {
            key.hex(): _item(row, self._limits, self._book.causes_of(row))
            for key, row in self._book.rows.items()
            if row.state == FIRING or key.hex() in needed
        }

    def _mark_loud(self, items: dict[str, Item], muting: Muting, routes: Sequence[Route]) -> None:
        """Set since when only waits have delayed alerts."""
        for name, item in items.items():
            row = self._book.rows[bytes.fromhex(name)]
            if muting.is_anywhere(item, routes):
                self._book.set_columns(row, loud_ms=None)
            elif item.firing and row.loud_ms is None:
                self._book.set_columns(row, loud_ms=self._now_ms + SETTLE_MS)
            items[name] = item.unmuted_since(row.loud_ms)

    def _notify(
        self, route: Route, items: Mapping[str, Item], standing: Sequence[LastNotification], muting: Muting
    ) -> notification_decision.View:
        """Create the due messages of one channel."""
        decided = grouping.decide_notifications(
            route, items, standing, lambda item: muting.is_muted(item, route),
            cluster=self._lease.cluster, now_ms=self._now_ms,
        )  # fmt: skip
        decided.defer_excess(MOST_MESSAGES, self._now_ms)
        rows = Delivery.objects.bulk_create(self._delivery(sending) for sending in decided.sendings)
        ended = [sending.replaces.number for sending in decided.sendings if sending.replaces]
        ended += [notification.number for notification in decided.cleared]
        if ended:
            Delivery.objects.filter(pk__in=ended).update(standing=False)
        return notification_decision.channel_view(
            decided, route, standing, [row.pk for row in rows], self._now_ms
        )

    def _delivery(self, sending: Sending) -> Delivery:
        message = grouping.group_message(sending, external_url=self._limits.external_url, now_ms=self._now_ms)
        route = sending.route
        return Delivery(
            channel_id=route.number,
            cluster_id=self._lease.cluster_id,
            message_id=f"msg_{secrets.token_hex(16)}",
            group_key=sending.key,
            reason=sending.reason,
            payload=payload.channel_payload(
                route.kind, message, now_ms=self._now_ms, lives_ms=route.lives_ms
            ),
            held={
                "firing": list(sending.held),
                "severities": list(sending.held.values()),
                "resolved": [item.fingerprint for item, _ in sending.over],
            },
            made_ms=self._now_ms,
            standing=True,
            next_at=Now(),
        )

    def _settle(
        self,
        changes: Sequence[AlertChange],
        items: Mapping[str, Item],
        views: Sequence[notification_decision.View],
    ) -> bool:
        """Set the outcomes of changes as far as known; return whether any was set."""
        known: list[AlertChange] = []
        now = datetime.fromtimestamp(self._now_ms / 1_000, UTC)
        for change in changes:
            key = bytes(change.alert.fingerprint)
            happened = notification_decision.Happened(
                change.new, key.hex(), change.said["severity"], change.said["labels"], items[key.hex()],
                notification_decision.muted_words(self._book.before[key]),
            )  # fmt: skip
            more, waits = notification_decision.notification_outcomes(happened, views, change.fates)
            if more or not waits:
                change.fates = [*change.fates, *more]
                change.processed_at = None if waits else now
                known.append(change)
        update_rows(known, ["fates", "processed_at"])
        return bool(known)

    def _save_reasons(
        self, items: Mapping[str, Item], muting: Muting, views: Sequence[notification_decision.View]
    ) -> None:
        """Save for every alert why it is not notified, and the notified channels."""
        for key, row in self._book.rows.items():
            if row.state == engine.PENDING:
                words = engine.why_pending(state_of(row), self._limits)
                self._book.set_columns(row, quiet=[[engine.PENDING, "", words]])
            elif row.state == FIRING:
                item = items[key.hex()]
                self._book.set_columns(
                    row,
                    quiet=self._quiet(item, muting, views),
                    told=notification_decision.notified_channels(item, views),
                )
            else:
                self._book.set_columns(row, quiet=[])

    def _quiet(self, item: Item, muting: Muting, views: Sequence[notification_decision.View]) -> list[Why]:
        inhibited = {
            view.route.number: why for view in views if (why := muting.inhibition_reason(item, view.route))
        }
        anyhow = muting.inhibition_reason(item, None)
        return notification_decision.suppression_reasons(
            item, muting.matching_silences(item), views, inhibited, anyhow
        )


@prepared
def _unsettled_changes() -> QuerySet[AlertChange]:
    # Of all clusters: for those of one SQLite would go through all its alerts.
    return AlertChange.objects.filter(processed_at=None).order_by("pk")


@prepared
def _channels() -> QuerySet[Channel]:
    return Channel.objects.order_by("pk")


@prepared
def _standing_rows(cluster_id: int) -> QuerySet[Delivery]:
    rows = Delivery.objects.filter(cluster_id=cluster_id, standing=True).order_by("pk")
    return rows.only("channel_id", "group_key", "made_ms", "held", "state")


def _route(row: Channel, limits: Alerting) -> Route:
    off = ""
    if not row.enabled or row.disabled_at is not None:
        off = f"the channel is disabled{f': {row.disabled_why}' if row.disabled_why else ''}"
    return grouping.channel_route(
        number=row.pk,
        name=row.name,
        kind=row.kind,
        min_severity=row.min_severity,
        matchers=row.matchers,
        group_by=row.group_by,
        waits_s=(row.group_wait_s, row.group_interval_s, row.repeat_interval_s),
        send_resolved=row.send_resolved,
        off=off,
        limits=limits,
        compile_pattern=compile_pattern,
    )


def _item(row: Alert, limits: Alerting, causes: Sequence[IncidentCause]) -> Item:
    words = engine.why_flapping(state_of(row), limits) if row.flapping_ms is not None else ""
    return record_of(
        Item,
        row,
        fingerprint=bytes(row.fingerprint).hex(),
        number=row.pk,
        annotations={**row.annotations, "flapping": words} if words else row.annotations,
        firing=row.state == FIRING,
        fired_ms=row.fired_ms or row.since_ms,
        causes=causes,
    )


def _last_notification(row: Delivery) -> LastNotification:
    firing = dict(zip(row.held.get("firing", ()), row.held.get("severities", ()), strict=False))
    is_settled = row.state != Delivery.State.PENDING
    return LastNotification(row.pk, row.group_key, row.made_ms, firing, is_settled)
