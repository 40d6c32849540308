"""Alerts, channels, deliveries and silences: a reader beside `queries`, for pages and API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

from django.db.models import Case, Count, IntegerField, Max, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from pydantic import AfterValidator, Field

from dashboard.models import Action, Alert, AlertChange, Beginning, Channel, Delivery, Silence
from dashboard.runtime.criteria import Name, Ranged, given_conditions, overlaps_range, starts_in_range
from dashboard.runtime.paging import Number, Page, page_of
from fenceline.facts import Severity
from fenceline.rule_names import current_name

#: How long a resolved alert stays among those that are not filtered by state.
RECENT_MS = 86_400_000
#: More labels than these are not searched for a preview, nor listed as choices.
_MOST_MATCHED = 20_000
_MOST_CHOICES = 200
#: Deliveries that are searched for those of an incident; by how much the database's clock may differ.
_MOST_SEARCHED, _CLOCKS_S = 2_000, 3_600
_WORST_FIRST = [severity.value for severity in Severity]
_STATES = [Alert.State.FIRING.value, Alert.State.PENDING.value]


class AlertCriteria(Ranged):
    """Which alerts a list is asked for.

    A state of "" is all but those resolved long ago; of a range all that were active in it.
    """

    api_only: ClassVar = frozenset({"subject"})

    cluster: Name = ""
    #: "active" is firing or pending.
    state: Literal["", "active", "firing", "pending", "resolved", "all"] = ""
    severity: Severity | Literal[""] = ""
    rule: Annotated[Name, AfterValidator(current_name)] = ""
    team: Name = ""
    subject: Name = ""
    #: "quiet": its notification is suppressed or waits; "loud": it is notified.
    voice: Literal["", "loud", "quiet"] = ""
    #: A part of the first 200 characters of a subject, of a query's name, or of a rule's name.
    q: Name = ""


class DeliveryCriteria(Ranged):
    """Which deliveries a list is asked for; `find_channel` is a channel's id."""

    channel: int | None = Field(default=None, ge=0, lt=2**63)
    state: Literal["pending", "delivered", "failed"] | Literal[""] = ""
    origin: Literal["alert", "test", "again"] | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class NotificationOutcome:
    """What came of a change for one channel: a delivery, or why there is none."""

    channel: Channel | None
    delivery: Delivery | None
    #: Why nothing was sent; "" where something was.
    why: str


@dataclass(frozen=True, slots=True)
class DecidedChange:
    """One change of an alert and what came of it; `settled` is false while that is not decided."""

    of: AlertChange
    fates: Sequence[NotificationOutcome]

    @property
    def is_settled(self) -> bool:
        """Return whether every channel has a delivery of it or a reason why not."""
        return self.of.processed_at is not None


def alert_page(wanted: AlertCriteria, *, page: Number, size: int, now_ms: int) -> Page[Alert]:
    """Return a page of alerts: firing, pending, resolved; in each the worst, then the newest first."""
    newest = Coalesce("resolved_ms", "fired_ms", "since_ms").desc()
    rows = _filtered(wanted, now_ms)
    return page_of(rows.order_by(_rank("state", _STATES), _severity(), newest, "-pk"), page, size)


def alerts_before(place: int | None, wanted: AlertCriteria, *, limit: int, now_ms: int) -> Sequence[Alert]:
    """Return alerts behind a row's key, the one that was made last first."""
    rows = _filtered(wanted, now_ms)
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def alert_counts(wanted: AlertCriteria, *, now_ms: int) -> Mapping[str, int]:
    """Return how many alerts that a filter allows are firing, pending and lately resolved."""
    found = dict(_filtered(wanted, now_ms).order_by().values_list("state").annotate(n=Count("pk")))
    return {state.value: found.get(state.value, 0) for state in _IN_ORDER}


_IN_ORDER = (Alert.State.FIRING, Alert.State.PENDING, Alert.State.RESOLVED)


def firing_counts(cluster: str = "") -> Mapping[str, int]:
    """Return how many alerts fire, by severity, worst first; where none does, a severity is left out."""
    rows = _of_cluster(cluster).filter(state=Alert.State.FIRING)
    found = dict(rows.order_by().values_list("severity").annotate(n=Count("pk")))
    return {severity: found[severity] for severity in _WORST_FIRST if found.get(severity)}


def unnotified_counts(cluster: str = "") -> tuple[int, int]:
    """Return how many alerts fire unnotified: those about to be notified, and those suppressed."""
    rows = _of_cluster(cluster).filter(state=Alert.State.FIRING).exclude(quiet=[])
    kinds = [{kind for kind, *_ in quiet} for quiet in rows.values_list("quiet", flat=True)]
    waiting = sum(_WAITS in each for each in kinds)
    return waiting, len(kinds) - waiting


def undelivered_count(cluster: str = "") -> int:
    """Return how many alerts fire that were sent, and that no receiver has accepted so far."""
    rows = _of_cluster(cluster).filter(state=Alert.State.FIRING, quiet=[]).exclude(told=[])
    deliveries = [{delivery for _, delivery, *_ in each} for each in rows.values_list("told", flat=True)]
    vain = _in_vain(set().union(*deliveries))
    return sum(each <= vain for each in deliveries)


def _in_vain(deliveries: Iterable[int]) -> set[int]:
    """Return those deliveries that were tried, and not taken so far."""
    found = Delivery.objects.only("state", "attempts").in_bulk(deliveries)
    return {row.pk for row in found.values() if row.attempts and row.state != Delivery.State.DELIVERED}


#: The kind of reason that means "later".
_WAITS = "grouped"


def alert_teams(cluster: str = "") -> Sequence[str]:
    """Return the teams whose alerts are kept, by name."""
    found = _of_cluster(cluster).order_by().values_list("labels__team", flat=True).distinct()
    return sorted(filter(None, found[:_MOST_CHOICES]))


def alert_rules(cluster: str = "") -> Sequence[str]:
    """Return the rules of which alerts are kept, by name."""
    return list(_of_cluster(cluster).order_by("rule").values_list("rule", flat=True).distinct())


def find_alert(number: int) -> Alert | None:
    """Return one alert of a configured cluster by its number, None where there is none."""
    rows = Alert.objects.filter(pk=number, cluster__configured=True)
    return rows.select_related("cluster").first() if number < 2**63 else None


def alerts_by_fingerprint(fingerprints: Iterable[str]) -> Sequence[Alert]:
    """Return the alerts with these fingerprints, given in hexadecimal, by rule and subject."""
    keys = [bytes.fromhex(each) for each in fingerprints]
    found: list[Alert] = []
    for at in range(0, len(keys), 500):
        rows = Alert.objects.filter(fingerprint__in=keys[at : at + 500])
        found += rows.select_related("cluster")
    return sorted(found, key=lambda row: (row.rule, row.subject))


def active_labels() -> Sequence[Alert]:
    """Return the alerts that are firing or pending, with what matchers use and a line shows."""
    rows = Alert.objects.filter(cluster__configured=True, state__in=_STATES).select_related("cluster")
    fields = ("cluster__name", "rule", "subject", "severity", "labels", "state", "since_ms", "fired_ms")
    return list(rows.only(*fields).order_by(_rank("state", _STATES), _severity(), "pk")[:_MOST_MATCHED])


def alert_changes(row: Alert, *, limit: int) -> Sequence[DecidedChange]:
    """Return the newest changes of an alert with their outcomes, the newest first."""
    found = AlertChange.objects.filter(alert=row).order_by("-at_ms", "-pk")[:limit]
    return _decided(list(found))


def last_changes(rows: Iterable[Alert]) -> Mapping[int, DecidedChange]:
    """Return the newest change of each of some alerts, by the alert's number."""
    those = AlertChange.objects.filter(alert__in=[row.pk for row in rows])
    newest = those.order_by().values("alert").annotate(last=Max("pk")).values_list("last", flat=True)
    found = AlertChange.objects.filter(pk__in=list(newest))
    return {change.of.alert_id: change for change in _decided(list(found))}


def last_notifications(rows: Sequence[Alert]) -> Mapping[int, Sequence[NotificationOutcome]]:
    """Return the channels and deliveries through which each of some alerts was notified last."""
    each = [notification for row in rows for notification in row.told]
    those = Delivery.objects.defer("payload").in_bulk([delivery for _, delivery, *_ in each])
    found = Channel.objects.in_bulk([channel for channel, *_ in each])
    return {
        row.pk: [_fate([channel, "delivery", delivery], found, those) for channel, delivery, *_ in row.told]
        for row in rows
    }


def actions_of(row: Alert, *, limit: int) -> Sequence[Action]:
    """Return what operators did to an alert's subject while it lasted, the newest first."""
    until_ms = row.seen_ms if row.resolved_ms is None else row.resolved_ms
    did = (Action.State.DONE, Action.State.PARTLY, Action.State.UNKNOWN)
    rows = Action.objects.filter(cluster=row.cluster_id, state__in=did, ended_ms__gte=row.since_ms)
    rows = rows.filter(ended_ms__lte=until_ms, subjects__contains=row.subject)
    found = rows.select_related("cluster").order_by("-ended_ms")[: 5 * limit]
    return [each for each in found if row.subject in each.subjects.splitlines()][:limit]


def list_channels() -> Sequence[Channel]:
    """Return every channel by name."""
    return list(Channel.objects.order_by("name"))


def find_channel(number: int) -> Channel | None:
    """Return one channel by its number, None where there is none."""
    return Channel.objects.filter(pk=number).first() if number < 2**63 else None


def last_deliveries(rows: Iterable[Channel], *, origin: str = "") -> Mapping[int, Delivery]:
    """Return the newest delivery of each of some channels, by the channel's number."""
    those = Delivery.objects.filter(channel__in=[row.pk for row in rows])
    those = those.filter(origin=origin) if origin else those
    newest = those.order_by().values("channel").annotate(last=Max("pk")).values_list("last", flat=True)
    found = Delivery.objects.filter(pk__in=list(newest)).select_related("channel")
    return {row.channel_id: row for row in found}


def list_deliveries(wanted: DeliveryCriteria, *, before: int | None, limit: int) -> Sequence[Delivery]:
    """Return deliveries behind a row's key, the newest first."""
    asked = given_conditions(channel=wanted.channel, state=wanted.state, origin=wanted.origin)
    rows = Delivery.objects.select_related("channel").filter(starts_in_range(wanted, "created_at"), **asked)
    rows = rows if before is None else rows.filter(pk__lt=before)
    # The bodies stay in the database: a list shows none, and they are large.
    return list(rows.defer("payload").order_by("-pk")[:limit])


def find_delivery(number: int) -> Delivery | None:
    """Return one delivery by its number, None where there is none."""
    return Delivery.objects.select_related("channel").filter(pk=number).first() if number < 2**63 else None


def related_deliveries(row: Delivery) -> tuple[Delivery | None, Sequence[Delivery]]:
    """Return the first delivery of a message, None where it is this one, and others that sent it again."""
    rows = Delivery.objects.filter(channel=row.channel_id, group_key=row.group_key, message_id=row.message_id)
    found = list(rows.defer("payload").order_by("pk")[:_MOST_CHOICES])
    first = found[0] if found and found[0].pk != row.pk else None
    return first, [each for each in found[1:] if each.pk != row.pk]


def notification_revision() -> object:
    """Return a value that changes with each notification: no revision counts deliveries and channels."""
    last = Delivery.objects.order_by("-pk").values_list("pk", flat=True).first()
    waiting = Delivery.objects.filter(state=Delivery.State.PENDING).count()
    each = list(Channel.objects.order_by("pk").values_list("pk", "name", "enabled"))
    return last, waiting, each


def deliveries_of(row: Channel) -> int:
    """Return how many deliveries a channel has."""
    return Delivery.objects.filter(channel=row).count()


def list_silences(state: str, *, now_ms: int) -> QuerySet[Silence]:
    """Return the "active" silences, the next to end first, the "scheduled", or the "expired" ones."""
    if state == "active":
        return Silence.objects.filter(starts_ms__lte=now_ms, ends_ms__gt=now_ms).order_by("ends_ms", "pk")
    if state == "scheduled":
        return Silence.objects.filter(starts_ms__gt=now_ms, ends_ms__gt=now_ms).order_by("starts_ms", "pk")
    return Silence.objects.filter(ends_ms__lte=now_ms).order_by("-ends_ms", "-pk")


def silences_page(*, page: Number, size: int, now_ms: int) -> Page[Silence]:
    """Return a page of the expired silences, the last to end first."""
    return page_of(list_silences("expired", now_ms=now_ms), page, size)


def silences_before(place: int | None, state: str, *, limit: int, now_ms: int) -> Sequence[Silence]:
    """Return silences behind a row's key, the newest first: of a state, or "all"."""
    rows = Silence.objects.all() if state == "all" else list_silences(state, now_ms=now_ms)
    rows = rows if place is None else rows.filter(pk__lt=place)
    return list(rows.order_by("-pk")[:limit])


def find_silence(number: int) -> Silence | None:
    """Return one silence by its number, None where there is none."""
    return Silence.objects.filter(pk=number).first() if number < 2**63 else None


def state_of(row: Silence, *, now_ms: int) -> Literal["active", "scheduled", "expired"]:
    """Return "active", "scheduled" or "expired"."""
    if row.ends_ms <= now_ms:
        return "expired"
    return "scheduled" if row.starts_ms > now_ms else "active"


def _decided(rows: Sequence[AlertChange]) -> Sequence[DecidedChange]:
    """Return changes with the channels and deliveries that their fates name."""
    fates = [fate for row in rows for fate in row.fates]
    those = Delivery.objects.defer("payload").in_bulk([what for _, kind, what in fates if kind == "delivery"])
    found = Channel.objects.in_bulk([channel for channel, *_ in fates])
    return [DecidedChange(row, [_fate(each, found, those) for each in row.fates]) for row in rows]


def _fate(
    fate: Sequence[Any], channels: Mapping[int, Channel], deliveries: Mapping[int, Delivery]
) -> NotificationOutcome:
    channel, kind, what = fate
    if kind != "delivery":
        return NotificationOutcome(channels.get(channel), None, str(what))
    # Deliveries are pruned before alerts are.
    gone = "" if what in deliveries else f"delivery {what} is not kept any more"
    return NotificationOutcome(channels.get(channel), deliveries.get(what), gone)


def _of_cluster(cluster: str) -> QuerySet[Alert]:
    rows = Alert.objects.filter(cluster__configured=True)
    return rows.filter(cluster__name=cluster) if cluster else rows


def _filtered(wanted: AlertCriteria, now_ms: int) -> QuerySet[Alert]:
    any_state = wanted.is_ranged and not wanted.state
    state = "all" if any_state else wanted.state
    rows = _in_state(_of_cluster(wanted.cluster), state, now_ms).select_related("cluster")
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
        found = Q(beginning__icontains=wanted.q) | Q(labels__query_name__icontains=wanted.q)
        rows = rows.filter(found | Q(rule__icontains=current_name(wanted.q.replace(" ", "_"))))
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
    """Return how bad an alert is, for an order; of what is resolved nothing is worse than another."""
    resolved = When(state=Alert.State.RESOLVED, then=Value(0))
    each = [When(severity=value, then=Value(n)) for n, value in enumerate(_WORST_FIRST)]
    return Case(resolved, *each, default=Value(len(each)), output_field=IntegerField())


def _rank(column: str, values: Sequence[str]) -> Case:
    each = [When(**{column: value}, then=Value(n)) for n, value in enumerate(values)]
    return Case(*each, default=Value(len(each)), output_field=IntegerField())


def deliveries_of_findings(
    cluster_id: int, fingerprints: Collection[bytes], *, from_ms: int, to_ms: int | None, limit: int
) -> Sequence[Delivery]:
    """Return the deliveries of a time that were about some findings, the newest first.

    Without an end until now.
    """
    wanted = {bytes(each).hex() for each in fingerprints}
    rows = Delivery.objects.filter(cluster=cluster_id, made_ms__gte=from_ms).select_related("channel")
    rows = rows.filter(created_at__gte=datetime.fromtimestamp(from_ms / 1_000 - _CLOCKS_S, UTC))
    rows = rows if to_ms is None else rows.filter(made_ms__lte=to_ms)
    newest = rows.defer("payload", "tries").order_by("-pk")[:_MOST_SEARCHED]
    held = (row for row in newest if wanted & {*row.held.get("firing", ()), *row.held.get("resolved", ())})
    return list(islice(held, limit))
