"""Filters and tags for actions: labels of states and outcomes, addresses."""

from __future__ import annotations

from django import template

from dashboard.labels import action as action_labels
from dashboard.labels.status import StatusLabel
from dashboard.web import addresses

register = template.Library()
register.filter("bound_sign", action_labels.bound_sign)
register.simple_tag(addresses.action_url, name="action_url")


@register.filter
def action_state_label(state: str) -> StatusLabel:
    """Return the label and style of an action's state."""
    return action_labels.STATES[state]


@register.filter
def result_label(outcome: str) -> StatusLabel:
    """Return the label and style of one subject's outcome."""
    return action_labels.OUTCOMES[outcome]
