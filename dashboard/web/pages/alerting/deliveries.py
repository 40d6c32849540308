"""Deliveries: all messages, their tries with the answers, and sending one again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard.alerts import deliver
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.deliver import notify_pages
from dashboard.labels.alert import DELIVERY_STATES, ORIGINS
from dashboard.models import Delivery
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters, plain_labels
from dashboard.web.per_request import derive_once
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    list_view,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import PageRoute

_ROWS = 50
#: Maximum alerts of a message on its page, and characters of its body.
_NAMED = 50
_LONGEST_BODY = 200_000


class DeliveryListQuery(list_forms.ListByRow, alert_queries.DeliveryCriteria):
    """The query string of the list."""


def _deliveries(request: HttpRequest, wanted: DeliveryListQuery) -> Sequence[Delivery]:
    return derive_once(
        request,
        "deliveries",
        lambda: alert_queries.list_deliveries(wanted, before=wanted.before, limit=_ROWS + 1),
    )


def _moves(request: HttpRequest, wanted: DeliveryListQuery) -> object:
    return [(row.pk, row.state, row.attempts, row.next_at) for row in _deliveries(request, wanted)]


@list_view("deliveries/list", DeliveryListQuery, depends_on=_moves, collected=False)
def delivery_list(request: HttpRequest, wanted: DeliveryListQuery) -> Mapping[str, Any]:
    deliveries = _deliveries(request, wanted)
    channels = {str(row.pk): row.name for row in alert_queries.list_channels()}
    filters = Filters(request.GET, wanted)
    menus = [filters.menu("channel", channels)] if channels else []
    origins = parameter_choices(DeliveryListQuery, "origin")
    return {
        "rows": deliveries[:_ROWS],
        "next": deliveries[_ROWS - 1].pk if len(deliveries) > _ROWS else None,
        "filters": [
            filters.row("state", list(DELIVERY_STATES), DELIVERY_STATES, every="any state"),
            filters.row("origin", origins, plain_labels(ORIGINS), every="any origin", menus=menus),
        ],
    }


@signed_in
def delivery_detail(request: HttpRequest, number: int) -> HttpResponse:
    delivery = _found(number)
    problem = error_note(request)
    moves = (delivery.state, delivery.attempts, delivery.next_at, problem)
    return render_page(
        request, "deliveries/detail", lambda: _detail(request, delivery, problem), depends_on=moves
    )


@action_view
def send_again(request: HttpRequest, number: int) -> HttpResponse:
    """Send a message once more, and show the new delivery."""
    if refused := access.permission_refusal(actor_of(request, "page"), access.SEND):
        return forbidden_page(request, refused)
    delivery, here = _found(number), reverse("delivery", args=[number])
    try:
        here = reverse("delivery", args=[deliver.send_again(delivery).pk])
    except deliver.CannotSend as error:
        flash_refusal(request, here, str(error))
    else:
        notify_pages()
    return HttpResponseRedirect(here, status=303)


def _found(number: int) -> Delivery:
    unknown = "No such delivery is known: the list of deliveries has all that are kept."
    return or_404(alert_queries.find_delivery(number), unknown)


def _detail(request: HttpRequest, delivery: Delivery, problem: str) -> Mapping[str, Any]:
    firing, resolved = (
        alert_queries.alerts_by_fingerprint(delivery.held.get(state, ())[:_NAMED])
        for state in ("firing", "resolved")
    )
    held = sum(len(fingerprints) for fingerprints in delivery.held.values())
    again_of, agains = alert_queries.related_deliveries(delivery)
    return {
        "row": delivery,
        "tries": list(_tries(delivery)),
        "firing": firing,
        "resolved": resolved,
        "more": held - len(firing) - len(resolved),
        "body": _body(delivery),
        "again_of": again_of,
        "agains": agains,
        "problem": problem,
        "cannot_send": access.permission_refusal(actor_of(request, "page"), access.SEND),
    }


def _body(delivery: Delivery) -> str:
    body = json.dumps(delivery.payload, indent=2, ensure_ascii=False)
    return body if len(body) <= _LONGEST_BODY else f"{body[:_LONGEST_BODY]}\n…"


def _tries(delivery: Delivery) -> Iterable[Mapping[str, Any]]:
    first = delivery.attempts - len(delivery.tries) + 1
    for number, attempt in reversed(list(enumerate(delivery.tries, max(1, first)))):
        status = attempt.get("status")
        taken = not attempt.get("error")
        yield {
            "number": number,
            "tone": "ok" if taken else "critical",
            "word": str(status) if status else ("taken" if taken else "no answer"),
            "at_ms": attempt.get("at_ms"),
            "ms": attempt.get("ms"),
            "address": attempt.get("address") or "",
            "error": attempt.get("error") or "",
            "body": attempt.get("body") or "",
            "request": _request(attempt.get("request") or {}),
            "headers": sorted((attempt.get("headers") or {}).items()),
        }


def _request(request: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    to = [("POST", str(request["url"]))] if request.get("url") else []
    return [*to, *sorted((request.get("headers") or {}).items())]


ROUTES = (
    PageRoute(
        "deliveries",
        "deliveries",
        delivery_list,
        parent="alerts",
        has_files=True,
        is_ranged=True,
    ),
    PageRoute("delivery", "deliveries/<int:number>", delivery_detail, parent="deliveries"),
    PageRoute("delivery-again", "deliveries/<int:number>/again", send_again),
)
