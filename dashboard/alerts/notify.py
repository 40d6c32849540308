"""Notify open pages of changes without a cluster's revision: channels, deliveries, silences."""

from dashboard.models import Cluster
from dashboard.runtime import notify


def notify_pages() -> None:
    """Notify every cluster's open pages that alerting changed; call it after the commit."""
    for name, rev in Cluster.objects.filter(configured=True).values_list("name", "rev"):
        notify.notify_change(name, "alerts", rev)
