"""How alerts, channels, deliveries and silences look and read: word, tone, what it means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dashboard.labels.status import StatusLabel
from dashboard.models import Alert, Channel, Delivery
from fenceline.alerts.labels import readable_name

ALERT_STATES: Mapping[str, StatusLabel] = MappingProxyType(
    {
        Alert.State.FIRING.value: StatusLabel("firing", "critical", "it is so now"),
        Alert.State.PENDING.value: StatusLabel(
            "pending", "info", "it was found, but not in enough looks yet"
        ),
        Alert.State.RESOLVED.value: StatusLabel("resolved", "ok", "it is over"),
    }
)
DELIVERY_STATES: Mapping[str, StatusLabel] = MappingProxyType(
    {
        Delivery.State.PENDING.value: StatusLabel("pending", "info", "it is being sent, or tried again"),
        Delivery.State.DELIVERED.value: StatusLabel("delivered", "ok", "its receiver took it"),
        Delivery.State.FAILED.value: StatusLabel("failed", "critical", "its receiver never took it"),
    }
)
SILENCE_STATES: Mapping[str, StatusLabel] = MappingProxyType(
    {
        "active": StatusLabel("active", "info", "it keeps what matches quiet now"),
        "scheduled": StatusLabel("scheduled", "unknown", "it has not begun"),
        "expired": StatusLabel("expired", "unknown", "it is over"),
    }
)
#: What made a delivery, as words of a filter.
ORIGINS: Mapping[str, str] = MappingProxyType({"alert": "alerts", "test": "tests", "again": "sent again"})
#: What each kind of channel is.
CHANNEL_KINDS: Mapping[str, str] = MappingProxyType(
    {
        Channel.Kind.WEBHOOK.value: "takes Alertmanager's webhook, signed",
        Channel.Kind.ALERTMANAGER.value: "an Alertmanager that routes on",
        Channel.Kind.APPRISE.value: "chat, mail or a pager through apprise",
    }
)
_ENABLED = StatusLabel("enabled", "ok", "it is told")
_FAILING = StatusLabel("failing", "warning", "its last messages were not taken")
_DISABLED = StatusLabel("disabled", "critical", "nobody is told through it")


def channel_look(row: Channel) -> StatusLabel:
    """Return how a channel does."""
    if not row.enabled:
        return _DISABLED
    return _FAILING if row.failures else _ENABLED


def delivery_what(row: Delivery) -> str:
    """Return what a delivery is, in a few words."""
    if row.origin == Delivery.Origin.TEST:
        return "a test"
    firing, resolved = (len(row.held.get(state, ())) for state in ("firing", "resolved"))
    parts = [f"{n:,} {word}" for n, word in ((firing, "firing"), (resolved, "resolved")) if n]
    words = ", ".join(parts) or row.reason.replace("_", " ") or "a message"
    return f"sent again: {words}" if row.origin == Delivery.Origin.AGAIN else words


def alert_summary(row: Alert) -> str:
    """Return an alert in one sentence; its rule and subject where it has no summary."""
    summary: str = row.annotations.get("summary", "")
    return summary or f"{row.rule.replace('_', ' ')}: {subject_name(row)}"


def subject_name(row: Alert) -> str:
    """Return the name of what an alert is about, without its kind; a streaming query's own, not its id."""
    return readable_name(row.subject, row.labels)


def lasted_ms(row: Alert) -> int | None:
    """Return for how long a resolved alert fired, None where that is not known."""
    return None if row.fired_ms is None or row.resolved_ms is None else row.resolved_ms - row.fired_ms
