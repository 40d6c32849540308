"""How alerts, channels, deliveries and silences look on a page: badges, addresses, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django import template
from django.urls import reverse

from dashboard.labels.rule import rule_label
from dashboard.labels.status import StatusLabel
from dashboard.models import Action, Alert, Channel, Delivery
from dashboard.web import addresses
from fenceline.alerts import matchers as matching
from fenceline.alerts import redact
from fenceline.alerts.labels import readable_name

register = template.Library()

_STATES = MappingProxyType(
    {
        Alert.State.FIRING.value: StatusLabel("firing", "critical", "it is so now"),
        Alert.State.PENDING.value: StatusLabel(
            "pending", "info", "it was found, but not in enough looks yet"
        ),
        Alert.State.RESOLVED.value: StatusLabel("resolved", "ok", "it is over"),
    }
)
_DELIVERIES = MappingProxyType(
    {
        Delivery.State.PENDING.value: StatusLabel("pending", "info", "it is being sent, or tried again"),
        Delivery.State.DELIVERED.value: StatusLabel("delivered", "ok", "its receiver took it"),
        Delivery.State.FAILED.value: StatusLabel("failed", "critical", "its receiver never took it"),
    }
)
_SILENCES = MappingProxyType(
    {
        "active": StatusLabel("active", "info", "it keeps what matches quiet now"),
        "scheduled": StatusLabel("scheduled", "unknown", "it has not begun"),
        "expired": StatusLabel("expired", "unknown", "it is over"),
    }
)
_ENABLED = StatusLabel("enabled", "ok", "it is told")
_FAILING = StatusLabel("failing", "warning", "its last messages were not taken")
_DISABLED = StatusLabel("disabled", "critical", "nobody is told through it")
_ORIGINS = MappingProxyType({"alert": "alerts", "test": "tests", "again": "sent again"})
_KINDS = MappingProxyType(
    {
        Channel.Kind.WEBHOOK.value: "takes Alertmanager's webhook, signed",
        Channel.Kind.ALERTMANAGER.value: "an Alertmanager that routes on",
        Channel.Kind.APPRISE.value: "chat, mail or a pager through apprise",
    }
)
_TABS = (
    ("alerts", "Alerts"),
    ("channels", "Channels"),
    ("deliveries", "Deliveries"),
    ("silences", "Silences"),
)


@register.inclusion_tag("_fragments/alerts_tabs.html")
def tabs(here: str) -> Mapping[str, object]:
    """Show the links between alerts, channels, deliveries and silences."""
    return {"tabs": _TABS, "tab": here}


@register.filter
def alert_state(state: str) -> StatusLabel:
    """Return how an alert's state reads and looks."""
    return _STATES[state]


@register.filter
def delivery_look(state: str) -> StatusLabel:
    """Return how a delivery's state reads and looks."""
    return _DELIVERIES[state]


@register.filter
def silence_look(state: str) -> StatusLabel:
    """Return how a silence's state reads and looks."""
    return _SILENCES[state]


@register.filter
def channel_look(row: Channel) -> StatusLabel:
    """Return how a channel does."""
    if not row.enabled:
        return _DISABLED
    return _FAILING if row.failures else _ENABLED


@register.filter
def kind_means(kind: str) -> str:
    """Return what a kind of channel is."""
    return _KINDS.get(kind, "")


@register.filter
def origin_words(origin: str) -> str:
    """Return what made a delivery, as words of a filter."""
    return _ORIGINS[origin]


@register.filter
def delivery_what(row: Delivery) -> str:
    """Return what a delivery is, in a few words."""
    if row.origin == Delivery.Origin.TEST:
        return "a test"
    firing, resolved = (len(row.held.get(state, ())) for state in ("firing", "resolved"))
    parts = [f"{n:,} {word}" for n, word in ((firing, "firing"), (resolved, "resolved")) if n]
    words = ", ".join(parts) or row.reason.replace("_", " ") or "a message"
    return f"sent again: {words}" if row.origin == Delivery.Origin.AGAIN else words


@register.filter
def alert_summary(row: Alert) -> str:
    """Return what an alert says, in one sentence; its rule and subject where it says nothing."""
    summary: str = row.annotations.get("summary", "")
    return summary or f"{rule_label(row.rule)}: {subject_name(row)}"


@register.filter
def subject_name(row: Alert) -> str:
    """Return the name of what an alert is about, without its kind; a streaming query's own, not its id."""
    return readable_name(row.subject, row.labels)


@register.filter
def subject_label(row: Alert) -> str:
    """Return the words of the link to what an alert is about."""
    return addresses.subject_label(row.subject)


@register.simple_tag
def subject_url(row: Alert) -> str:
    """Return the address of what an alert is about."""
    return addresses.subject(row.cluster.name, row.subject)


@register.simple_tag
def action_url(row: Action) -> str:
    """Return the address of what an operator did."""
    return reverse("action", args=[row.pk])


@register.filter
def lasted_ms(row: Alert) -> int | None:
    """Return for how long a resolved alert fired, None where that is not known."""
    return None if row.fired_ms is None or row.resolved_ms is None else row.resolved_ms - row.fired_ms


@register.filter
def matchers(of: Sequence[Sequence[str]]) -> str:
    """Return matchers as people write them."""
    return matching.matchers_text(of)


@register.filter
def redacted(url: str) -> str:
    """Return a channel's address without its secrets."""
    return redact.url(url)
