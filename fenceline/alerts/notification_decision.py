"""Decide the result of each change, by channel: a delivery, or the reason for none. Pure.

A change is settled once every channel has an outcome. Until then it waits for its group, or for the end of a
silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.alerts.engine import FIRING
from fenceline.alerts.grouping import Item, LastNotification, Outlook, Route, route_refusal
from fenceline.findings.severity import is_worse
from fenceline.formatting import format_clock

#: [channel, "delivery", its number] or [channel, "quiet", reason].
Fate = list[int | str]
#: [kind, user or subject, words]: why nobody is notified.
Why = list[str]
#: Maximum stored reasons of one alert.
_MOST_REASONS = 10


@dataclass(slots=True)
class View:
    """The alerts that one channel knows after a tick, and those of this tick."""

    route: Route
    outlook: Outlook
    #: By fingerprint: the last delivery about the firing alert, its instant, and the severity.
    notified: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: By fingerprint: this tick's delivery.
    begun: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)


class Happened(NamedTuple):
    """A recorded change, and its alert's present state."""

    new: str
    fingerprint: str
    severity: str
    labels: Mapping[str, str]
    now: Item
    #: Why no channel was notified of it before this tick, in words.
    before: str


def channel_view(
    outlook: Outlook, route: Route, standing: Iterable[LastNotification], made: Sequence[int], now_ms: int
) -> View:
    """Return a channel's view after its messages are queued; `made` are their deliveries, in order."""
    view = View(route, outlook)
    replaced = {sending.replaces.number for sending in outlook.sendings if sending.replaces}
    replaced |= {cleared.number for cleared in outlook.cleared}
    for group in standing:
        if group.number not in replaced:
            view.notified |= {
                fingerprint: (group.number, group.made_ms, how) for fingerprint, how in group.firing.items()
            }
    for sending, number in zip(outlook.sendings, made, strict=True):
        view.notified |= {fingerprint: (number, now_ms, how) for fingerprint, how in sending.held.items()}
        view.begun |= {item.fingerprint: number for item in sending.firing}
        view.ended |= {item.fingerprint: number for item, _ in sending.over if not item.firing}
    return view


def notification_outcomes(
    change: Happened, views: Iterable[View], known: Sequence[Fate]
) -> tuple[list[Fate], bool]:
    """Return a change's outcomes in channels without a known one, and whether any is left open."""
    settled = {view[0] for view in known}
    asked = [view for view in views if view.route.number not in settled]
    outcomes = [notification_outcome(change, view) for view in asked]
    return [view for view in outcomes if view is not None], None in outcomes


def notification_outcome(change: Happened, known: View) -> Fate | None:
    """Return a change's outcome for one channel; None while undecided."""
    route = known.route
    if change.new == FIRING:
        number, why = known.begun.get(change.fingerprint), _skipped_begin(change, known)
    else:
        number, why = known.ended.get(change.fingerprint), _skipped_end(change, known)
    if number is not None:
        return [route.number, "delivery", number]
    return [route.number, "quiet", why] if why else None


def _skipped_begin(change: Happened, known: View) -> str:
    """Return why a channel is not notified of a firing alert; "" while it may be later."""
    earlier = known.notified.get(change.fingerprint)
    if earlier and not is_worse(change.now.severity, earlier[2]):
        return f"it was notified already, with delivery {earlier[0]}"
    if known.route.off:
        return known.route.off
    reason = route_refusal(known.route, change.severity, change.labels)
    if reason:
        return f"it {reason[1]}"
    if not change.now.firing:
        return "it was over before anybody there was notified" + (
            f": {change.before}" if change.before else ""
        )
    return ""


def _skipped_end(change: Happened, known: View) -> str:
    """Return why a channel is not notified of an alert's end; "" while it may be later."""
    if change.now.firing:
        return "it fired again before its end was notified"
    if not known.route.send_resolved:
        return "the channel does not get resolved notifications"
    if change.fingerprint not in known.notified:
        return "its firing was not notified there"
    return known.route.off


def suppression_reasons(
    item: Item,
    silenced: Iterable[Why],
    views: Iterable[View],
    inhibited: Mapping[int, Why],
    anyhow: Why | None,
) -> list[Why]:
    """Return why nobody is notified of a firing alert; nothing if a channel is.

    `inhibited` is by channel; `anyhow` inhibits it for every channel, and is also shown without channels.
    """
    reasons = list(silenced)
    known = list(views)
    reached = [view for view in known if item.fingerprint in view.notified and not view.route.off]
    if not reasons and any(view.route.number not in inhibited for view in reached):
        return []
    for view in known:
        why = inhibited.get(view.route.number) or _of_channel(item, view)
        if why and why not in reasons:
            reasons.append(why)
    if not known:
        reasons += [
            *([anyhow] if anyhow else []),
            ["no_channel", "", "no notification channel is configured"],
        ]
    return reasons[:_MOST_REASONS]


def notified_channels(item: Item, views: Iterable[View]) -> list[list[int]]:
    """Return the notified channels of a firing alert: channel, delivery, and instant."""
    return [
        [view.route.number, *view.notified[item.fingerprint][:2]]
        for view in views
        if item.fingerprint in view.notified
    ]


def muted_words(quiet: Iterable[Sequence[str]]) -> str:
    """Return the recorded reasons why an alert was quiet, in words; "" without any."""
    return "; ".join(
        " ".join(filter(None, reasons)) for reasons in quiet if reasons[0] in ("silenced", "inhibited")
    )


def _of_channel(item: Item, known: View) -> Why | None:
    name = known.route.name
    if known.route.off:
        return ["disabled", name, known.route.off]
    reason = route_refusal(known.route, item.severity, item.labels)
    if reason:
        return [reason[0], name, reason[1]]
    if item.fingerprint not in known.outlook.waits:
        return None
    due_ms = known.outlook.waits[item.fingerprint]
    if due_ms is None:
        return ["grouped", name, "is notified once the message before is delivered"]
    return ["grouped", name, f"is notified at {format_clock(due_ms)}, with what else comes to its group"]
