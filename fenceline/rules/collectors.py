"""Rules about our own collectors: what we cannot see is a finding too."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.facts import CollectorStatus, Finding, Limits, Severity, Snapshot
from fenceline.words import clock


def behind(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield collectors that have not seen the last `limits.collector_behind_s` seconds.

    Critical while one cannot see at all, a warning while it is only catching up.
    """
    for collector in snapshot.collectors:
        if collector.is_behind(now_ms, limits):
            yield _finding(collector)


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
