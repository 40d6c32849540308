"""What every collector's slice of work needs: when to stop, how to wait, what to say when it cannot see."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from dashboard import leases, slices, store

log = logging.getLogger(__name__)

#: The queue of what waits more than it works.
POLLERS = "default"
HEARTBEAT_S = 1.0
#: Seconds between two tries while a cluster cannot be seen.
RETRY_S = 1.0
#: How long a cluster may take to answer one question: 2,000,000 ids take ten seconds to list.
ANSWER_S = 25.0
#: Pollers do not renew their lease while they wait for an answer: it outlives that.
POLL_TTL = timedelta(seconds=40)


def goes_on(end: float) -> bool:
    """Whether there is time left before `time.monotonic()` passes `end`, and nobody asked to stop."""
    return time.monotonic() < end and not slices.stopping.is_set()


def wait(lease: leases.Lease, seconds: float, end: float) -> None:
    """Wait, no longer than to `end`, and keep the lease meanwhile."""
    until = min(end, time.monotonic() + seconds)
    while (left := until - time.monotonic()) > 0 and not slices.stopping.wait(min(left, HEARTBEAT_S)):
        leases.renew(lease)


def report(lease: leases.Lease, reason: str) -> None:
    """Save why a collector cannot see; log it when it is news."""
    if store.save_trouble(lease, reason, now_ms=slices.now_ms()):
        log.error("%s/%s: %s", lease.cluster, lease.name, reason)
