"""Poll the audit job's results, as a Celery task."""

import time

from django.conf import settings

from dashboard.history import audit_store
from dashboard.history.audits import read_audits
from dashboard.runtime import leases, loop
from dashboard.tasks.slice import ANSWER_S, Polled, report_failure

#: Seconds from poll to poll, short enough that pages do not show the collector as late.
EVERY_S = 8.0


def poll_in_turns(lease: leases.Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    while True:
        began = time.monotonic()
        _poll(lease)
        yield max(0.0, EVERY_S - (time.monotonic() - began))


def _poll(lease: leases.Lease) -> None:
    polled = read_audits(settings.FENCELINE.audit_url, lease.cluster, patience_s=ANSWER_S)
    if (blind := polled.why_blind) is not None:
        report_failure(lease, f"{blind.why} {blind.remedy}")
    else:
        audit_store.save_audits(lease, polled, now_ms=loop.now_ms())


polled = Polled("collectors.audits", audit_store.NAME, poll_in_turns, lambda _: settings.FENCELINE.audit_url)
