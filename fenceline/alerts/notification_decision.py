"""Decide the result of each change, by channel: a delivery, or the reason for none. Pure.

A change is settled once every channel has an outcome. Until then it waits for its group, or for the end of a
silence.

Silences keep an alert quiet, and so does the alert of its cause: an alert whose finding is an effect in an
incident is inhibited for channels that want the alert of its cause; other channels get the effect. As in an
Alertmanager, a silenced cause still inhibits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fenceline.alerts.engine import FIRING
from fenceline.alerts.grouping import Item, LastNotification, Outlook, Route, route_refusal
from fenceline.alerts.labels import CompilePattern, MatcherSet, readable_name
from fenceline.alerts.payload import format_rfc3339
from fenceline.findings import is_worse
from fenceline.formatting import format_clock
from fenceline.incidents.findings import FindingKey

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
        before = f": {change.before}" if change.before else ""
        return f"it was over before anybody there was notified{before}"
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


class Quiets(Protocol):
    """A silence's row."""

    pk: int
    matchers: Sequence[Sequence[str]]
    ends_ms: int
    reason: str
    created_by: str


class Muting:
    """The active silences, and the causes of incidents among one cluster's firing alerts."""

    def __init__(
        self, items: Iterable[Item], silences: Iterable[Quiets], compile_pattern: CompilePattern
    ) -> None:
        firing = [item for item in items if item.firing]
        self._silences = [(silence, MatcherSet(silence.matchers, compile_pattern)) for silence in silences]
        self._firing = {FindingKey(item.rule, item.subject): item for item in firing}
        self._silenced = {item.fingerprint: self._who(item) for item in firing}
        self._wanted: dict[tuple[int, str], bool] = {}

    def matching_silences(self, item: Item) -> Sequence[Why]:
        """Return the silences that match an alert: author, end, reason."""
        return self._silenced.get(item.fingerprint, ())

    def inhibition_reason(self, item: Item, route: Route | None) -> Why | None:
        """Return what inhibits an alert for a channel (without `route`: for every one), else None."""
        for incident_cause in item.causes:
            cause = self._firing.get(incident_cause.finding)
            if cause is not None and (route is None or self._wants(route, cause)):
                kind, name = cause.subject.partition(":")[0], readable_name(cause.subject, cause.labels)
                why = f"by the alert of {kind} {name}: covered by incident {incident_cause.incident}"
                return ["inhibited", f"#{cause.number}", why]
        return None

    def is_muted(self, item: Item, route: Route) -> bool:
        return bool(self.matching_silences(item)) or self.inhibition_reason(item, route) is not None

    def is_anywhere(self, item: Item, routes: Iterable[Route]) -> bool:
        """Whether an alert is suppressed for any of these channels now."""
        return bool(self.matching_silences(item)) or any(
            self.inhibition_reason(item, route) for route in routes
        )

    def _who(self, item: Item) -> list[Why]:
        return [
            [
                "silenced",
                str(silence.pk),
                f"by {silence.created_by} until {format_rfc3339(silence.ends_ms)[:16].replace('T', ' ')} "
                f"UTC: {silence.reason}",
            ]
            for silence, matchers in self._silences
            if matchers.matches(item.labels)
        ]

    def _wants(self, route: Route, cause: Item) -> bool:
        key = route.number, cause.fingerprint
        if key not in self._wanted:
            self._wanted[key] = route_refusal(route, cause.severity, cause.labels) is None
        return self._wanted[key]
