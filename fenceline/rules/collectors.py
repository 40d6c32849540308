"""Rules about our own visibility: brokers and parts of a cluster that cannot be read."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fenceline.facts import Finding, Severity, VisibilityGap
from fenceline.findings import EVERYWHERE, Sense, lasting_severity
from fenceline.formatting import count_noun, list_names
from fenceline.limits import Limits
from fenceline.rules.rule import claim
from fenceline.snapshot import Snapshot

#: A broker in the name of a silent part.
_BROKER = re.compile(r"broker (\d+)\b")


def coordinator_loading(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield the brokers without an answer for `limits.coordinator_loading_s`: to lists, or to any request.

    A broker that has just started first loads its part of `__transaction_state`; until then no producer can
    begin or end a transaction there. An unreachable broker leads no partition, and its replicas take over.
    """
    limit_ms = limits.coordinator_loading_s * 1_000
    silent = [part for part in _silent_parts(snapshot) if now_ms - part.since_ms > limit_ms]
    if not silent:
        return
    since_ms = min(part.since_ms for part in silent)
    who = list(dict.fromkeys(part.name for part in silent))
    what = " for transactional ids" if all(part.listed for part in silent) else ""
    yield claim(
        subject=f"coordinators:{snapshot.cluster}",
        severity=lasting_severity(since_ms, now_ms=now_ms, limits=limits),
        since_ms=since_ms,
        summary=f"{list_names(who)} {'does' if len(who) == 1 else 'do'} not answer{what}",
        evidence=list_names(list(dict.fromkeys(f"{part.name}: {part.reason}" for part in silent))),
        next_step=(
            "Producers of these coordinators wait. If it lasts, check the broker's log and the size of "
            "__transaction_state."
        ),
        affected=tuple(dict.fromkeys(part.scope for part in silent if part.scope)),
    )


class _SilentPart(NamedTuple):
    """A part that did not answer a list of transactions, or any request; `scope` is "" without a broker."""

    name: str
    reason: str
    scope: str
    since_ms: int
    listed: bool


def _silent_parts(snapshot: Snapshot) -> Iterator[_SilentPart]:
    """Yield missing parts of the coordinators' lists, and brokers that a poller cannot reach."""
    listed = set()
    for collector in snapshot.collectors:
        if Sense.LISTS in collector.senses and not collector.error:
            for part in collector.unseen:
                name, _, reason = part.partition(": ")
                scope = f"broker:{match[1]}" if (match := _BROKER.match(name)) else ""
                listed.add(scope)
                yield _SilentPart(name, reason, scope, collector.blind_since_ms, listed=True)
    for gap in snapshot.gaps:
        if gap.scope.startswith("broker:") and gap.scope not in listed:
            name = gap.scope.replace(":", " ")
            yield _SilentPart(name, gap.reason, gap.scope, gap.since_ms, listed=False)


def collector_gap(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield the parts that a collector has not read for `limits.gap_s`; System shows blind collectors."""
    passed = [
        gap
        for gap in snapshot.gaps
        if gap.scope != EVERYWHERE and now_ms - gap.since_ms > limits.gap_s * 1_000
    ]
    for source, gaps in groupby(sorted(passed, key=attrgetter("source", "since_ms")), attrgetter("source")):
        yield _unseen(source, list(gaps))


def _unseen(source: str, gaps: Sequence[VisibilityGap]) -> Finding:
    scopes = [gap.scope for gap in gaps]
    reasons = list(dict.fromkeys(gap.reason for gap in gaps))
    return claim(
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
