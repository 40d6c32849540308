"""Decide which messages a channel gets, and when: alerts of a cluster in groups, one message per change.
Pure.

As in Alertmanager: the first message of a group waits for more alerts, later ones keep an interval, and
alerts that continue to fire are repeated. Unlike there, due messages follow only from the alerts and each
group's newest message: these are rows, and a restart forgets nothing. A group's next message waits for the
delivery of the one before, so that no receiver gets an end before the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fenceline.alerts.engine import Alerting
from fenceline.alerts.labels import CompilePattern, MatcherSet, matchers_text, page_of
from fenceline.alerts.payload import MOST_ALERTS, GroupMessage, Notice, SendReason
from fenceline.findings import is_worse, severity_rank
from fenceline.formatting import fit_name
from fenceline.incidents.findings import IncidentCause

#: An Alertmanager groups and waits by itself: it is notified at once, and again before it would resolve
#: alerts.
_ALERTMANAGER_INTERVAL_MS, _ALERTMANAGER_REPEAT_MS = 5_000, 120_000
_LONGEST_KEY = 500


@dataclass(frozen=True, slots=True)
class Route:
    """A channel's wanted alerts, and the intervals of its groups; `off` is why it gets none."""

    number: int
    name: str
    kind: str
    min_severity: str
    matchers: MatcherSet
    group_by: tuple[str, ...]
    wait_ms: int
    interval_ms: int
    repeat_ms: int
    send_resolved: bool = True
    off: str = ""

    @property
    def lives_ms(self) -> int:
        """Return how long an Alertmanager may treat an alert as firing without another message."""
        return 3 * self.repeat_ms


def channel_route(
    *,
    number: int,
    name: str,
    kind: str,
    min_severity: str,
    matchers: Iterable[Sequence[str]],
    group_by: Sequence[str],
    waits_s: tuple[float | None, float | None, float | None],
    send_resolved: bool,
    off: str,
    limits: Alerting,
    compile_pattern: CompilePattern,
) -> Route:
    """Return a channel's route, with defaults from `[alerts]`."""
    is_am = kind == "alertmanager"
    usual = (0.0, _ALERTMANAGER_INTERVAL_MS / 1_000, _ALERTMANAGER_REPEAT_MS / 1_000)
    if not is_am:
        usual = (limits.group_wait_s, limits.group_interval_s, limits.repeat_interval_s)
    wait, interval, repeat = (
        int(1_000 * (default if own is None else own)) for own, default in zip(waits_s, usual, strict=True)
    )
    # Alertmanager treats another severity or incident as another alert: the old one must end.
    labels = ("severity", "incident", *group_by) if is_am else (group_by or limits.group_by)
    return Route(
        number, name, kind, min_severity, MatcherSet(matchers, compile_pattern),
        tuple(dict.fromkeys(labels)), wait, interval, repeat, send_resolved, off,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """An alert as an item of groups; the fingerprint (hexadecimal) is its identity."""

    fingerprint: str
    number: int
    rule: str
    subject: str
    severity: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    affected: Sequence[str]
    firing: bool
    fired_ms: int
    #: Since when only waits keep it quiet; None while another reason does.
    loud_ms: int | None = None
    resolved_ms: int | None = None
    #: The incidents in which its finding is an effect, with their causes.
    causes: Sequence[IncidentCause] = ()

    def unmuted_since(self, loud_ms: int | None) -> Item:
        """Return it with the instant since which only waiting times keep it quiet."""
        return self if self.loud_ms == loud_ms else replace(self, loud_ms=loud_ms)


class LastNotification(NamedTuple):
    """A group's newest message: the state that its receiver knows."""

    number: int
    key: str
    made_ms: int
    #: Severities by fingerprint.
    firing: Mapping[str, str]
    #: Whether it was delivered or given up; the next message waits for that.
    through: bool


class Sending(NamedTuple):
    """One due message, and the group's alerts after it."""

    route: Route
    key: str
    labels: Mapping[str, str]
    reason: SendReason
    firing: Sequence[Item]
    #: Each ended alert with its notified severity.
    over: Sequence[tuple[Item, str]]
    held: Mapping[str, str]
    replaces: LastNotification | None
    new: int = 0


@dataclass(slots=True)
class Outlook:
    """The messages that one channel gets now, and when it gets the others."""

    sendings: list[Sending] = field(default_factory=list)
    #: Messages after which no alert fires any more, and no further message is due.
    cleared: list[LastNotification] = field(default_factory=list)
    #: By fingerprint: the earliest notification; None: once the message before is delivered.
    waits: dict[str, int | None] = field(default_factory=dict)

    def defer_excess(self, most: int, now_ms: int) -> None:
        """Defer messages beyond a maximum to the next tick."""
        for sending in self.sendings[most:]:
            self.waits |= {item.fingerprint: now_ms for item in sending.firing[: sending.new]}
        del self.sendings[most:]


@dataclass(slots=True)
class _Group:
    key: str
    labels: Mapping[str, str]
    items: list[Item] = field(default_factory=list)
    standing: LastNotification | None = None


def route_refusal(route: Route, severity: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a channel does not want an alert, as kind and words; None if it wants it."""
    if severity_rank(severity) < severity_rank(route.min_severity):
        return "below_severity", f"wants {route.min_severity} and worse, and this is {severity}"
    if route.matchers.wrong:
        return "no_match", f"has a matcher that cannot be used: {route.matchers.wrong}"
    if not route.matchers.matches(labels):
        return "no_match", f"wants {route.matchers}"
    return None


def decide_notifications(
    route: Route,
    items: Mapping[str, Item],
    standing: Iterable[LastNotification],
    is_muted: Callable[[Item], bool],
    *,
    cluster: str,
    now_ms: int,
) -> Outlook:
    """Return a channel's notifications about one cluster's alerts.

    `items` are all firing alerts, and those in its groups, as far as known.
    """
    outlook = Outlook()
    firing = (item for item in items.values() if item.firing)
    wanted = [item for item in firing if not route_refusal(route, item.severity, item.labels)]
    keys: dict[str, str] = {}
    groups: dict[str, _Group] = {item.key: _Group(item.key, {}, standing=item) for item in standing}
    for item in wanted:
        labels = {name: item.labels.get(name, "") for name in route.group_by}
        key = keys[item.fingerprint] = group_key(cluster, labels)
        group = groups.setdefault(key, _Group(key, labels))
        group.labels = labels
        group.items.append(item)
    for group in groups.values():
        _decide(outlook, route, group, items, keys, is_muted, now_ms)
    return outlook


def group_key(cluster: str, labels: Mapping[str, str]) -> str:
    """Return the key of a group in Alertmanager's form; groups never span clusters."""
    inner = matchers_text([(name, "=", value) for name, value in sorted(labels.items()) if value])
    return fit_name(f"{{{matchers_text([('cluster', '=', cluster)])}}}:{{{inner}}}", _LONGEST_KEY)


def group_message(sending: Sending, *, external_url: str, now_ms: int) -> GroupMessage:
    """Build the message: new alerts first, and at most MOST_ALERTS."""
    news, known = sending.firing[: sending.new], sending.firing[sending.new :]
    notices = [_notice(item, item.severity, None, external_url) for item in news]
    for item, severity in sending.over:
        ended_ms = now_ms if item.resolved_ms is None or item.firing else item.resolved_ms
        notices.append(_notice(item, severity, ended_ms, external_url))
    notices += [_notice(item, item.severity, None, external_url) for item in known]
    return GroupMessage(
        receiver=sending.route.name,
        group_key=sending.key,
        group_labels={name: value for name, value in sending.labels.items() if value},
        reason=sending.reason,
        notices=notices[:MOST_ALERTS],
        truncated=len(notices[MOST_ALERTS:]),
        external_url=external_url,
    )


def _notice(item: Item, severity: str, ends_ms: int | None, external_url: str) -> Notice:
    labels = {**item.labels, "severity": severity}
    page = page_of(labels, external_url)
    return Notice(item.fingerprint[:16], labels, item.annotations, item.fired_ms, ends_ms, page)


def _decide(
    outlook: Outlook,
    route: Route,
    group: _Group,
    items: Mapping[str, Item],
    keys: Mapping[str, str],
    is_muted: Callable[[Item], bool],
    now_ms: int,
) -> None:
    """Decide one group's message, and add it to `outlook`."""
    standing = group.standing
    known = standing.firing if standing else {}
    unmuted = [item for item in group.items if not is_muted(item)]
    settling = [item for item in unmuted if _is_settling(item, now_ms) and _is_news(item, known)]
    outlook.waits |= {item.fingerprint: item.loud_ms for item in settling}
    quiet = {item.fingerprint for item in settling}
    visible = [item for item in unmuted if item.fingerprint not in quiet]
    new = [item for item in visible if _is_news(item, known)]
    if settling and not new:
        # Its cause has ended: the alert's end is notified with that of the cause, or later.
        return
    over = [key for key in known if _is_over(key, items, keys, group.key)]
    ended = [(items[key], known[key]) for key in over if key in items] if route.send_resolved else []
    left = {key: severity for key, severity in known.items() if key not in set(over)}
    if route.off:
        return
    if standing and not standing.through:
        outlook.waits |= dict.fromkeys([item.fingerprint for item in new])
    elif standing and not (new or ended or left):
        outlook.cleared.append(standing)
    elif new or ended or visible:
        due_ms = _due_ms(route, standing, new, ended, now_ms)
        if due_ms > now_ms:
            outlook.waits |= {item.fingerprint: due_ms for item in new}
            return
        held = left | {item.fingerprint: item.severity for item in visible}
        labels = group.labels or _labels(route, ended)
        firing = _news_first(new, visible)
        reason = _reason(known, new, ended, held)
        sending = Sending(route, group.key, labels, reason, firing, ended, held, standing, len(new))
        outlook.sendings.append(sending)


def _is_news(item: Item, known: Mapping[str, str]) -> bool:
    return item.fingerprint not in known or is_worse(item.severity, known[item.fingerprint])


def _is_settling(item: Item, now_ms: int) -> bool:
    """Whether the suppression of an alert has just ended: the alert may end by itself."""
    return item.loud_ms is not None and item.loud_ms > now_ms


def _is_over(fingerprint: str, items: Mapping[str, Item], keys: Mapping[str, str], key: str) -> bool:
    """Whether an alert of a group no longer fires, or belongs to another group now."""
    item = items.get(fingerprint)
    return item is None or not item.firing or keys.get(fingerprint, key) != key


def _due_ms(
    route: Route,
    standing: LastNotification | None,
    new: Sequence[Item],
    ended: Sequence[tuple[Item, str]],
    now_ms: int,
) -> int:
    """Return when a group's message is due: a first message waits for more alerts, a repeat for its interval.

    An alert that now fires in another group has already waited.
    """
    begun = [item.fired_ms if item.loud_ms is None else item.loud_ms for item in new]
    begun += [now_ms - route.wait_ms if item.firing else item.resolved_ms or 0 for item, _ in ended]
    if not begun:
        return (standing.made_ms if standing else 0) + route.repeat_ms
    due_ms = min(begun) + route.wait_ms
    # After a message about the end of all alerts its group begins anew.
    return max(due_ms, standing.made_ms + route.interval_ms) if standing and standing.firing else due_ms


def _news_first(new: Sequence[Item], visible: Sequence[Item]) -> Sequence[Item]:
    fresh = {item.fingerprint for item in new}
    return [*new, *(item for item in visible if item.fingerprint not in fresh)]


def _reason(
    known: Mapping[str, str], new: Collection[Item], ended: Collection[object], held: Mapping[str, str]
) -> SendReason:
    if new:
        return SendReason.NEW_ALERTS if known else SendReason.FIRST
    if ended:
        return SendReason.NEW_RESOLVED if held else SendReason.ALL_RESOLVED
    return SendReason.REPEAT


def _labels(route: Route, ended: Sequence[tuple[Item, str]]) -> Mapping[str, str]:
    """Return the labels of a group without firing alerts."""
    for item, severity in ended:
        return {name: {**item.labels, "severity": severity}.get(name, "") for name in route.group_by}
    return {}
