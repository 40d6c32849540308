"""Silences: their alerts, authors and ends; making a silence with a preview, and ending it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse

from dashboard.alerts import queries as alert_queries
from dashboard.alerts import silences, validation
from dashboard.models import Alert, Silence
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import action_view, forbidden_page, or_404, render_page, signed_in
from dashboard.web.routes import PageRoute
from fenceline.alerts.labels import matchers_text, parse_matchers
from fenceline.formatting import format_duration

_EXPIRED = 50
#: Durations that the form offers, in seconds.
_LASTS = tuple(
    (str(s), format_duration(s * 1_000)) for s in (900, 3_600, 7_200, 14_400, 28_800, 86_400, 604_800)
)
_USUAL = "7200"
#: Labels that identify one alert.
_ONE = ("alertname", "cluster", "subject", "query_name")


@signed_in
def silence_list(request: HttpRequest) -> HttpResponse:
    now = now_ms(request)
    active = list(alert_queries.list_silences("active", now_ms=now))
    scheduled = list(alert_queries.list_silences("scheduled", now_ms=now))
    moves = ([row.pk for row in active], [row.pk for row in scheduled])
    return render_page(request, "silences/list", lambda: _list(request, active, scheduled), depends_on=moves)


@signed_in
def silence_detail(request: HttpRequest, number: int) -> HttpResponse:
    silence, now = _found(number), now_ms(request)
    state = alert_queries.state_of(silence, now_ms=now)
    return render_page(request, "silences/detail", lambda: _detail(request, silence, state), depends_on=state)


@signed_in
def new_form(request: HttpRequest) -> HttpResponse:
    """Show a form: empty, for an alert (`alert=N`), or with the matchers of a silence (`silence=N`)."""
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    text = request.GET.get("matchers", "")
    if alert := alert_queries.find_alert(_number(request, "alert")):
        text = matchers_text([(name, "=", alert.labels[name]) for name in _ONE if name in alert.labels])
    elif silence := alert_queries.find_silence(_number(request, "silence")):
        text = matchers_text(silence.matchers)
    return _form(request, {"matchers": text, "lasts": _USUAL}, {})


@signed_in
def preview_silence(request: HttpRequest) -> HttpResponse:
    """Show which alerts the matchers would silence now, or the errors of the matchers."""
    shown = _previewed(request.GET.get("matchers", ""))
    response = render(request, "silences/_preview.html", shown)
    response.headers["Cache-Control"] = "no-store"
    return response


@action_view
def make_silence(request: HttpRequest) -> HttpResponse:
    """Make a silence and show it, or show the form again with the errors."""
    actor = actor_of(request, "page")
    if refused := access.permission_refusal(actor, access.SILENCE):
        return forbidden_page(request, refused)
    try:
        row = silences.create_silence(_draft(request.POST), by=actor.name, now_ms=now_ms(request))
    except validation.Unfit as error:
        return _form(request, request.POST.dict(), error.fields)
    return HttpResponseRedirect(reverse("silence", args=[row.pk]), status=303)


@action_view
def end_silence(request: HttpRequest, number: int) -> HttpResponse:
    actor, silence = actor_of(request, "page"), _found(number)
    if refused := access.permission_refusal(actor, access.SILENCE):
        return forbidden_page(request, refused)
    silences.end_silence(silence, by=actor.name, now_ms=now_ms(request))
    return HttpResponseRedirect(reverse("silence", args=[number]), status=303)


def _found(number: int) -> Silence:
    return or_404(alert_queries.find_silence(number), "Unknown silence.")


def _refusal(request: HttpRequest) -> str:
    return access.permission_refusal(actor_of(request, "page"), access.SILENCE)


def _number(request: HttpRequest, key: str) -> int:
    value = request.GET.get(key, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else 0


def _list(request: HttpRequest, active: Sequence[Silence], scheduled: Sequence[Silence]) -> Mapping[str, Any]:
    page = alert_queries.silences_page(page=request.GET.get("page"), size=_EXPIRED, now_ms=now_ms(request))
    alerts = alert_queries.active_labels() if active else ()
    return {
        "active": active,
        "lists": [
            ("active", [(row, len(silences.matching_alerts(row.matchers, alerts))) for row in active]),
            ("scheduled", [(row, 0) for row in scheduled]),
            ("expired", [(row, 0) for row in page.items]),
        ],
        "any": bool(active or scheduled or page.items),
        "page": page,
        "cannot_silence": _refusal(request),
    }


def _detail(request: HttpRequest, row: Silence, state: str) -> Mapping[str, Any]:
    quieted: Sequence[Alert] = () if state == "expired" else silences.matching_alerts(row.matchers)
    return {"row": row, "state": state, "quieted": quieted, "cannot_silence": _refusal(request)}


def _previewed(text: str) -> Mapping[str, Any]:
    """Return the alerts that the matchers match, or the matchers' errors, for the preview."""
    if not text.strip():
        return {"wrong": "Enter matchers to see the alerts that match now.", "found": ()}
    try:
        matchers = silences.fit_matchers(parse_matchers(text), none_allowed=False)
    except ValueError as error:
        return {"wrong": str(error), "found": ()}
    return {"wrong": "", "found": silences.matching_alerts(matchers)}


def _form(request: HttpRequest, values: Mapping[str, Any], wrong: Mapping[str, str]) -> HttpResponse:
    shown = {
        "values": values,
        "problems": wrong,
        "lasts": _LASTS,
        "labels": validation.LABELS,
        "preview": _previewed(str(values.get("matchers", ""))),
    }
    return render(request, "silences/new.html", shown, status=422 if wrong else 200)


def _draft(asked: QueryDict) -> silences.SilenceDraft:
    """Return the draft from a form; unparsable instants become errors of its check."""
    lasts = asked.get("lasts", "")
    return silences.SilenceDraft(
        matchers=partial(parse_matchers, asked.get("matchers", "")),
        reason=asked.get("reason", ""),
        starts=partial(_instant, asked.get("starts", ""), "start"),
        ends=partial(_instant, asked.get("ends", ""), "end"),
        lasts_ms=int(lasts) * 1_000 if lasts in dict(_LASTS) else None,
    )


def _instant(text: str, what: str) -> int | None:
    """Return an instant in milliseconds, None for ""; raises ValueError for text that is not a date."""
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"The {what} “{validation.clip_text(text)}” is no date and time.") from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000)


ROUTES = (
    PageRoute(
        "silences",
        "silences",
        silence_list,
        parent="alerts",
        has_files=True,
        as_of_now="Changes of silences are in the audit log.",
    ),
    PageRoute("silence-new", "silences/new", new_form, parent="silences"),
    PageRoute("silence-preview", "silences/preview", preview_silence),
    PageRoute("silence-make", "silences/make", make_silence),
    PageRoute("silence", "silences/<int:number>", silence_detail, parent="silences"),
    PageRoute("silence-end", "silences/<int:number>/end", end_silence),
)
