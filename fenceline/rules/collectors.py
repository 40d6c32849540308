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
        since_ms = collector.seen_through_ms if collector.seen_through_ms is not None else collector.since_ms
        if now_ms - since_ms > limits.collector_behind_s * 1000:
            yield _finding(collector, since_ms)


def _finding(collector: CollectorStatus, since_ms: int) -> Finding:
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=Severity.CRITICAL if collector.error else Severity.WARNING,
        since_ms=since_ms,
        summary=f"{collector.cluster} has not been seen since {clock(since_ms)}",
        evidence=_evidence(collector),
        next_step="What the pages say of this cluster is old until it can be seen again.",
    )


def _evidence(collector: CollectorStatus) -> str:
    if collector.error:
        return collector.error
    if collector.behind:
        return f"{collector.name} has records to catch up with"
    return f"{collector.name} has not reported; is its worker running?"
