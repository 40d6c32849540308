"""Protections of a transaction against a fence in any state: for the planner and for findings' advice."""

from __future__ import annotations

from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS
from fenceline.kafka.applications import Shape, application_of
from fenceline.plans.plan import RefusalReason


def protection_reason(transactional_id: str, timeout_ms: int) -> RefusalReason | None:
    """Return why a fence is refused, None without a known protection.

    TWO_PHASE: another system may have decided to commit it (KIP-939). OWN_SINK: our sink's ledger decides.
    """
    if timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return RefusalReason.TWO_PHASE
    own = application_of(transactional_id).kind is Shape.FENCELINE_SINK
    return RefusalReason.OWN_SINK if own else None
