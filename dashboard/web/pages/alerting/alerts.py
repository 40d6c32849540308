"""Alerts: firing, pending and resolved; each with the reason why it was notified or not. The documentation's
pages of rules: the meaning of each rule, its causes, and what to do.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.urls import reverse

from dashboard.alerts import queries as alert_queries
from dashboard.alerts.alert_set import state_of
from dashboard.alerts.queries import DecidedChange, NotificationOutcome
from dashboard.labels.alert import ALERT_STATES, VOICES, rule_label
from dashboard.models import Alert, Delivery
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ALERTS
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access, cluster_limits
from dashboard.system.access import actor_of
from dashboard.web import action_buttons, addresses, markdown, page_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import ChipRow, Filters, marked_labels, plain_labels
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import list_view, or_404, page_view, render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number
from fenceline.alerts import engine
from fenceline.findings import current_name, removed_rule
from fenceline.formatting import format_clock
from fenceline.rules import RULES

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
    if row.flapping_ms is not None:
        why = engine.why_flapping(state_of(row), settings.FENCELINE.alerts)
        words = f"since {format_clock(row.flapping_ms)}: {why}"
        reasons.append(NotificationReason("flapping", "warning", words))
    reasons += _deliveries(notified)
    # The reason for suppression is also the channels' reason, so it is shown once.
    if change is not None and not row.quiet:
        reached = {fate.channel.pk for fate in notified if fate.channel}
        reasons += _skipped(
            [fate for fate in change.fates if fate.channel and fate.channel.pk not in reached]
        )
    return reasons


def change_reasons(change: DecidedChange) -> Sequence[NotificationReason]:
    """Return the outcome of a change for each channel: deliveries first, then reasons against one."""
    return [*_deliveries(change.fates), *_skipped(change.fates)]


def _deliveries(rows: Sequence[NotificationOutcome]) -> Sequence[NotificationReason]:
    return [_delivery(fate.delivery, fate) for fate in rows if fate.delivery is not None]


def _quiet(kind: str, what: str, words: str) -> NotificationReason:
    """Return the reason that keeps an alert quiet; `what` is `#` and a number, or a channel's name."""
    word, tone, number = kind.replace("_", " "), _TONES.get(kind, "unknown"), what.removeprefix("#")
    if kind in _PAGES and number.isascii() and number.isdigit():
        return NotificationReason(word, tone, words, reverse(_PAGES[kind], args=[int(number)]), f"#{number}")
    return NotificationReason(word, tone, f"{what} {words}".strip())


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


#: Maximum changes, and actions, on the page of one alert.
_CHANGES = 50
_ACTIONS = 5


class AlertListQuery(list_forms.NumberedList, alert_queries.AlertCriteria):
    state: Literal["", "firing", "pending", "resolved"] = ""


@signed_in
def alert_detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show one alert: its labels, its changes, and the notifications of each change by channel."""
    alert = or_404(alert_queries.find_alert(number), "Unknown alert.")
    return render_page(request, "alerts/detail", lambda: _detail(request, alert), depends_on=_moves(request))


def _moves(request: HttpRequest, *_: object) -> object:
    # The meaning of "recently" resolved changes with the clock, and deliveries have no revision.
    return (now_ms(request) // 60_000, alert_queries.notification_revision())


@list_view("alerts/list", AlertListQuery, depends_on=_moves)
def alert_list(request: HttpRequest, wanted: AlertListQuery) -> Mapping[str, Any]:
    frame, now = page_context.chrome_of(request), now_ms(request)
    page = alert_queries.alert_page(wanted, page=wanted.page, size=wanted.size, now_ms=now)
    whole = alert_queries.AlertCriteria.between(wanted.from_ms, wanted.to_ms, cluster=frame.cluster)
    counts = alert_queries.alert_counts(whole, now_ms=now)
    shown = alert_queries.alert_counts(wanted, now_ms=now)
    last, notified = alert_queries.last_changes(page.items), alert_queries.last_notifications(page.items)
    lines: Sequence[Mapping[str, Any]] = [
        {"of": row, "reasons": alert_reasons(row, last.get(row.pk), notified[row.pk])} for row in page.items
    ]
    # Channels and silences belong to all clusters: a caller with limited clusters must not learn their
    # number.
    sees_all = cluster_limits.may_open("channels")
    channels = alert_queries.list_channels() if sees_all else []
    return {
        "page": page,
        "parts": [
            {"state": state, "lines": list(rows), "number": shown[state]}
            for state, rows in groupby(lines, lambda line: line["of"].state)
        ],
        "rows": page.items,
        "counts": counts.items(),
        "filters": _filters(request, wanted, counts),
        "headline": _headline(frame, counts, page.total),
        "sees_all": sees_all,
        "silences": alert_queries.list_silences("active", now_ms=now).count() if sees_all else 0,
        "channels": channels,
        "disabled": [row for row in channels if not row.enabled],
        "cannot_silence": _cannot_silence(request),
    }


def _cannot_silence(request: HttpRequest) -> str:
    refused = access.permission_refusal(actor_of(request, "page"), access.SILENCE)
    return refused or cluster_limits.why_closed("silences")


def _filters(request: HttpRequest, wanted: AlertListQuery, counts: Mapping[str, int]) -> Sequence[ChipRow]:
    """Return the chips of states, of whether alerts were notified, and of severities, with two menus."""
    filters, cluster = Filters(request.GET, wanted), page_context.chrome_of(request).cluster
    severities = parameter_choices(AlertListQuery, "severity")
    rules = {name: rule_label(name) for name in alert_queries.alert_rules(cluster)}
    teams = {name: name for name in alert_queries.alert_teams(cluster)}
    menus = [filters.menu(name, words) for name, words in (("rule", rules), ("team", teams)) if words]
    marks = marked_labels(severities)
    return [
        filters.row("state", counts, ALERT_STATES),
        filters.row("voice", parameter_choices(AlertListQuery, "voice"), plain_labels(VOICES), every=""),
        filters.row("severity", severities, marks, every="any severity", menus=menus),
    ]


def _headline(frame: page_context.Chrome, counts: Mapping[str, int], number: int) -> str:
    """Return whether alerts fire and are notified; for a past range, the number of alerts."""
    if not frame.clusters:
        return "No cluster is configured."
    if frame.freshness.unseen:
        return "The first read is still in progress."
    if not frame.time_range.is_live:
        return time_ranges.range_headline(number, "alert", frame.time_range)
    firing = counts[Alert.State.FIRING]
    if not firing:
        return "No firing alerts."
    waiting, quiet = alert_queries.unnotified_counts(frame.cluster)
    fires = f"{firing:,} firing {'alert' if firing == 1 else 'alerts'}"
    parts = [_some(quiet, firing, "not notified"), _some(waiting, firing, "notification pending")]
    return f"{'; '.join([fires, *filter(None, parts), *_missed(frame.cluster, firing)])}."


def _missed(cluster: str, of: int) -> Sequence[str]:
    number = alert_queries.undelivered_count(cluster)
    if not number:
        return ()
    return (f"{number:,} not delivered" if of > 1 else "not delivered",)


def _some(number: int, of: int, what: str) -> str:
    """Return `2 not notified`, `none notified` if that is all of several, "" for none."""
    if not number:
        return ""
    if number == of and what == "not notified":
        return "none notified" if of > 1 else what
    return f"{number:,} {what}" if of > 1 else what


def _detail(request: HttpRequest, alert: Alert) -> Mapping[str, Any]:
    changes = alert_queries.alert_changes(alert, limit=_CHANGES)
    return {
        "row": alert,
        "cluster": alert.cluster.name,
        "reasons": alert_reasons(
            alert, changes[0] if changes else None, alert_queries.last_notifications([alert])[alert.pk]
        ),
        "changes": [(change, change_reasons(change)) for change in changes],
        "labels": sorted(alert.labels.items()),
        "annotations": sorted(alert.annotations.items()),
        "actions": alert_queries.actions_of(alert, limit=_ACTIONS),
        "cannot_silence": _cannot_silence(request),
    }


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    number = asked_number(asked)
    one = None if number is None else alert_queries.find_alert(number)
    criteria = alert_queries.AlertCriteria(cluster=cluster, state="all", q=asked)
    rows = alert_queries.alerts_before(None, criteria, limit=MOST_HITS, now_ms=loop.now_ms())
    for row in {candidate.pk: candidate for candidate in [*([one] if one else []), *rows]}.values():
        yield Hit(
            f"#{row.pk}", addresses.alert_url(row.pk), f"{row.state} · {rule_label(row.rule)} · {row.subject}"
        )


#: Maximum findings on a rule's page.
_FINDINGS = 20


@page_view("rules/list")
def rule_list(request: HttpRequest) -> Mapping[str, Any]:
    """Show every rule with the number of its findings."""
    active = Counter(row.rule for row in page_context.chrome_of(request).all_findings)
    return {"rules": [(entry, active[entry.name]) for entry in markdown.rule_index()]}


@signed_in
def rule_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a rule's page with the limits in effect and its findings; a former name redirects."""
    if current_name(name) != name:
        asked = request.META.get("QUERY_STRING", "")
        return HttpResponsePermanentRedirect(
            f"{addresses.rule_url(current_name(name))}{asked and '?'}{asked}"
        )
    body = markdown.render_rule(name, settings.FENCELINE.limits) if name.islower() else None
    if body is None:
        raise Http404(removed_rule(name) or f"No rule is called “{name}”.")

    def read() -> Mapping[str, Any]:
        findings = [row for row in page_context.chrome_of(request).all_findings if row.rule == name]
        cards = action_buttons.finding_cards(request, findings[:_FINDINGS])
        return {"name": name, "body": body, "found": findings, "cards": cards}

    return render_page(request, "rules/detail", read)


def _search_rules(_: str, asked: str) -> Iterable[Hit]:
    small = asked.casefold()
    names = [name for name in RULES if small in name or small in rule_label(name).casefold()]
    return [Hit(rule_label(name), addresses.rule_url(name)) for name in names]


ROUTES = (
    PageRoute(
        "alerts",
        "alerts",
        alert_list,
        search=_search,
        key="l",
        heading="Respond",
        shows=ALERTS,
        searched="alerts",
        has_files=True,
        is_ranged=True,
        lists_open=True,
    ),
    PageRoute("alert", "alerts/<int:number>", alert_detail, parent="alerts"),
    PageRoute(
        "rules",
        "rules",
        rule_list,
        search=_search_rules,
        parent="alerts",
        as_of_now="Findings of the range that you chose are among the events.",
    ),
    PageRoute(
        "rule",
        "rules/<slug:name>",
        rule_page,
        parent="rules",
        as_of_now="Findings of the range that you chose are among the events.",
    ),
)
