"""What may be done about something, and how actions look: buttons, states, addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.urls import reverse

from dashboard.labels import action as action_labels
from dashboard.labels.action import ActLook
from dashboard.labels.status import StatusLabel
from dashboard.models import Action, FindingRecord, PinRecord, Query, Transaction
from dashboard.web import action_buttons, plan_context
from dashboard.web.action_buttons import Button
from fenceline.plans.plan import Effect

register = template.Library()


@register.simple_tag(takes_context=True)
def transaction_offers(
    context: dict[str, Any], row: Transaction, pins: Sequence[PinRecord]
) -> Sequence[Button]:
    """Return what may be done about a transactional id."""
    return action_buttons.of_transaction(context["request"], row, pins)


@register.simple_tag(takes_context=True)
def pin_offers(context: dict[str, Any], cluster: str, pin: PinRecord) -> Sequence[Button]:
    """Return what may be done about an open transaction in a partition."""
    return action_buttons.of_pin(context["request"], cluster, pin)


@register.simple_tag(takes_context=True)
def batch_offers(context: dict[str, Any], query: Query, batch_id: int) -> Sequence[Button]:
    """Return what may be done about a batch of our sink."""
    return action_buttons.of_batch(context["request"], query, batch_id)


@register.simple_tag(takes_context=True)
def finding_offers(context: dict[str, Any], finding: FindingRecord) -> Sequence[Button]:
    """Return what may be done about what a rule found."""
    return action_buttons.of_finding(context["request"], finding)


@register.filter
def act_look(act: str) -> ActLook:
    """Return an act in words."""
    return action_labels.ACTS[act]


@register.filter
def action_state_look(state: str) -> StatusLabel:
    """Return how the state of an action reads and looks."""
    return action_labels.STATES[state]


@register.filter
def result_look(outcome: str) -> StatusLabel:
    """Return how what came of one subject reads and looks."""
    return action_labels.OUTCOMES[outcome]


@register.filter
def bound_sign(effect: Effect) -> str:
    """Return what stands before an amount that is a bound."""
    return plan_context.bound_sign(effect)


@register.simple_tag
def action_url(row: Action) -> str:
    """Return the address of an action's page: its plan, and what came of it."""
    return reverse("action", args=[row.pk])
