"""Ring open pages for what no cluster's revision counts: channels, deliveries, silences."""

from __future__ import annotations

from dashboard.models import Cluster
from dashboard.runtime import notify


def notify_pages() -> None:
    """Tell every cluster's open pages that something about alerting changed; call it after the commit."""
    for name, rev in Cluster.objects.filter(configured=True).values_list("name", "rev"):
        notify.notify_change(name, "alerts", rev)
