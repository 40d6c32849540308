"""Filters and tags for actions, alerts, channels, deliveries and silences: addresses and labels."""

from django import template

from dashboard.labels import action as action_labels
from dashboard.labels import alert as alert_labels
from dashboard.web import addresses
from fenceline.alerts import matchers, redact

register = template.Library()
register.filter("bound_sign", action_labels.bound_sign)
register.filter("channel_label", alert_labels.channel_label)
register.filter("delivery_what", alert_labels.delivery_what)
register.filter("alert_summary", alert_labels.alert_summary)
register.filter("subject_name", alert_labels.subject_name)
register.filter("lasted_ms", alert_labels.lasted_ms)
register.filter("subject_label", addresses.finding_label)
register.filter("matchers", matchers.matchers_text)
register.filter("redacted", redact.redact_url)
register.simple_tag(addresses.finding_url, name="subject_url")
register.simple_tag(addresses.action_url, name="action_url")


@register.filter
def kind_means(kind: str) -> str:
    """Return the description of a kind of channel."""
    return alert_labels.CHANNEL_KINDS.get(kind, "")


@register.filter
def origin_words(origin: str) -> str:
    """Return the origin of a delivery as words of a filter."""
    return alert_labels.ORIGINS[origin]
