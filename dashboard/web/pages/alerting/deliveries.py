"""Deliveries: every message, each try with what was answered, and sending it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard.alerts import deliver
from dashboard.alerts import queries as alert_queries
from dashboard.alerts.notify import notify_pages
from dashboard.models import Alert, Delivery
from dashboard.runtime.criteria import parameter_choices
from dashboard.system import access
from dashboard.system.access import actor_of
from dashboard.web.errors import error_note, flash_refusal, forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.rendering import action_view, render_page, signed_in

_ROWS = 50
#: Alerts of a message that its page names, and characters of its body that it shows.
_NAMED = 50
_LONGEST_BODY = 200_000


@dataclass(frozen=True, slots=True)
class Try:
    """One try: what was sent, what was answered; None and "" where there was nothing."""

    number: int
    tone: str
    word: str
    at_ms: int | None
    ms: int | None
    address: str
    error: str
    body: str
    request: Sequence[tuple[str, str]]
    headers: Sequence[tuple[str, str]]


class DeliveryListQuery(list_forms.ListByRow, alert_queries.DeliveryCriteria):
    """The query string of the list."""


@signed_in
def delivery_list(request: HttpRequest) -> HttpResponse:
    """Show the newest deliveries that the query string asks for."""
    wanted = list_forms.read_request(request, DeliveryListQuery)
    found = alert_queries.list_deliveries(wanted, before=wanted.before, limit=_ROWS + 1)
    moves = [(row.pk, row.state, row.attempts, row.next_at) for row in found]
    return render_page(request, "deliveries/list", lambda: _list(wanted, found), depends_on=moves)


@signed_in
def delivery_detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show one delivery: its tries, its alerts, its body."""
    found = _found(number)
    problem = error_note(request)
    moves = (found.state, found.attempts, found.next_at, problem)
    return render_page(
        request, "deliveries/detail", lambda: _detail(request, found, problem), depends_on=moves
    )


@action_view
def send_again(request: HttpRequest, number: int) -> HttpResponse:
    """Have a message sent once more, and show the new delivery."""
    if refused := access.permission_refusal(actor_of(request, "page"), access.SEND):
        return forbidden_page(request, refused)
    found, here = _found(number), reverse("delivery", args=[number])
    try:
        here = reverse("delivery", args=[deliver.send_again(found).pk])
    except deliver.CannotSend as error:
        flash_refusal(request, here, str(error))
    else:
        notify_pages()
    return HttpResponseRedirect(here, status=303)


def _found(number: int) -> Delivery:
    found = alert_queries.find_delivery(number)
    if found is None:
        raise Http404("No such delivery is known: the list of deliveries has all that are kept.")
    return found


def _list(wanted: DeliveryListQuery, found: Sequence[Delivery]) -> Mapping[str, Any]:
    channels = alert_queries.list_channels()
    return {
        "wanted": wanted,
        "rows": found[:_ROWS],
        "next": found[_ROWS - 1].pk if len(found) > _ROWS else None,
        "states": parameter_choices(DeliveryListQuery, "state"),
        "origins": parameter_choices(DeliveryListQuery, "origin"),
        "channels": channels,
        "channel": next((row for row in channels if row.pk == wanted.channel), None),
    }


def _detail(request: HttpRequest, found: Delivery, problem: str) -> Mapping[str, Any]:
    firing, resolved = (_held(found, state) for state in ("firing", "resolved"))
    held = sum(len(each) for each in found.held.values())
    again_of, agains = alert_queries.related_deliveries(found)
    return {
        "row": found,
        "tries": list(_tries(found)),
        "firing": firing,
        "resolved": resolved,
        "more": held - len(firing) - len(resolved),
        "body": _body(found),
        "again_of": again_of,
        "agains": agains,
        "problem": problem,
        "cannot_send": access.permission_refusal(actor_of(request, "page"), access.SEND),
    }


def _held(found: Delivery, state: str) -> Sequence[Alert]:
    return alert_queries.alerts_by_fingerprint(found.held.get(state, ())[:_NAMED])


def _body(found: Delivery) -> str:
    body = json.dumps(found.payload, indent=2, ensure_ascii=False)
    return body if len(body) <= _LONGEST_BODY else f"{body[:_LONGEST_BODY]}\n…"


def _tries(found: Delivery) -> Iterable[Try]:
    """Yield the tries that are kept, the newest first."""
    first = found.attempts - len(found.tries) + 1
    for number, each in reversed(list(enumerate(found.tries, max(1, first)))):
        status = each.get("status")
        taken = not each.get("error")
        yield Try(
            number=number,
            tone="ok" if taken else "critical",
            word=str(status) if status else ("taken" if taken else "no answer"),
            at_ms=each.get("at_ms"),
            ms=each.get("ms"),
            address=each.get("address") or "",
            error=each.get("error") or "",
            body=each.get("body") or "",
            request=_request(each.get("request") or {}),
            headers=sorted((each.get("headers") or {}).items()),
        )


def _request(request: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return where a request went, and its headers."""
    to = [("POST", str(request["url"]))] if request.get("url") else []
    return [*to, *sorted((request.get("headers") or {}).items())]
