"""The page of one action: the plan while it waits, the audit entry after its confirmation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from django.http import HttpRequest

from dashboard.actions import audit as action_audit
from dashboard.actions import offers
from dashboard.actions.execute import MOST_REASON, second_person_refusal
from dashboard.actions.offers import Offer
from dashboard.labels import action as action_labels
from dashboard.labels.action import bound_sign
from dashboard.models import Action
from dashboard.streaming import queries as streaming_queries
from dashboard.system import access
from dashboard.system.owners import split_partition
from dashboard.web import action_buttons, addresses
from dashboard.web.action_buttons import Button
from dashboard.web.per_request import now_ms
from fenceline.formatting import count_noun
from fenceline.plans.plan import Plan, RefusalReason, SubjectPlan

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
_LINKS = {"transaction": "Open transaction", "partition": "Open partition", "query": "Open query"}


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
        "again": _again(request, action, shown, subjects),
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
        kind, _, name = subject.subject.partition(":")
        url = _url(plan.cluster, kind, name)
        yield PlanSubject(subject, url, _LINKS.get(kind, "Open"), result, _instead(request, action, subject))


def _url(cluster: str, kind: str, name: str) -> str:
    """Return the address of a subject; "" without a page."""
    if kind == "transaction":
        return addresses.transaction_url(cluster, name)
    if kind == "query":
        return addresses.query_url(cluster, name)
    at = split_partition(name) if kind == "partition" else None
    return addresses.partition_url(cluster, *at) if at else ""


def _instead(request: HttpRequest, action: Action, subject: SubjectPlan) -> Sequence[Button]:
    """Return the other actions that the planners offer for a refused subject."""
    kind, _, name = subject.subject.partition(":")
    offered: Sequence[Offer] = ()
    if kind == "transaction" and any(
        refusal.ground is RefusalReason.OWN_SINK for refusal in subject.refusals
    ):
        offered = offers.of_sink(action.cluster_id, name, now_ms=now_ms(request))
    elif kind == "query" and subject.is_refused:
        offered = _of_batch(request, action.cluster.name, action_audit.subject_name(subject))
    return action_buttons.action_buttons(
        request, [offer for offer in offers.available_offers(offered) if offer.act != action.act]
    )


def _of_batch(request: HttpRequest, cluster: str, name: str) -> Sequence[Offer]:
    ident, at, batch = name.rpartition("@")
    query = streaming_queries.find_query(cluster, ident) if at else None
    return () if query is None else offers.of_batch(query, int(batch), now_ms=now_ms(request))


def _again(
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
