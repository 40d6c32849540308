"""Why an alert was notified or not: the engine's reasons, and the outcome of its last change."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.urls import reverse

from dashboard.alerts.alert_set import state_of
from dashboard.alerts.queries import DecidedChange, NotificationOutcome
from dashboard.models import Alert, Delivery
from fenceline.alerts import engine
from fenceline.formatting import format_clock

#: The tone of each reason's kind; "unknown" is grey.
_TONES = {"pending": "info", "grouped": "info", "no_channel": "warning", "disabled": "warning"}
#: The page of each kind of number in a reason.
_PAGES = {"silenced": "silence", "inhibited": "alert"}
_DELIVERY_WORDS = {
    Delivery.State.DELIVERED: ("notified", "ok"),
    Delivery.State.PENDING: ("sending", "info"),
    Delivery.State.FAILED: ("not delivered", "critical"),
}


@dataclass(frozen=True, slots=True)
class NotificationReason:
    """A reason why an alert is loud or quiet: a word with its tone, and the link and text behind it."""

    word: str
    tone: str
    words: str
    url: str = ""
    #: The text of the link.
    name: str = ""
    at_ms: int | None = None


def alert_reasons(
    row: Alert, change: DecidedChange | None, notified: Sequence[NotificationOutcome]
) -> Sequence[NotificationReason]:
    """Return why an alert was notified, or why not.

    `change` is its newest change, `notified` are the channels that have been notified of its firing.
    """
    reasons = [_quiet(*packed) for packed in row.quiet]
    if row.state != Alert.State.FIRING:
        return [*reasons, *(change_reasons(change) if change else ())]
    reasons += [_flapping(row)] if row.flapping_ms is not None else []
    # The reason for suppression is also the channels' reason, so it is shown once.
    skipped = [] if row.quiet else _skipped(_those(change, notified))
    return [*reasons, *_deliveries(notified), *skipped]


def change_reasons(change: DecidedChange) -> Sequence[NotificationReason]:
    """Return the outcome of a change for each channel: deliveries first, then reasons against one."""
    return [*_deliveries(change.fates), *_skipped(change.fates)]


def _those(
    change: DecidedChange | None, notified: Sequence[NotificationOutcome]
) -> Sequence[NotificationOutcome]:
    """Return the outcomes of a change for channels that were not notified."""
    reached = {fate.channel.pk for fate in notified if fate.channel}
    return (
        [fate for fate in change.fates if fate.channel and fate.channel.pk not in reached] if change else ()
    )


def _deliveries(rows: Sequence[NotificationOutcome]) -> Sequence[NotificationReason]:
    return [_delivery(fate.delivery, fate) for fate in rows if fate.delivery is not None]


def _quiet(kind: str, what: str, words: str) -> NotificationReason:
    """Return the reason that keeps an alert quiet; `what` is `#` and a number, or a channel's name."""
    word, tone, number = kind.replace("_", " "), _TONES.get(kind, "unknown"), what.removeprefix("#")
    if kind in _PAGES and number.isascii() and number.isdigit():
        return NotificationReason(word, tone, words, reverse(_PAGES[kind], args=[int(number)]), f"#{number}")
    return NotificationReason(word, tone, f"{what} {words}".strip())


def _flapping(row: Alert) -> NotificationReason:
    words = engine.why_flapping(state_of(row), settings.FENCELINE.alerts)
    return NotificationReason("flapping", "warning", f"since {format_clock(row.flapping_ms or 0)}: {words}")


def _delivery(row: Delivery, fate: NotificationOutcome) -> NotificationReason:
    word, tone = _DELIVERY_WORDS[Delivery.State(row.state)]
    ended = row.ended_at or row.created_at
    return NotificationReason(
        word,
        tone,
        row.error if row.state != Delivery.State.DELIVERED else "",
        reverse("delivery", args=[row.pk]),
        fate.channel.name if fate.channel else f"channel {row.channel_id}",
        int(ended.timestamp() * 1_000),
    )


def _skipped(rows: Sequence[NotificationOutcome]) -> Sequence[NotificationReason]:
    return [_why_not(fate) for fate in rows if fate.delivery is None]


def _why_not(fate: NotificationOutcome) -> NotificationReason:
    if fate.channel is None:
        return NotificationReason("not notified", "unknown", fate.why)
    return NotificationReason(
        "not notified", "unknown", fate.why, reverse("channel", args=[fate.channel.pk]), fate.channel.name
    )
