"""Actions in the browser: show a plan, confirm it by typing, and show it as an audit entry."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.actions import audit as action_audit
from dashboard.actions import execute, offers
from dashboard.actions import planning as action_service
from dashboard.actions import store as action_store
from dashboard.actions.execute import MOST_REASON, second_person_refusal
from dashboard.actions.offers import Offer
from dashboard.labels import action as action_labels
from dashboard.labels.action import bound_sign
from dashboard.models import Action
from dashboard.runtime.collector_names import ACTIONS
from dashboard.streaming import queries as streaming_queries
from dashboard.system import access
from dashboard.web import action_buttons, addresses, page_context
from dashboard.web.action_buttons import Button
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import Filters, plain_labels
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import action_view as posting
from dashboard.web.rendering import list_view, refusal_of, render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute, asked_number
from fenceline.formatting import count_noun
from fenceline.plans.plan import MOST_SUBJECTS, Act, Plan, RefusalReason, SubjectPlan

#: With more subjects than these, each is folded under its title.
_UNFOLDED = 3
#: States after which the remaining subjects may be planned again.
_NOT_ALL = (Action.State.PARTLY, Action.State.STALE, Action.State.FAILED, Action.State.UNKNOWN)
#: Maximum effects of a folded subject.
_SUMMED = {
    "records_released": "released",
    "records_aborted": "aborted",
    "records_lost": "lost",
    "records_committed": "committed",
}
_ROWS = 50
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class PlanSubject:
    """One subject: its plan, its result, its address, and its alternatives."""

    of: SubjectPlan
    url: str
    link: str
    #: An entry of `Action.results`, None before the execution.
    result: Mapping[str, Any] | None
    instead: Sequence[Button] = field(default_factory=list)

    @property
    def outcome_text(self) -> str:
        """Return the result, or whether the plan may be executed for the subject."""
        if self.result is not None:
            return str(self.result["outcome"])
        return "refused" if self.of.is_refused else ""

    @property
    def effect_summary(self) -> str:
        """Return the effects on records in a line."""
        effects = [
            effect for effect in self.of.effects if effect.amount is not None and effect.name in _SUMMED
        ]
        return ", ".join(
            f"{bound_sign(effect)}{effect.amount:,} {_SUMMED[effect.name]}" for effect in effects
        )

    @property
    def forceable(self) -> bool:
        """Return whether an admin may plan it by force."""
        return self.of.is_refused and all(refusal.forceable for refusal in self.of.refusals)


def plan_page(request: HttpRequest, action: Action) -> Mapping[str, Any]:
    shown = action_audit.action_status(action, now_ms=now_ms(request))
    plan, actor = shown.plan, action_buttons.request_actor(request)
    subjects = list(_subjects(request, action, plan))
    style = action_labels.ACTS[plan.act]
    return {
        "action": action,
        "cluster": action.cluster.name,
        "plan": plan,
        "shown": shown,
        "look": style,
        "title": f"{style.verb} {f'{len(plan.subjects):,} at once' if shown.more else shown.title}",
        "subjects": subjects,
        "folded": len(subjects) > _UNFOLDED,
        "refused": [subject for subject in subjects if subject.of.is_refused],
        "confirms": shown.state == "planned",
        "why_not": access.act_refusal(actor, plan.act, plan.cluster, force=plan.forced)
        or second_person_refusal(action, actor),
        "again": _plan_again(request, action, shown, subjects),
        "by_force": _by_force(request, plan, shown, subjects),
        "confirmed_ms": action_audit.confirmed_ms(action),
        "planned_ms": plan.made_ms,
        "episodes": action_audit.action_recoveries(action),
        "most_reason": MOST_REASON,
        "sent_to": count_noun(len(plan.doable_subjects), "subject"),
    }


def _subjects(request: HttpRequest, action: Action, plan: Plan) -> Iterator[PlanSubject]:
    # Two subjects may belong to one partition: results are in the order of the plan's subjects.
    for subject, result in zip_longest(plan.subjects, action.results[: len(plan.subjects)]):
        url = addresses.subject_url(plan.cluster, subject.subject)
        link = addresses.subject_label(subject.subject)
        yield PlanSubject(subject, url, link, result, _instead(request, action, subject))


def _instead(request: HttpRequest, action: Action, subject: SubjectPlan) -> Sequence[Button]:
    """Return the other actions that the planners offer for a refused subject."""
    kind, _, name = subject.subject.partition(":")
    offered: Sequence[Offer] = ()
    if kind == "transaction" and any(
        refusal.ground is RefusalReason.OWN_SINK for refusal in subject.refusals
    ):
        offered = offers.of_sink(action.cluster_id, name, now_ms=now_ms(request))
    elif kind == "query" and subject.is_refused:
        ident, at, batch = action_audit.subject_name(subject).rpartition("@")
        if at and (query := streaming_queries.find_query(action.cluster.name, ident)):
            offered = offers.of_batch(query, int(batch), now_ms=now_ms(request))
    return action_buttons.action_buttons(
        request, [offer for offer in offers.available_offers(offered) if offer.act != action.act]
    )


def _plan_again(
    request: HttpRequest, action: Action, shown: action_audit.ActionStatus, subjects: Sequence[PlanSubject]
) -> Button | None:
    """Return the form that plans again: everything if nothing was sent, else the remaining subjects."""
    if shown.state in ("expired", "refused"):
        names = [action_audit.subject_name(subject.of) for subject in subjects]
    elif shown.state in _NOT_ALL:
        names = [
            action_audit.subject_name(subject.of)
            for subject in subjects
            if subject.outcome_text not in ("done", "skipped")
        ]
    else:
        return None
    words = "Plan again" if len(names) == len(subjects) else f"Plan the other {len(names)} again"
    if not names:
        return None
    act, cluster = shown.plan.act, shown.plan.cluster
    return action_buttons.plan_button(request, act, cluster, names, words, force=action.forced)


def _by_force(
    request: HttpRequest, plan: Plan, shown: action_audit.ActionStatus, subjects: Sequence[PlanSubject]
) -> Button | None:
    """Return the form that plans forceable subjects by force, None without any."""
    names = [action_audit.subject_name(subject.of) for subject in subjects if subject.forceable]
    if plan.forced or not names or shown.state not in ("planned", "refused", "expired"):
        return None
    words = "Plan by force…" if len(names) == 1 else f"Plan {len(names)} by force…"
    return action_buttons.plan_button(request, plan.act, plan.cluster, names, words, force=True)


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
    action = action_store.find_action(number)
    if action is None or not any(
        row.pk == action.cluster_id for row in page_context.chrome_of(request).clusters
    ):
        raise Http404("Unknown action.")
    return action


def _no_plan(request: HttpRequest, status: int, words: str, act: Act | None = None) -> HttpResponse:
    """Show why no plan was made and what to do next; nothing was sent."""
    asked, cluster = request.POST, request.POST.get("cluster", "")
    # The form that requests the same plan again.
    again = None
    if act and status in (503, 409):
        subjects = asked.getlist("subject")[:MOST_SUBJECTS]
        again = Button(act, cluster, subjects, "Plan again", force=asked.get("force") == "1")
    shown = {"words": words, "status": status, "cluster": cluster, "again": again}
    return render(request, "actions/unplanned.html", shown, status=status)


# Plans expire without any change.
@list_view(
    "actions/list",
    ActionListQuery,
    depends_on=lambda request, _: (now_ms(request) // 5_000, _may_audit(request)),
    collected=False,
)
def action_list(request: HttpRequest, wanted: ActionListQuery) -> Mapping[str, Any]:
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
