"""Rules about our own sight: what we cannot see is a finding too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from fenceline.facts import Finding, Gap, Severity
from fenceline.limits import Limits
from fenceline.sight import EVERYWHERE, Sense
from fenceline.snapshot import CollectorStatus, Snapshot
from fenceline.words import clock, count, some

#: What is missing while a collector cannot look and others can.
_ASIDE = {"reconcile": "The log is read all the same; nobody checks it against the coordinators."}
#: What is not seen without one that looks around beside the tails.
_MISSING = {
    "partitions": "Offsets, pinned partitions and hanging transactions are as they were seen last.",
    "groups": "Lag, and who waits for whom, is as it was seen last.",
    "checkpoints": "Queries, their batches and what their sinks decided are as they were seen last.",
    "consumer_offsets": "Groups are asked all the same; commit times and history are missing.",
    "recoveries": "Episodes neither open nor close, and what is lost is not looked for.",
}


def collector_behind(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield collectors that have not seen the last `limits.collector_behind_s` seconds, or cannot see.

    Critical while an eye cannot see at all, a warning while it is only catching up; no more than a note where
    the cluster is seen by others. Pollers have `limits.poller_behind_s`, and say what is not seen.
    """
    for collector in snapshot.collectors:
        name = _base(collector.name)
        if collector.is_eye:
            if collector.is_behind(now_ms, limits):
                yield _blind(collector)
        elif name in _MISSING:
            if collector.is_behind(now_ms, limits):
                yield _finding(collector, Severity.WARNING, _MISSING[name])
        elif collector.error:
            yield _aside(collector)


def coordinator_loading(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield who did not answer for its transactional ids for `limits.coordinator_loading_s`.

    A broker that has just started loads its part of `__transaction_state` first; until then nobody can begin
    or end a transaction there.
    """
    for collector in snapshot.collectors:
        since_ms = collector.blind_since_ms
        passed = now_ms - since_ms > limits.coordinator_loading_s * 1_000
        if Sense.LISTS not in collector.senses or not collector.unseen or collector.error or not passed:
            continue
        who = [part.partition(": ")[0] for part in collector.unseen]
        yield Finding(
            rule="coordinator_loading",
            cluster=collector.cluster,
            subject=f"coordinators:{collector.cluster}",
            severity=Severity.WARNING,
            since_ms=since_ms,
            summary=f"{some(who)} {'does' if len(who) == 1 else 'do'} not answer for transactional ids",
            evidence=some(collector.unseen),
            next_step=(
                "Producers of these coordinators wait. If it lasts, look at the broker's log and at the size "
                "of __transaction_state."
            ),
        )


def gap(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield what parts a collector has not seen for `limits.gap_s`; one that sees nothing says so itself."""
    passed = [
        each
        for each in snapshot.gaps
        if each.scope != EVERYWHERE and now_ms - each.since_ms > limits.gap_s * 1_000
    ]
    for source, gaps in groupby(sorted(passed, key=attrgetter("source", "since_ms")), attrgetter("source")):
        yield _unseen(snapshot.cluster, source, list(gaps))


def _unseen(cluster: str, source: str, gaps: Sequence[Gap]) -> Finding:
    scopes = [each.scope for each in gaps]
    reasons = list(dict.fromkeys(each.reason for each in gaps))
    return Finding(
        rule="gap",
        cluster=cluster,
        subject=f"collector:{source}",
        severity=Severity.WARNING,
        since_ms=gaps[0].since_ms,
        summary=f"{source} cannot see {some(scopes)}",
        evidence=f"{count(len(reasons), 'reason')}: {'; '.join(reasons[:3])}",
        next_step="Nothing is said about these until they can be seen; the reason names what is missing.",
        affected=tuple(scopes),
    )


def _base(name: str) -> str:
    """Return a collector's name without the number of its shard."""
    base, _, number = name.rpartition("-")
    return base if number.isdigit() else name


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


def _blind(collector: CollectorStatus) -> Finding:
    return _finding(
        collector,
        Severity.CRITICAL if collector.error else Severity.WARNING,
        "What the pages say of this cluster is old until it can be seen again.",
    )


def _finding(collector: CollectorStatus, severity: Severity, next_step: str) -> Finding:
    what = collector.cluster if collector.is_eye else f"{collector.cluster}'s {_base(collector.name)}"
    verb = "has" if collector.is_eye else "have"
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=severity,
        since_ms=collector.blind_since_ms,
        summary=f"{what} {verb} not been seen since {clock(collector.blind_since_ms)}",
        evidence=_evidence(collector),
        next_step=next_step,
    )


def _evidence(collector: CollectorStatus) -> str:
    if collector.error:
        return collector.error
    if collector.behind:
        return f"{collector.name} has records to catch up with"
    return f"{collector.name} has not reported; is its worker running?"
