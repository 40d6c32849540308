"""Alerts: firing, pending and resolved; each with the reason why it was notified or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.alerts import queries as alert_queries
from dashboard.models import Alert
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web import notification_reasons, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in

#: How many changes, and acts, the page of one alert shows.
_CHANGES = 50
_ACTIONS = 5


@dataclass(frozen=True, slots=True)
class AlertLine:
    """One alert of a list, and why it was notified or not."""

    of: Alert
    reasons: Sequence[notification_reasons.NotificationReason]


@dataclass(frozen=True, slots=True)
class AlertSection:
    """Alerts of one state, as far as this page shows them, and how many there are in all."""

    state: str
    lines: Sequence[AlertLine]
    number: int


class AlertListQuery(list_forms.NumberedList, alert_queries.AlertCriteria):
    """The query string of the list."""

    state: Literal["", "firing", "pending", "resolved"] = ""


@signed_in
def alert_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the alerts that the query string asks for."""
    wanted = list_forms.read_request(request, AlertListQuery)
    # Whether something is "recently" resolved moves with the clock, and deliveries have no revision.
    return render_page(request, "alerts/list", lambda: _list(request, wanted), depends_on=_moves(request))


@signed_in
def alert_detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show one alert: its labels, its changes, and what came of each for every channel."""
    found = alert_queries.find_alert(number)
    if found is None:
        raise Http404("Unknown alert.")
    return render_page(request, "alerts/detail", lambda: _detail(request, found), depends_on=_moves(request))


def _moves(request: HttpRequest) -> object:
    return (now_ms(request) // 60_000, alert_queries.notification_revision())


def _list(request: HttpRequest, wanted: AlertListQuery) -> Mapping[str, Any]:
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
    channels = alert_queries.list_channels()
    return {
        "wanted": wanted,
        "page": page,
        "parts": [
            AlertSection(state, list(rows), shown[state])
            for state, rows in groupby(lines, attrgetter("of.state"))
        ],
        "counts": counts.items(),
        "severities": parameter_choices(AlertListQuery, "severity"),
        "voices": parameter_choices(AlertListQuery, "voice"),
        "rules": alert_queries.alert_rules(frame.cluster),
        "teams": alert_queries.alert_teams(frame.cluster),
        "headline": _headline(frame, counts, page.total),
        "silences": alert_queries.list_silences("active", now_ms=now).count(),
        "channels": channels,
        "disabled": [row for row in channels if not row.enabled],
        "several": len(frame.clusters) > 1 and not frame.cluster,
        "sizes": list_forms.SIZES,
        "cannot_silence": access.permission_refusal(actor_of(request, "page"), access.SILENCE),
        "empty": "" if page.items else why_empty(frame, narrowed=wanted.narrowed),
    }


def _headline(frame: page_context.Chrome, counts: Mapping[str, int], number: int) -> str:
    """Return whether anything fires and anybody is notified; of a range how many alerts it has."""
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
    """Return `2 not notified`, or `none notified` of several, "" for none."""
    if not number:
        return ""
    if number == of and what == "not notified":
        return "none notified" if of > 1 else what
    return f"{number:,} {what}" if of > 1 else what


def _detail(request: HttpRequest, found: Alert) -> Mapping[str, Any]:
    changes = alert_queries.alert_changes(found, limit=_CHANGES)
    return {
        "row": found,
        "cluster": found.cluster.name,
        "reasons": notification_reasons.alert_reasons(
            found, changes[0] if changes else None, alert_queries.last_notifications([found])[found.pk]
        ),
        "changes": [(change, notification_reasons.change_reasons(change)) for change in changes],
        "labels": sorted(found.labels.items()),
        "annotations": sorted(found.annotations.items()),
        "actions": alert_queries.actions_of(found, limit=_ACTIONS),
        "cannot_silence": access.permission_refusal(actor_of(request, "page"), access.SILENCE),
    }
