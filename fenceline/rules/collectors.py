"""Rules about our own collectors: what we cannot see is a finding too."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.facts import Finding, Severity
from fenceline.limits import Limits
from fenceline.snapshot import CollectorStatus, Snapshot
from fenceline.words import clock

#: What is missing while a collector cannot look and others can.
_ASIDE = {"reconcile": "The log is read all the same; nobody checks it against the coordinators."}


def behind(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield collectors that have not seen the last `limits.collector_behind_s` seconds.

    Critical while one cannot see at all, a warning while it is only catching up; no more than a note while
    the cluster is seen by others.
    """
    for collector in snapshot.collectors:
        if not collector.is_eye and collector.error:
            yield _aside(collector)
        elif collector.is_eye and collector.is_behind(now_ms, limits):
            yield _finding(collector)


def _aside(collector: CollectorStatus) -> Finding:
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=Severity.INFO,
        since_ms=collector.since_ms,
        summary=f"{collector.name} cannot look at {collector.cluster}",
        evidence=collector.error,
        next_step=_ASIDE.get(collector.name, "States are seen all the same; their history is not."),
    )


def _finding(collector: CollectorStatus) -> Finding:
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=Severity.CRITICAL if collector.error else Severity.WARNING,
        since_ms=collector.blind_since_ms,
        summary=f"{collector.cluster} has not been seen since {clock(collector.blind_since_ms)}",
        evidence=_evidence(collector),
        next_step="What the pages say of this cluster is old until it can be seen again.",
    )


def _evidence(collector: CollectorStatus) -> str:
    if collector.error:
        return collector.error
    if collector.behind:
        return f"{collector.name} has records to catch up with"
    return f"{collector.name} has not reported; is its worker running?"
