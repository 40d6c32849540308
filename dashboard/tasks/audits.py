"""Polls what the audit job left of pipelines, as a Celery task."""

from __future__ import annotations

import time

from celery import shared_task
from django.conf import settings

from dashboard.history import audit_store
from dashboard.history.audits import read_audits
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import ANSWER_S, POLL_TTL, goes_on, report_failure, wait_leased

#: Seconds from poll to poll: less than those after which a page shows a collector as late.
EVERY_S = 8.0


def start() -> None:
    """Send a first slice where no worker polls audits, if they are configured."""
    if settings.FENCELINE.audit_url:
        loop.start_missing(poll_audits, audit_store.NAME)


@shared_task(name="collectors.audits")
def poll_audits(cluster: str, previous: int | None = None) -> None:
    """Poll a cluster's audits for one slice; `previous`: the last slice's token."""
    if settings.FENCELINE.audit_url:
        loop.run_slice(poll_audits, cluster, audit_store.NAME, poll_until, previous=previous, ttl=POLL_TTL)


def poll_until(lease: leases.Lease, end: float) -> None:
    """Poll and save as the holder of `lease` until `time.monotonic()` passes `end`."""
    while goes_on(end):
        began = time.monotonic()
        _poll(lease)
        wait_leased(lease, max(0.0, EVERY_S - (time.monotonic() - began)), end)


def _poll(lease: leases.Lease) -> None:
    polled = read_audits(settings.FENCELINE.audit_url, lease.cluster, patience_s=ANSWER_S)
    if (blind := polled.why_blind) is not None:
        report_failure(lease, f"{blind.why} {blind.remedy}")
    else:
        audit_store.save_audits(lease, polled, now_ms=loop.now_ms())
