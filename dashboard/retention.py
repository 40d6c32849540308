"""Forget what is older than `[retention]` says, in portions so small that no collector waits for one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from dashboard import leases
from dashboard.models import FindingRecord, GapRecord, Recent, Recovery, Tally, TransitionRecord
from fenceline.limits import Retention

NAME = "retention"
#: Rows of one database transaction: some milliseconds.
AT_ONCE = 1_000
_DAY_MS = 86_400_000


def prune(lease: leases.Lease, keep: Retention, *, now_ms: int) -> int:
    """Delete up to 1,000 rows too old to keep, of one table; return how many. Raises `leases.LeaseLost`."""
    for rows in _outdated(lease.cluster_id, keep, now_ms):
        found = list(rows.values_list("pk", flat=True)[:AT_ONCE])
        if found:
            with transaction.atomic():
                leases.renew(lease, seen_through_ms=now_ms)
                rows.model._base_manager.filter(pk__in=found).delete()
            return len(found)
    leases.renew(lease, seen_through_ms=now_ms)
    return 0


def _outdated(cluster_id: int, keep: Retention, now_ms: int) -> Iterator[QuerySet[Any]]:
    """Yield what is too old, table by table."""

    def before_ms(days: float) -> int:
        return now_ms - int(days * _DAY_MS)

    closed_ms = before_ms(keep.closed_d)
    closed_at = datetime.fromtimestamp(max(0, closed_ms) / 1_000, UTC)
    yield TransitionRecord.objects.filter(cluster_id=cluster_id, at_ms__lt=before_ms(keep.transitions_d))
    yield Tally.objects.filter(cluster_id=cluster_id, span_s=60, start_ms__lt=before_ms(keep.minutes_d))
    yield Tally.objects.filter(cluster_id=cluster_id, span_s=3600, start_ms__lt=before_ms(keep.hours_d))
    yield Recent.objects.filter(cluster_id=cluster_id, expired_ms__lt=before_ms(keep.transitions_d))
    yield Recovery.objects.filter(cluster_id=cluster_id, closed_ms__lt=before_ms(keep.transitions_d))
    yield GapRecord.objects.filter(cluster_id=cluster_id, until_ms__lt=closed_ms)
    yield FindingRecord.objects.filter(cluster_id=cluster_id, closed_at__lt=closed_at)
