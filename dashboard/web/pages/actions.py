"""Actions in the browser: show a plan, confirm it by typing, and show it as an audit entry."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.actions import audit as action_audit
from dashboard.actions import execute
from dashboard.actions import planning as action_service
from dashboard.actions import store as action_store
from dashboard.labels import action as action_labels
from dashboard.models import Action
from dashboard.runtime.collector_names import ACTIONS
from dashboard.system import access
from dashboard.web import action_buttons, addresses, page_context
from dashboard.web.action_buttons import Button
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.chips import Filters, plain_labels
from dashboard.web.per_request import now_ms
from dashboard.web.plan_context import plan_page
from dashboard.web.rendering import action_view as posting
from dashboard.web.rendering import list_view, refusal_of, render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number
from fenceline.formatting import count_noun
from fenceline.plans.plan import MOST_SUBJECTS, Act

_ROWS = 50
_DAY_MS = 86_400_000


class ActionListQuery(list_forms.ListByRow, action_store.ActionCriteria):
    """The query string of the list."""


def _may_audit(request: HttpRequest) -> bool:
    return not access.missing_role(action_buttons.request_actor(request), access.AUDIT)


@posting
def make_plan(request: HttpRequest) -> HttpResponse:
    """Make the plan that a form requests and redirect to its page, or show why there is none."""
    asked = request.POST
    try:
        act = Act(asked.get("act", ""))
    except ValueError:
        return _no_plan(request, 400, "The form named an unknown action.")
    try:
        row = action_service.plan_for(
            action_buttons.request_actor(request),
            asked.get("cluster", ""),
            act,
            asked.getlist("subject"),
            force=asked.get("force") == "1",
            now_ms=now_ms(request),
        )
    except action_service.NotPlanned as error:
        return _no_plan(request, error.status, str(error), act)
    return HttpResponseRedirect(reverse("action", args=[row.pk]), status=303)


@require_http_methods(["GET", "HEAD", "POST"])
def one_action(request: HttpRequest, number: int) -> HttpResponse:
    """Show a plan and its result; a POST confirms the plan."""
    if request.method != "POST":
        return _show(request, number)
    refused = refusal_of(request, request.path)
    return _confirm(request, number) if refused is None else refused


@signed_in
def _show(request: HttpRequest, number: int) -> HttpResponse:
    action = _known(request, number)
    expired = now_ms(request) >= action.expires_ms
    version = (action.rev, action.state, expired, len(action.follow_up))
    return render_page(request, "actions/detail", lambda: plan_page(request, action), depends_on=version)


def _confirm(request: HttpRequest, number: int) -> HttpResponse:
    action, posted = _known(request, number), request.POST
    typed, reason = posted.get("confirm", ""), posted.get("reason", "")
    try:
        execute.confirm_plan(
            action,
            digest=posted.get("digest", ""),
            typed=typed,
            reason=reason,
            actor=action_buttons.request_actor(request),
            now_ms=now_ms(request),
        )
    except execute.ExecutionRefused as refused:
        action.refresh_from_db()
        wrong = {"wrong": refused.text, "typed": typed, "reason": reason, "status": refused.status}
        return render_page(request, "actions/detail", lambda: {**plan_page(request, action), **wrong})
    return HttpResponseRedirect(reverse("action", args=[number]), status=303)


def _known(request: HttpRequest, number: int) -> Action:
    action = action_store.find_action(number) if number < 2**63 else None
    if action is None or not any(
        row.pk == action.cluster_id for row in page_context.chrome_of(request).clusters
    ):
        raise Http404("Unknown action.")
    return action


def _again(asked: QueryDict, act: Act) -> Button:
    """Return the form that requests the same plan again."""
    subjects = asked.getlist("subject")[:MOST_SUBJECTS]
    force = asked.get("force") == "1"
    return Button(act, asked.get("cluster", ""), subjects, "Plan again", force=force)


def _no_plan(request: HttpRequest, status: int, words: str, act: Act | None = None) -> HttpResponse:
    """Show why no plan was made and what to do next; nothing was sent."""
    asked = request.POST
    shown = {
        "words": words,
        "status": status,
        "cluster": asked.get("cluster", ""),
        "again": _again(asked, act) if act and status in (503, 409) else None,
    }
    return render(request, "actions/unplanned.html", shown, status=status)


# Plans expire without any change.
@list_view(
    "actions/list",
    ActionListQuery,
    depends_on=lambda request, _: (now_ms(request) // 5_000, _may_audit(request)),
    collected=False,
)
def action_list(request: HttpRequest, wanted: ActionListQuery) -> Mapping[str, Any]:
    """Show the newest actions that the query string asks for."""
    frame, at_ms = page_context.chrome_of(request), now_ms(request)
    filters = Filters(request.GET, wanted)
    nouns = {act: style.noun for act, style in action_labels.ACTS.items()}
    actions, more = action_store.newest_actions(wanted, before=wanted.before, limit=_ROWS)
    summary = action_audit.action_summary(frame.cluster, since_ms=at_ms - _DAY_MS, now_ms=at_ms)
    return {
        "rows": [
            {
                "of": action,
                "shown": action_audit.action_status(action, now_ms=at_ms),
                "look": action_labels.ACTS[action.act],
            }
            for action in actions
        ],
        "next": more,
        "filters": [
            filters.row("act", list(nouns), plain_labels(nouns), every="any action", words="action"),
            filters.row("state", list(Action.State), action_labels.STATES, every="any state"),
        ],
        "headline": _headline(frame, summary, len(actions), more=more is not None),
        "summary": summary,
        "may_audit": _may_audit(request),
    }


def _headline(
    frame: page_context.Chrome, summary: action_audit.ActionSummary, number: int, *, more: bool
) -> str:
    """Return the running and waiting actions, and the outcomes of others; for a past range, their number."""
    if not frame.clusters:
        return "No cluster is configured."
    if not frame.time_range.is_live:
        return time_ranges.range_headline(number, "action", frame.time_range, more=more)
    if summary.executing:
        return f"{count_noun(summary.executing, 'action')} in progress."
    if summary.waiting:
        return f"{count_noun(summary.waiting, 'plan')} pending confirmation."
    if summary.undone:
        return f"{summary.undone:,} of {summary.executed:,} actions in the last 24 h were not fully done."
    if summary.executed:
        return "All actions in the last 24 h were done."
    return "No actions in the last 24 h."


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    number = asked_number(asked)
    one = None if number is None else action_store.find_action(number)
    rows, _ = action_store.newest_actions(
        action_store.ActionCriteria(cluster=cluster, q=asked), before=None, limit=MOST_HITS
    )
    for row in {candidate.pk: candidate for candidate in [*([one] if one else []), *rows]}.values():
        yield Hit(f"#{row.pk}", addresses.action_url(row), f"{row.act.replace('_', ' ')} · {row.state}")


ROUTES = (
    PageRoute(
        "actions",
        "actions",
        action_list,
        search=_search,
        plural="actions",
        key="a",
        heading="Respond",
        shows=ACTIONS,
        searched="subjects",
        has_files=True,
        is_ranged=True,
    ),
    PageRoute("action-plan", "actions/plan", make_plan, parent="actions"),
    PageRoute("action", "actions/<int:number>", one_action, parent="actions"),
)
