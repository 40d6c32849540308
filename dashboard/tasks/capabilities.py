"""Check periodically the supported requests, rights and internal topics of each cluster."""

from django.conf import settings

from collectors.doctor.checks import Patient
from collectors.doctor.sight import probe_capabilities
from dashboard.runtime import leases, loop
from dashboard.system import capabilities
from dashboard.tasks.slice import ANSWER_S, Polled
from transaction_admin.api import AdminUnavailable
from transaction_admin.properties import CannotTranslate

#: Milliseconds between two checks; a new grant shows within this time.
_EVERY_MS = 60_000
_TICK_S = 5.0


def look_in_turns(lease: leases.Lease) -> loop.Turns:
    """Check the cluster whenever a check is due, as the holder of `lease`, in turns."""
    asked_ms = capabilities.cluster_capabilities(lease.cluster).asked_ms or 0
    while True:
        if loop.now_ms() - asked_ms >= _EVERY_MS:
            look_over_cluster(lease)
            asked_ms = loop.now_ms()
        leases.renew(lease, seen_through_ms=loop.now_ms())
        yield _TICK_S


def look_over_cluster(lease: leases.Lease) -> None:
    """Check the cluster once, and save the result."""
    config = settings.FENCELINE.clusters[lease.cluster]
    checks, trouble = None, ""
    try:
        patient = Patient(config.properties, config.sees_all_transactional_ids, ANSWER_S, config.scope)
        checks = probe_capabilities(patient)
    except (AdminUnavailable, CannotTranslate) as blind:
        trouble = str(blind)
    capabilities.save_capabilities(lease, checks, trouble, now_ms=loop.now_ms())


polled = Polled("collectors.capabilities", capabilities.NAME, look_in_turns)
