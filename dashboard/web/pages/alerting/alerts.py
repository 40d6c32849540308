"""Alerts: firing, pending and resolved; each with the reason why it was notified or not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse

from dashboard.alerts import queries as alert_queries
from dashboard.labels.alert import ALERT_STATES, VOICES
from dashboard.labels.rule import rule_label
from dashboard.models import Alert
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ALERTS
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access, cluster_limits
from dashboard.system.access import actor_of
from dashboard.web import addresses, notification_reasons, page_context
from dashboard.web.errors import or_404
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.chips import ChipRow, Filters, marked_labels, plain_labels
from dashboard.web.list_pages import list_view
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number

#: Maximum changes, and actions, on the page of one alert.
_CHANGES = 50
_ACTIONS = 5


@dataclass(frozen=True, slots=True)
class AlertLine:
    """One alert of a list, with the reasons why it was notified or not."""

    of: Alert
    reasons: Sequence[notification_reasons.NotificationReason]


@dataclass(frozen=True, slots=True)
class AlertSection:
    """Alerts of one state on this page, and the number of all alerts in that state."""

    state: str
    lines: Sequence[AlertLine]
    number: int


class AlertListQuery(list_forms.NumberedList, alert_queries.AlertCriteria):
    """The query string of the list."""

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
    """Show one page of the alerts that match the query string."""
    frame, now = page_context.chrome_of(request), now_ms(request)
    page = alert_queries.alert_page(wanted, page=wanted.page, size=wanted.size, now_ms=now)
    whole = alert_queries.AlertCriteria.between(wanted.from_ms, wanted.to_ms, cluster=frame.cluster)
    counts = alert_queries.alert_counts(whole, now_ms=now)
    shown = alert_queries.alert_counts(wanted, now_ms=now)
    last, notified = alert_queries.last_changes(page.items), alert_queries.last_notifications(page.items)
    lines = [
        AlertLine(row, notification_reasons.alert_reasons(row, last.get(row.pk), notified[row.pk]))
        for row in page.items
    ]
    # Channels and silences belong to all clusters: a caller with limited clusters must not learn their
    # number.
    sees_all = cluster_limits.may_open("channels")
    channels = alert_queries.list_channels() if sees_all else []
    return {
        "page": page,
        "parts": [
            AlertSection(state, list(rows), shown[state])
            for state, rows in groupby(lines, attrgetter("of.state"))
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
        "reasons": notification_reasons.alert_reasons(
            alert, changes[0] if changes else None, alert_queries.last_notifications([alert])[alert.pk]
        ),
        "changes": [(change, notification_reasons.change_reasons(change)) for change in changes],
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


ROUTES = (
    PageRoute(
        "alerts",
        "alerts",
        alert_list,
        search=_search,
        plural="alerts",
        key="l",
        heading="Respond",
        shows=ALERTS,
        searched="alerts",
        has_files=True,
        is_ranged=True,
        lists_open=True,
    ),
    PageRoute("alert", "alerts/<int:number>", alert_detail, parent="alerts"),
)
