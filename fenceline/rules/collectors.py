"""Rules about our own visibility: what we cannot read is a finding too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fenceline.facts import Finding, Severity, VisibilityGap
from fenceline.formatting import count_noun, format_clock, list_names
from fenceline.limits import Limits
from fenceline.severity import lasting_severity
from fenceline.snapshot import CollectorStatus, Snapshot
from fenceline.visibility import EVERYWHERE, Sense

#: A broker among what did not answer.
_BROKER = re.compile(r"broker (\d+)\b")
#: What is missing while a collector cannot poll and others can.
_ASIDE = {"reconcile": "The log is still read, but not checked against the coordinators."}
#: What is missing without a collector that polls, unlike the tails.
_MISSING = {
    "partitions": "Offsets, blocked partitions and hanging transactions are as of the last poll.",
    "groups": "Lag, and what blocks which group, is as of the last poll.",
    "checkpoints": "Queries, their batches and the decisions of their sinks are as of the last poll.",
    "flink": "Flink jobs and their pending commits are as of the last poll.",
    "audits": "Missing and duplicated records are as of the last poll of the audits.",
    "consumer_offsets": "Groups are still polled; commit times and history are missing.",
    "recoveries": "Recoveries neither open nor close, and aborted records are not searched for.",
}


def collector_behind(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield collectors that have been late, or failing, for `limits.collector_late_s`.

    Until they have been on time for `limits.collector_on_time_s`: one that is late now and then, on a busy
    host, is one finding or none. Critical while an eye cannot see at all, a warning while it is only
    catching up; no more than a note where the cluster is seen by others. Pollers report what is not observed.
    """
    for collector in snapshot.collectors:
        name = _base(collector.name)
        if not _is_sustained(collector, now_ms, limits):
            continue
        if collector.is_eye:
            yield _blind(collector)
        elif name in _MISSING:
            yield _finding(collector, Severity.WARNING, _MISSING[name])
        elif collector.is_aside:
            yield _aside(collector)


def _is_sustained(collector: CollectorStatus, now_ms: int, limits: Limits) -> bool:
    since_ms = collector.since_ms if collector.is_aside else collector.blind_since_ms
    in_trouble = collector.is_in_trouble(now_ms, limits)
    if in_trouble and now_ms - since_ms > limits.collector_late_s * 1_000:
        return True
    if collector.reported_ms is None:
        return False
    on_time_ms = collector.on_time_ms
    return in_trouble or on_time_ms is None or now_ms - on_time_ms < limits.collector_on_time_s * 1_000


def coordinator_loading(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield the brokers that have not answered for `limits.coordinator_loading_s`: to lists, or at all.

    A broker that has just started loads its part of `__transaction_state` first; until then nobody can begin
    or end a transaction there. One that is away leads no partition, and its replicas take over.
    """
    limit_ms = limits.coordinator_loading_s * 1_000
    silent = [each for each in _silent_parts(snapshot) if now_ms - each.since_ms > limit_ms]
    if not silent:
        return
    since_ms = min(each.since_ms for each in silent)
    who = list(dict.fromkeys(each.name for each in silent))
    what = " for transactional ids" if all(each.listed for each in silent) else ""
    yield Finding(
        rule="coordinator_loading",
        cluster=snapshot.cluster,
        subject=f"coordinators:{snapshot.cluster}",
        severity=lasting_severity(since_ms, now_ms=now_ms, limits=limits),
        since_ms=since_ms,
        summary=f"{list_names(who)} {'does' if len(who) == 1 else 'do'} not answer{what}",
        evidence=list_names(list(dict.fromkeys(f"{each.name}: {each.reason}" for each in silent))),
        next_step=(
            "Producers of these coordinators wait. If it lasts, check the broker's log and the size of "
            "__transaction_state."
        ),
        affected=tuple(dict.fromkeys(each.scope for each in silent if each.scope)),
    )


class _SilentPart(NamedTuple):
    """What did not answer, for a list of transactions or at all; `scope` is "" for what is no broker."""

    name: str
    reason: str
    scope: str
    since_ms: int
    listed: bool


def _silent_parts(snapshot: Snapshot) -> Iterator[_SilentPart]:
    """Yield what is missing in the coordinators' lists, and brokers of which a poller sees nothing."""
    listed = set()
    for collector in snapshot.collectors:
        if Sense.LISTS in collector.senses and not collector.error:
            for part in collector.unseen:
                name, _, reason = part.partition(": ")
                scope = f"broker:{found[1]}" if (found := _BROKER.match(name)) else ""
                listed.add(scope)
                yield _SilentPart(name, reason, scope, collector.blind_since_ms, listed=True)
    for each in snapshot.gaps:
        if each.scope.startswith("broker:") and each.scope not in listed:
            name = each.scope.replace(":", " ")
            yield _SilentPart(name, each.reason, each.scope, each.since_ms, listed=False)


def collector_gap(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield the parts that a collector has not seen for `limits.gap_s`; collector_behind is for all parts."""
    passed = [
        each
        for each in snapshot.gaps
        if each.scope != EVERYWHERE and now_ms - each.since_ms > limits.gap_s * 1_000
    ]
    for source, gaps in groupby(sorted(passed, key=attrgetter("source", "since_ms")), attrgetter("source")):
        yield _unseen(snapshot.cluster, source, list(gaps))


def _unseen(cluster: str, source: str, gaps: Sequence[VisibilityGap]) -> Finding:
    scopes = [each.scope for each in gaps]
    reasons = list(dict.fromkeys(each.reason for each in gaps))
    return Finding(
        rule="collector_gap",
        cluster=cluster,
        subject=f"collector:{source}",
        severity=Severity.WARNING,
        since_ms=gaps[0].since_ms,
        summary=f"{source} cannot observe {list_names(scopes)}",
        evidence=f"{count_noun(len(reasons), 'reason')}: {'; '.join(reasons[:3])}",
        next_step=(
            "Nothing is reported about these until they can be observed; the reason names what is missing."
        ),
        affected=tuple(scopes),
    )


def _base(name: str) -> str:
    """Return a collector's name without the number of its shard."""
    base, _, number = name.rpartition("-")
    return base if number.isdigit() else name


def _aside(collector: CollectorStatus) -> Finding:
    what = f"{collector.name} cannot poll {collector.cluster}"
    evidence = collector.error
    if not collector.error:
        what, evidence = f"{collector.name} could not poll {collector.cluster}", _evidence(collector)
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=Severity.INFO,
        since_ms=_since_ms(collector, collector.since_ms),
        summary=what,
        evidence=evidence,
        next_step=_ASIDE.get(collector.name, "States are still read; their history is not."),
    )


def _blind(collector: CollectorStatus) -> Finding:
    return _finding(
        collector,
        Severity.CRITICAL if collector.error else Severity.WARNING,
        "The pages show this cluster as of the last poll until it can be polled again.",
    )


def _finding(collector: CollectorStatus, severity: Severity, next_step: str) -> Finding:
    what = collector.cluster if collector.is_eye else f"{collector.cluster}'s {_base(collector.name)}"
    verb = "has" if collector.is_eye else "have"
    since_ms = _since_ms(collector, collector.blind_since_ms)
    # What was seen in between is no news each time.
    how = "not been polled" if since_ms == collector.blind_since_ms else "been polled late"
    return Finding(
        rule="collector_behind",
        cluster=collector.cluster,
        subject=f"collector:{collector.name}",
        severity=severity,
        since_ms=since_ms,
        summary=f"{what} {verb} {how} since {format_clock(since_ms)}",
        evidence=_evidence(collector),
        next_step=next_step,
    )


def _since_ms(collector: CollectorStatus, now_since_ms: int) -> int:
    """Return since when it is late; an open finding keeps its start, whatever was read in between."""
    return now_since_ms if collector.reported_ms is None else min(collector.reported_ms, now_since_ms)


def _evidence(collector: CollectorStatus) -> str:
    if collector.error:
        return collector.error
    if collector.on_time_ms is not None:
        return f"{collector.name} has been on time again since {format_clock(collector.on_time_ms)}"
    if collector.behind:
        return f"{collector.name} has records to catch up with"
    return f"{collector.name} has not reported; is its worker running?"
