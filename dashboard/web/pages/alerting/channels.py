"""Channels: receivers and their messages; adding, changing, testing, disabling and deleting them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse

from dashboard.alerts import channels, deliver, validation
from dashboard.alerts import queries as alert_queries
from dashboard.labels.alert import CHANNEL_KINDS
from dashboard.models import Channel, Delivery
from dashboard.system import access
from dashboard.system.access import Actor, actor_of
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import PageRoute
from fenceline.alerts import redact
from fenceline.alerts.labels import matchers_text, parse_matchers

_DELIVERIES = 10
#: The session's key for channels whose secret it may see once, because it made or rotated the secret.
_UNSEEN = "unseen_secrets"


@signed_in
def channel_list(request: HttpRequest) -> HttpResponse:
    rows = alert_queries.list_channels()
    last = alert_queries.last_deliveries(rows)
    moves = [(row.pk, row.failures, row.enabled, _moves(last.get(row.pk))) for row in rows]
    return render_page(request, "channels/list", lambda: _list(request, rows, last), depends_on=moves)


@signed_in
def channel_detail(request: HttpRequest, number: int) -> HttpResponse:
    channel, problem = _found(number), error_note(request)
    test = alert_queries.last_deliveries([channel], origin=Delivery.Origin.TEST).get(channel.pk)
    last = alert_queries.list_deliveries(
        alert_queries.DeliveryCriteria(channel=channel.pk), before=None, limit=_DELIVERIES
    )
    moves = (
        channel.failures,
        channel.enabled,
        channel.old_secret == "",
        problem,
        [_moves(row) for row in last],
    )
    return render_page(
        request, "channels/detail", lambda: _detail(request, channel, test, last, problem), depends_on=moves
    )


@signed_in
def new_form(request: HttpRequest) -> HttpResponse:
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    preset = {"kind": Channel.Kind.WEBHOOK.value, "min_severity": "warning", "send_resolved": "on"}
    return _form(request, None, preset, {})


@action_view
def add(request: HttpRequest) -> HttpResponse:
    """Store a new channel and show its secret, or show the form again with the errors."""
    actor = actor_of(request, "page")
    if refused := access.permission_refusal(actor, access.CHANNELS):
        return forbidden_page(request, refused)
    try:
        row = channels.add(_draft(request.POST), by=actor.name)
    except validation.Unfit as error:
        return _form(request, None, request.POST.dict(), error.fields)
    return _shown(request, row) if row.secret else _at(row)


@signed_in
def edit(request: HttpRequest, number: int) -> HttpResponse:
    """Show a form with a channel's settings; its address stays hidden."""
    channel = _found(number)
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    values = {
        "name": channel.name,
        "kind": channel.kind,
        "min_severity": channel.min_severity,
        "matchers": matchers_text(channel.matchers),
        "group_by": ", ".join(channel.group_by),
        "send_resolved": "on" if channel.send_resolved else "",
    }
    waits = {name: _plain(getattr(channel, name)) for name, *_ in channels.WAITS}
    return _form(request, channel, values | waits, {})


@action_view
def change(request: HttpRequest, number: int) -> HttpResponse:
    """Change a channel, or show the form again with the errors."""
    channel = _found(number)
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    try:
        channels.change(channel, _draft(request.POST, kind=channel.kind))
    except validation.Unfit as error:
        return _form(request, _found(number), request.POST.dict(), error.fields)
    return _at(channel)


@signed_in
def show_secret(request: HttpRequest, number: int) -> HttpResponse:
    """Show a channel's secret once, to the session that made it."""
    channel = _found(number)
    unseen = request.session.get(_UNSEEN, [])
    if channel.pk not in unseen or _refusal(request):
        return _private(render(request, "channels/secret.html", {"row": channel, "secret": ""}))
    request.session[_UNSEEN] = [key for key in unseen if key != channel.pk]
    return _private(render(request, "channels/secret.html", {"row": channel, "secret": channel.secret}))


@signed_in
def confirm_delete(request: HttpRequest, number: int) -> HttpResponse:
    channel = _found(number)
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    return render(
        request, "channels/delete.html", {"row": channel, "number": alert_queries.deliveries_of(channel)}
    )


@action_view
def delete(request: HttpRequest, number: int) -> HttpResponse:
    channel = _found(number)
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    channels.delete(channel)
    return HttpResponseRedirect(reverse("channels"), status=303)


def _act(
    permission: str, do: Callable[[Channel, Actor], object], *, makes_secret: bool = False
) -> Callable[..., HttpResponse]:
    """Return a view that changes a channel and shows it again, or shows the reason of a refusal."""

    def view(request: HttpRequest, number: int) -> HttpResponse:
        actor, channel = actor_of(request, "page"), _found(number)
        if refused := access.permission_refusal(actor, permission):
            return forbidden_page(request, refused)
        try:
            do(channel, actor)
        except (validation.Unfit, deliver.CannotSend) as error:
            flash_refusal(request, reverse("channel", args=[number]), str(error))
            return _at(channel)
        return _shown(request, channel) if makes_secret else _at(channel)

    return action_view(view)


rotate = _act(access.CHANNELS, lambda row, _: channels.rotate_secret(row), makes_secret=True)
end_old = _act(access.CHANNELS, lambda row, _: channels.end_old(row))
enable = _act(access.CHANNELS, lambda row, _: channels.enable(row))
disable = _act(access.CHANNELS, lambda row, actor: channels.disable(row, by=actor.name))
test = _act(access.SEND, lambda row, _: deliver.send_test(row))


def _found(number: int) -> Channel:
    return or_404(alert_queries.find_channel(number), "Unknown channel.")


def _refusal(request: HttpRequest) -> str:
    return access.permission_refusal(actor_of(request, "page"), access.CHANNELS)


def _at(row: Channel) -> HttpResponse:
    return HttpResponseRedirect(reverse("channel", args=[row.pk]), status=303)


def _shown(request: HttpRequest, row: Channel) -> HttpResponse:
    request.session[_UNSEEN] = [*request.session.get(_UNSEEN, []), row.pk]
    return HttpResponseRedirect(reverse("channel-secret", args=[row.pk]), status=303)


def _private(response: HttpResponse) -> HttpResponse:
    response.headers["Cache-Control"] = "no-store"
    return response


def _moves(row: Delivery | None) -> object:
    return row and (row.pk, row.state, row.attempts, row.next_at)


def _list(request: HttpRequest, rows: Sequence[Channel], last: Mapping[int, Delivery]) -> Mapping[str, Any]:
    return {
        "channels": rows,
        "rows": [(row, last.get(row.pk)) for row in rows],
        "enabled": sum(row.enabled for row in rows),
        "cannot_change": _refusal(request),
    }


def _detail(
    request: HttpRequest, row: Channel, test: Delivery | None, last: Sequence[Delivery], problem: str
) -> Mapping[str, Any]:
    limits = settings.FENCELINE.alerts
    own = [(words, getattr(row, name), getattr(limits, name)) for name, words, *_ in channels.WAITS]
    return {
        "row": row,
        "test": test,
        "deliveries": last,
        "retried": any(delivery.state == Delivery.State.PENDING and delivery.attempts for delivery in last),
        "number": alert_queries.deliveries_of(row),
        "group_by": row.group_by or limits.group_by,
        "waits": [
            (words, usual if value is None else value, value is not None) for words, value, usual in own
        ],
        "disable_after": limits.disable_after,
        "problem": problem,
        "receiver": settings.DEMO_RECEIVER if channels.is_demo_receiver(row.url) else "",
        "cannot_change": _refusal(request),
        "cannot_send": access.permission_refusal(actor_of(request, "page"), access.SEND),
    }


def _form(
    request: HttpRequest, row: Channel | None, values: Mapping[str, Any], wrong: Mapping[str, str]
) -> HttpResponse:
    limits = settings.FENCELINE.alerts
    shown = {
        "row": row,
        "values": values,
        "wrong": wrong,
        "known_url": redact.redact_url(row.url) if row else "",
        "is_new": row is None,
        "kinds": CHANNEL_KINDS.items(),
        "severities": [(severity, severity) for severity in channels.SEVERITIES],
        "labels": validation.LABELS,
        "usual_group_by": ", ".join(limits.group_by),
        "waits": [
            (name, f"{words} (seconds)", values.get(name, ""), getattr(limits, name), wrong.get(name, ""))
            for name, words, *_ in channels.WAITS
        ],
    }
    return _private(render(request, "channels/form.html", shown, status=422 if wrong else 200))


def _plain(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g}" if seconds < 1e6 else f"{seconds:.0f}"


def _draft(asked: QueryDict, *, kind: str = "") -> channels.ChannelDraft:
    names = asked.get("group_by", "").replace("\n", ",").split(",")
    return channels.ChannelDraft(
        name=asked.get("name", ""),
        kind=kind or asked.get("kind", ""),
        url=asked.get("url", ""),
        min_severity=asked.get("min_severity", ""),
        matchers=partial(parse_matchers, asked.get("matchers", "")),
        group_by=[name.strip() for name in names if name.strip()],
        waits={name: asked.get(name, "").strip() for name, *_ in channels.WAITS},
        send_resolved=bool(asked.get("send_resolved")),
    )


ROUTES = (
    PageRoute(
        "channels",
        "channels",
        channel_list,
        parent="alerts",
        has_files=True,
        as_of_now="Changes of channels are in the audit log.",
    ),
    PageRoute("channel-new", "channels/new", new_form, parent="channels"),
    PageRoute("channel-add", "channels/add", add),
    PageRoute("channel", "channels/<int:number>", channel_detail, parent="channels"),
    PageRoute("channel-edit", "channels/<int:number>/edit", edit, parent="channels"),
    PageRoute("channel-change", "channels/<int:number>/change", change),
    PageRoute("channel-secret", "channels/<int:number>/secret", show_secret, parent="channels"),
    PageRoute("channel-rotate", "channels/<int:number>/rotate", rotate),
    PageRoute("channel-end-old", "channels/<int:number>/end-old", end_old),
    PageRoute("channel-enable", "channels/<int:number>/enable", enable),
    PageRoute("channel-disable", "channels/<int:number>/disable", disable),
    PageRoute("channel-test", "channels/<int:number>/test", test),
    PageRoute("channel-delete", "channels/<int:number>/delete", confirm_delete, parent="channels"),
    PageRoute("channel-delete-now", "channels/<int:number>/delete-now", delete),
)
