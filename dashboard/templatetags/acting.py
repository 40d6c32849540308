"""What may be done about something, and how actions look: buttons, states, addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.urls import reverse

from dashboard import acts
from dashboard.acts import ActLook
from dashboard.models import Action, FindingRecord, PinRecord, Query, SinkDecision, Transaction
from dashboard.standings import Standing
from dashboard.views import acting
from dashboard.views.acting import Offer

register = template.Library()


@register.simple_tag(takes_context=True)
def transaction_offers(
    context: dict[str, Any], row: Transaction, pins: Sequence[PinRecord]
) -> Sequence[Offer]:
    """Return what may be done about a transactional id."""
    return acting.of_transaction(context["request"], row, pins)


@register.simple_tag(takes_context=True)
def pin_offers(context: dict[str, Any], cluster: str, pin: PinRecord) -> Sequence[Offer]:
    """Return what may be done about an open transaction in a partition."""
    return acting.of_pin(context["request"], cluster, pin)


@register.simple_tag(takes_context=True)
def decision_offers(context: dict[str, Any], query: Query, decision: SinkDecision) -> Sequence[Offer]:
    """Return what may be done about a batch whose sink has decided."""
    return acting.of_decision(context["request"], query, decision)


@register.simple_tag(takes_context=True)
def batch_offers(context: dict[str, Any], query: Query, batch_id: int, recovery: str) -> Sequence[Offer]:
    """Return what mends the broken link of a batch's chain."""
    return acting.of_open_batch(context["request"], query, batch_id, recovery)


@register.simple_tag(takes_context=True)
def finding_offers(context: dict[str, Any], finding: FindingRecord) -> Sequence[Offer]:
    """Return what may be done about what a rule found."""
    return acting.of_finding(context["request"], finding)


@register.filter
def act_look(act: str) -> ActLook:
    """Return an act in words."""
    return acts.ACTS[act]


@register.filter
def action_state_look(state: str) -> Standing:
    """Return how the state of an action reads and looks."""
    return acts.STATES[state]


@register.filter
def result_look(outcome: str) -> Standing:
    """Return how what came of one subject reads and looks."""
    return acts.OUTCOMES[outcome]


@register.simple_tag
def action_url(row: Action) -> str:
    """Return the address of an action's page: its plan, and what came of it."""
    return reverse("action", args=[row.pk])
