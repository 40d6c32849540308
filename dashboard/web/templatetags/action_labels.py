"""Filters and tags for actions: labels of states and outcomes, addresses."""

from __future__ import annotations

from django import template

from dashboard.labels import action as action_labels
from dashboard.web import addresses

register = template.Library()
register.filter("bound_sign", action_labels.bound_sign)
register.simple_tag(addresses.action_url, name="action_url")
