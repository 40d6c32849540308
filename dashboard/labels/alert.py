"""Labels of alerts, rules, channels, deliveries and silences: word, tone and meaning."""

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel
from dashboard.models import Alert, Channel, Delivery
from fenceline.alerts.labels import readable_name

#: Rules whose words differ from their name.
_LABELS: Mapping[str, str] = {
    "aborted_under_commit": "committed without lost records",
    "audit_violated": "records missing or duplicated",
    "flink_commit_lost": "Flink commit lost",
    "flink_commit_pending": "Flink commit pending",
    "flink_job": "Flink job",
    "group_stalled": "group blocked",
    "id_explosion": "transactional id churn",
    "lso_pinned": "partition blocked",
}

#: Rules whose findings the headline of their subject's page states.
STATED_RULES = frozenset(
    {
        "batch_prepared", "checkpoint_unreadable", "coordinator_overdue", "group_stalled", "hanging",
        "lso_pinned", "offsets_unstable", "open_too_long", "query_blocked", "query_failed",
        "stuck_in_prepare",
    }
)  # fmt: skip


def rule_label(name: str) -> str:
    """Return a rule's name as words; for any other name its parts."""
    return _LABELS.get(name, name.replace("_", " "))


ALERT_STATES: Mapping[str, StatusLabel] = {
    Alert.State.FIRING.value: StatusLabel("firing", "critical", "the condition holds now"),
    Alert.State.PENDING.value: StatusLabel("pending", "info", "found, but not in enough polls yet"),
    Alert.State.RESOLVED.value: StatusLabel("resolved", "ok", "the condition has ended"),
}
DELIVERY_STATES: Mapping[str, StatusLabel] = {
    Delivery.State.PENDING.value: StatusLabel("pending", "info", "being sent or retried"),
    Delivery.State.DELIVERED.value: StatusLabel("delivered", "ok", "accepted by its receiver"),
    Delivery.State.FAILED.value: StatusLabel("failed", "critical", "not accepted by its receiver"),
}
SILENCE_STATES: Mapping[str, StatusLabel] = {
    "active": StatusLabel("active", "info", "it suppresses matching alerts"),
    "scheduled": StatusLabel("scheduled", "unknown", "it has not started"),
    "expired": StatusLabel("expired", "unknown", "it has ended"),
}
#: The origin of a delivery as words of a filter.
ORIGINS: Mapping[str, str] = {"alert": "alerts", "test": "tests", "again": "sent again"}
#: Labels of a filter by whether alerts are notified.
VOICES: Mapping[str, str] = {"loud": "notified", "quiet": "suppressed"}
CHANNEL_KINDS: Mapping[str, str] = {
    Channel.Kind.WEBHOOK.value: "Alertmanager-compatible webhook (signed)",
    Channel.Kind.ALERTMANAGER.value: "your own Alertmanager",
    Channel.Kind.APPRISE.value: "chat, mail or pager through Apprise",
}


def channel_label(row: Channel) -> StatusLabel:
    if not row.enabled:
        return StatusLabel("disabled", "critical", "it receives no notifications")
    if row.failures:
        return StatusLabel("failing", "warning", "its last messages failed")
    return StatusLabel("enabled", "ok", "it receives notifications")


def delivery_what(row: Delivery) -> str:
    """Return the description of a delivery, in a few words."""
    if row.origin == Delivery.Origin.TEST:
        return "a test"
    firing, resolved = (len(row.held.get(state, ())) for state in ("firing", "resolved"))
    parts = [f"{n:,} {word}" for n, word in ((firing, "firing"), (resolved, "resolved")) if n]
    words = ", ".join(parts) or row.reason.replace("_", " ") or "a message"
    return f"sent again: {words}" if row.origin == Delivery.Origin.AGAIN else words


def alert_summary(row: Alert) -> str:
    """Return an alert in one sentence; its rule and subject without a summary."""
    summary: str = row.annotations.get("summary", "")
    return summary or f"{rule_label(row.rule)}: {subject_name(row)}"


def subject_name(row: Alert) -> str:
    """Return the name of an alert's subject without its kind; a streaming query's own name, not its id."""
    return readable_name(row.subject, row.labels)


def lasted_ms(row: Alert) -> int | None:
    """Return the firing time of a resolved alert, None if unknown."""
    return None if row.fired_ms is None or row.resolved_ms is None else row.resolved_ms - row.fired_ms
