"""Queries for alerts, channels, deliveries and silences, for pages and API."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

from django.db.models import Case, Count, IntegerField, Max, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from pydantic import AfterValidator, Field

from dashboard.models import Action, Alert, AlertChange, Beginning, Channel, Delivery, Silence
from dashboard.runtime import visibility
from dashboard.runtime.criteria import (
    Name,
    Number,
    Page,
    Ranged,
    Search,
    given_conditions,
    overlaps_range,
    page_of,
    rank_of,
    starts_in_range,
)
from dashboard.runtime.sql import in_portions
from fenceline.facts import Severity
from fenceline.findings import current_name, known_name

#: Milliseconds for which a resolved alert stays in lists without a state.
RECENT_MS = 86_400_000
#: Maximum labels that a preview searches, and maximum listed choices.
_MOST_MATCHED = 20_000
_MOST_CHOICES = 200
#: Maximum deliveries searched for an incident's, and the allowed difference of the database's clock.
_MOST_SEARCHED, _CLOCKS_S = 2_000, 3_600
_WORST_FIRST = [severity.value for severity in Severity]
_STATES = [Alert.State.FIRING.value, Alert.State.PENDING.value]


class AlertCriteria(Ranged):
    """Criteria of a list of alerts. A state of "" excludes those resolved long ago; in a range it includes
    all that were active.
    """

    api_only: ClassVar = frozenset({"subject"})

    cluster: Name = ""
    #: "active" is firing or pending.
    state: Literal["", "active", "firing", "pending", "resolved", "all"] = ""
    severity: Severity | Literal[""] = ""
    rule: Annotated[Name, AfterValidator(known_name)] = ""
    team: Name = ""
    subject: Name = ""
    #: "quiet": its notification is suppressed or waits; "loud": it is notified.
    voice: Literal["", "loud", "quiet"] = ""
    #: A part of the first 200 characters of a subject, of a query's name, or of a rule's name.
    q: Search = ""


class DeliveryCriteria(Ranged):
    """Criteria of a list of deliveries; `find_channel` is a channel's id."""

    channel: int | None = Field(default=None, ge=0, lt=2**63)
    state: Literal["pending", "delivered", "failed"] | Literal[""] = ""
    origin: Literal["alert", "test", "again"] | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class NotificationOutcome:
    """The outcome of a change for one channel: a delivery, or the reason against one."""

    channel: Channel | None
    delivery: Delivery | None
    #: The reason why no message was sent; "" if one was.
    why: str


@dataclass(frozen=True, slots=True)
class DecidedChange:
    """One change of an alert and its outcomes."""

    of: AlertChange
    fates: Sequence[NotificationOutcome]

    @property
    def is_settled(self) -> bool:
        """Return whether every channel has a delivery of it, or a reason for none."""
        return self.of.processed_at is not None


def alert_page(wanted: AlertCriteria, *, page: Number, size: int, now_ms: int) -> Page[Alert]:
    """Return a page of alerts: firing, pending, resolved; in each state the worst, then the newest first."""
    newest = Coalesce("resolved_ms", "fired_ms", "since_ms").desc()
    rows = _filtered(wanted, now_ms)
    return page_of(rows.order_by(rank_of("state", _STATES), _severity(), newest, "-pk"), page, size)


def alerts_before(place: int | None, wanted: AlertCriteria, *, limit: int, now_ms: int) -> Sequence[Alert]:
    """Return the next alerts before a row's key, newest first."""
    rows = _filtered(wanted, now_ms)
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def alert_counts(wanted: AlertCriteria, *, now_ms: int) -> Mapping[str, int]:
    """Return the number of matching alerts by state; resolved ones count only for a while."""
    counts = dict(_filtered(wanted, now_ms).order_by().values_list("state").annotate(n=Count("pk")))
    return {state: counts.get(state, 0) for state in (*_STATES, Alert.State.RESOLVED.value)}


def firing_counts(cluster: str) -> Mapping[str, int]:
    """Return the number of firing alerts by severity, worst first, without zeros."""
    rows = visibility.rows_in(Alert, cluster).filter(state=Alert.State.FIRING)
    counts = dict(rows.order_by().values_list("severity").annotate(n=Count("pk")))
    return {severity: counts[severity] for severity in _WORST_FIRST if counts.get(severity)}


def unnotified_counts(cluster: str) -> tuple[int, int]:
    """Return the numbers of firing alerts that wait for notification, and of suppressed ones."""
    rows = visibility.rows_in(Alert, cluster).filter(state=Alert.State.FIRING).exclude(quiet=[])
    kinds = [{kind for kind, *_ in quiet} for quiet in rows.values_list("quiet", flat=True)]
    waiting = sum(_WAITS in reasons for reasons in kinds)
    return waiting, len(kinds) - waiting


def undelivered_count(cluster: str) -> int:
    """Return the number of firing alerts that were sent, but not yet accepted by a receiver."""
    rows = visibility.rows_in(Alert, cluster).filter(state=Alert.State.FIRING, quiet=[]).exclude(told=[])
    deliveries = [
        {delivery for _, delivery, *_ in notifications}
        for notifications in rows.values_list("told", flat=True)
    ]
    sent = Delivery.objects.only("state", "attempts").in_bulk(set().union(*deliveries))
    vain = {row.pk for row in sent.values() if row.attempts and row.state != Delivery.State.DELIVERED}
    return sum(delivery_ids <= vain for delivery_ids in deliveries)


#: The kind of reason that means "later".
_WAITS = "grouped"


def alert_teams(cluster: str) -> Sequence[str]:
    """Return the teams that have stored alerts, by name."""
    teams = visibility.rows_in(Alert, cluster).order_by().values_list("labels__team", flat=True).distinct()
    return sorted(filter(None, teams[:_MOST_CHOICES]))


def alert_rules(cluster: str) -> Sequence[str]:
    """Return the rules that have stored alerts, by name."""
    return list(visibility.rows_in(Alert, cluster).order_by("rule").values_list("rule", flat=True).distinct())


def find_alert(number: int) -> Alert | None:
    """Return one alert of a configured cluster by its number, None if unknown."""
    return visibility.rows_in(Alert).filter(pk=number).select_related("cluster").first()


def alerts_by_fingerprint(fingerprints: Iterable[str]) -> Sequence[Alert]:
    """Return the alerts with these fingerprints, given in hexadecimal, by rule and subject."""
    keys = [bytes.fromhex(fingerprint) for fingerprint in fingerprints]
    alerts: list[Alert] = []
    for rows in in_portions(Alert.objects.select_related("cluster"), "fingerprint", keys):
        alerts += rows
    return sorted(alerts, key=lambda row: (row.rule, row.subject))


def active_labels() -> Sequence[Alert]:
    """Return the firing and pending alerts, with the columns of matchers and of a line."""
    rows = Alert.objects.filter(cluster__configured=True, state__in=_STATES).select_related("cluster")
    fields = ("cluster__name", "rule", "subject", "severity", "labels", "state", "since_ms", "fired_ms")
    return list(rows.only(*fields).order_by(rank_of("state", _STATES), _severity(), "pk")[:_MOST_MATCHED])


def alert_changes(row: Alert, *, limit: int) -> Sequence[DecidedChange]:
    """Return the newest changes of an alert with their outcomes, newest first."""
    changes = AlertChange.objects.filter(alert=row).order_by("-at_ms", "-pk")[:limit]
    return _decided(list(changes))


def last_changes(rows: Iterable[Alert]) -> Mapping[int, DecidedChange]:
    """Return the newest change of each alert, by the alert's number."""
    changes = AlertChange.objects.filter(alert__in=[row.pk for row in rows])
    newest = changes.order_by().values("alert").annotate(last=Max("pk")).values_list("last", flat=True)
    last = AlertChange.objects.filter(pk__in=list(newest))
    return {change.of.alert_id: change for change in _decided(list(last))}


def last_notifications(rows: Sequence[Alert]) -> Mapping[int, Sequence[NotificationOutcome]]:
    """Return the channels and deliveries of the last notification of each alert."""
    notifications = [notification for row in rows for notification in row.told]
    deliveries = Delivery.objects.defer("payload").in_bulk([delivery for _, delivery, *_ in notifications])
    channels = Channel.objects.in_bulk([channel for channel, *_ in notifications])
    return {
        row.pk: [
            _fate([channel, "delivery", delivery], channels, deliveries) for channel, delivery, *_ in row.told
        ]
        for row in rows
    }


def actions_of(row: Alert, *, limit: int) -> Sequence[Action]:
    """Return operators' actions on an alert's subject while it lasted, newest first."""
    until_ms = row.seen_ms if row.resolved_ms is None else row.resolved_ms
    did = (Action.State.DONE, Action.State.PARTLY, Action.State.UNKNOWN)
    rows = Action.objects.filter(cluster=row.cluster_id, state__in=did, ended_ms__gte=row.since_ms)
    rows = rows.filter(ended_ms__lte=until_ms, subjects__contains=row.subject)
    actions = rows.select_related("cluster").order_by("-ended_ms")[: 5 * limit]
    return [action for action in actions if row.subject in action.subjects.splitlines()][:limit]


def list_channels() -> Sequence[Channel]:
    """Return every channel by name."""
    return list(Channel.objects.order_by("name"))


def find_channel(number: int) -> Channel | None:
    return Channel.objects.filter(pk=number).first()


def last_deliveries(rows: Iterable[Channel], *, origin: str = "") -> Mapping[int, Delivery]:
    """Return the newest delivery of each channel, by the channel's number."""
    deliveries = Delivery.objects.filter(channel__in=[row.pk for row in rows])
    deliveries = deliveries.filter(origin=origin) if origin else deliveries
    newest = deliveries.order_by().values("channel").annotate(last=Max("pk")).values_list("last", flat=True)
    newest_rows = Delivery.objects.filter(pk__in=list(newest)).select_related("channel")
    return {row.channel_id: row for row in newest_rows}


def list_deliveries(wanted: DeliveryCriteria, *, before: int | None, limit: int) -> Sequence[Delivery]:
    """Return the next deliveries before a row's key, newest first."""
    asked = given_conditions(channel=wanted.channel, state=wanted.state, origin=wanted.origin)
    rows = Delivery.objects.select_related("channel").filter(starts_in_range(wanted, "created_at"), **asked)
    rows = rows if before is None else rows.filter(pk__lt=before)
    # The bodies are deferred, because they are large and lists do not show them.
    return list(rows.defer("payload").order_by("-pk")[:limit])


def find_delivery(number: int) -> Delivery | None:
    return Delivery.objects.select_related("channel").filter(pk=number).first()


def related_deliveries(row: Delivery) -> tuple[Delivery | None, Sequence[Delivery]]:
    """Return the first delivery of a message, None if it is this one, and others that sent it again."""
    rows = Delivery.objects.filter(channel=row.channel_id, group_key=row.group_key, message_id=row.message_id)
    deliveries = list(rows.defer("payload").order_by("pk")[:_MOST_CHOICES])
    first = deliveries[0] if deliveries and deliveries[0].pk != row.pk else None
    return first, [delivery for delivery in deliveries[1:] if delivery.pk != row.pk]


def notification_revision() -> object:
    """Return a value that changes with each notification; deliveries and channels have no revision."""
    last = Delivery.objects.order_by("-pk").values_list("pk", flat=True).first()
    waiting = Delivery.objects.filter(state=Delivery.State.PENDING).count()
    channels = list(Channel.objects.order_by("pk").values_list("pk", "name", "enabled"))
    return last, waiting, channels


def deliveries_of(row: Channel) -> int:
    return Delivery.objects.filter(channel=row).count()


def list_silences(state: str, *, now_ms: int) -> QuerySet[Silence]:
    """Return the "active" silences (the next to end first), the "scheduled" ones, or the "expired" ones."""
    if state == "active":
        return Silence.objects.filter(starts_ms__lte=now_ms, ends_ms__gt=now_ms).order_by("ends_ms", "pk")
    if state == "scheduled":
        return Silence.objects.filter(starts_ms__gt=now_ms, ends_ms__gt=now_ms).order_by("starts_ms", "pk")
    return Silence.objects.filter(ends_ms__lte=now_ms).order_by("-ends_ms", "-pk")


def silences_page(*, page: Number, size: int, now_ms: int) -> Page[Silence]:
    """Return a page of the expired silences, the last to end first."""
    return page_of(list_silences("expired", now_ms=now_ms), page, size)


def silences_before(place: int | None, state: str, *, limit: int, now_ms: int) -> Sequence[Silence]:
    """Return the next silences before a row's key, the newest first, of one state or "all"."""
    rows = Silence.objects.all() if state == "all" else list_silences(state, now_ms=now_ms)
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def find_silence(number: int) -> Silence | None:
    return Silence.objects.filter(pk=number).first()


def state_of(row: Silence, *, now_ms: int) -> Literal["active", "scheduled", "expired"]:
    if row.ends_ms <= now_ms:
        return "expired"
    return "scheduled" if row.starts_ms > now_ms else "active"


def _decided(rows: Sequence[AlertChange]) -> Sequence[DecidedChange]:
    fates = [fate for row in rows for fate in row.fates]
    deliveries = Delivery.objects.defer("payload").in_bulk(
        [what for _, kind, what in fates if kind == "delivery"]
    )
    channels = Channel.objects.in_bulk([channel for channel, *_ in fates])
    return [DecidedChange(row, [_fate(fate, channels, deliveries) for fate in row.fates]) for row in rows]


def _fate(
    fate: Sequence[Any], channels: Mapping[int, Channel], deliveries: Mapping[int, Delivery]
) -> NotificationOutcome:
    channel, kind, what = fate
    if kind != "delivery":
        return NotificationOutcome(channels.get(channel), None, str(what))
    # Deliveries are deleted before alerts are.
    gone = "" if what in deliveries else f"delivery {what} is not kept any more"
    return NotificationOutcome(channels.get(channel), deliveries.get(what), gone)


def _filtered(wanted: AlertCriteria, now_ms: int) -> QuerySet[Alert]:
    any_state = wanted.is_ranged and not wanted.state
    state = "all" if any_state else wanted.state
    rows = _in_state(visibility.rows_in(Alert, wanted.cluster), state, now_ms).select_related("cluster")
    rows = rows.filter(overlaps_range(wanted, "since_ms", "resolved_ms"))
    asked = given_conditions(
        severity=wanted.severity,
        rule=wanted.rule,
        labels__team=wanted.team,
        subject=wanted.subject,
    )
    rows = rows.filter(**asked)
    if wanted.voice:
        rows = rows.filter(quiet=[]) if wanted.voice == "loud" else rows.exclude(quiet=[])
    if wanted.q:
        rows = rows.alias(beginning=Beginning("subject"))
        condition = Q(beginning__icontains=wanted.q) | Q(labels__query_name__icontains=wanted.q)
        rows = rows.filter(condition | Q(rule__icontains=current_name(wanted.q.replace(" ", "_"))))
    return rows


def _in_state(rows: QuerySet[Alert], state: str, now_ms: int) -> QuerySet[Alert]:
    if state == "all":
        return rows
    if state == "active":
        return rows.filter(state__in=_STATES)
    if state:
        return rows.filter(state=state)
    return rows.filter(~Q(state=Alert.State.RESOLVED) | Q(resolved_ms__gte=now_ms - RECENT_MS))


def _severity() -> Case:
    """Return the order of alerts by severity; resolved alerts are equal."""
    resolved = When(state=Alert.State.RESOLVED, then=Value(0))
    ranks = [When(severity=value, then=Value(n)) for n, value in enumerate(_WORST_FIRST)]
    return Case(resolved, *ranks, default=Value(len(ranks)), output_field=IntegerField())


def deliveries_of_findings(
    cluster_id: int, fingerprints: Collection[bytes], *, from_ms: int, to_ms: int | None, limit: int
) -> Sequence[Delivery]:
    """Return the deliveries about these findings in a time range, the newest first.

    Without an end the range lasts until now.
    """
    wanted = {bytes(fingerprint).hex() for fingerprint in fingerprints}
    rows = Delivery.objects.filter(cluster=cluster_id, made_ms__gte=from_ms).select_related("channel")
    rows = rows.filter(created_at__gte=datetime.fromtimestamp(from_ms / 1_000 - _CLOCKS_S, UTC))
    rows = rows if to_ms is None else rows.filter(made_ms__lte=to_ms)
    newest = rows.defer("payload", "tries").order_by("-pk")[:_MOST_SEARCHED]
    held = (row for row in newest if wanted & {*row.held.get("firing", ()), *row.held.get("resolved", ())})
    return list(islice(held, limit))
