"""How far a page can be trusted: the instant of its data, and its unread parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings

from dashboard.models import Cluster
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import (
    FLINK,
    JUDGE,
    QUERIES,
    RECONCILE,
    TAIL,
    collectors_of,
)

if TYPE_CHECKING:
    from dashboard.runtime.visibility import LiveCollector

#: Seconds without new data after which a page warns; `limits.collector_behind_s` may require more.
STALE_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Blind:
    """A reason why a page may be old or incomplete."""

    cluster: str
    what: str
    since_ms: int
    reason: str
    #: Whether it fails or may not read a part, which is worse than being late.
    is_broken: bool = True


@dataclass(frozen=True, slots=True)
class Freshness:
    """The instant up to which a page's data is complete, and all reasons for doubt."""

    as_of_ms: int | None
    collectors: Sequence[LiveCollector]
    blind: Sequence[Blind]
    #: Clusters without a complete first poll.
    unseen: Sequence[str]
    #: Clusters known only from the coordinators' lists and from markers, the reason, and the shortest
    #: transaction that is certainly seen, in milliseconds.
    listed: Sequence[tuple[str, str, int]] = ()
    #: Whether the only trouble is that collectors are late by less than `limits.collector_late_s`.
    is_brief: bool = False

    @property
    def since_ms(self) -> int:
        """Return the time since which data is missing; call it only with reasons in `blind`."""
        return min(reason.since_ms for reason in self.blind)


def stale_after_ms() -> int:
    """Return the age in milliseconds at which the newest data counts as stale."""
    return int(max(STALE_AFTER_S, settings.FENCELINE.limits.collector_behind_s) * 1000)


def noun_freshness(cluster: str, clusters: Sequence[Cluster], now_ms: int, noun: str) -> Freshness:
    names = [cluster] if cluster else [row.name for row in clusters]
    rows = visibility.list_collectors(cluster)
    seen = visibility.noun_visibility(cluster, noun, now_ms, collectors=rows)
    seeing = {name: collectors_of((row for row in rows if row.cluster.name == name), noun) for name in names}
    unseen = [
        name
        for name in names
        if any(eye.seen_through_ms is None for eye in seeing[name])
        or not (seeing[name] or _needs_no_eye(name, noun))
    ]
    which = {(name, eye.name) for name in names for eye in seeing[name]}
    # Late collectors are evaluated below, by the page's own limit.
    kept = [gap for gap in seen.gaps if gap.pk is not None]
    gaps = [
        Blind(gap.cluster.name, gap.source, gap.since_ms, gap.reason)
        for gap in kept
        if (gap.cluster.name, gap.source) in which
    ]
    dark = {reason.cluster for reason in gaps}
    # Findings are outdated too when the evaluator does not run.
    which |= {(name, JUDGE) for name in names}
    rested_on = [
        row for row in rows if (row.cluster.name, row.name) in which and row.cluster.name not in dark
    ]
    late = [blind for row in rested_on if (blind := _late(row, now_ms))]
    alone = {name for name in names if any(eye.name == RECONCILE for eye in seeing[name])}
    troubles = {row.cluster.name: row.error for row in rows if row.error and row.name.startswith(TAIL)}
    shortest = {row.cluster.name: row.detail.get("shortest_ms", 0) for row in rows if row.name == RECONCILE}
    listed = [(name, troubles.get(name, ""), shortest.get(name, 0)) for name in names if name in alone]
    reasons = sorted(gaps + late, key=attrgetter("since_ms"))
    limit_ms = settings.FENCELINE.limits.collector_late_s * 1_000
    brief = all(not reason.is_broken and now_ms - reason.since_ms <= limit_ms for reason in reasons)
    return Freshness(None if unseen else seen.as_of_ms, rows, reasons, unseen, listed, brief)


def _needs_no_eye(cluster: str, noun: str) -> bool:
    """Return whether there is nothing to poll: without a root, queries are known only from listeners."""
    config = settings.FENCELINE
    roots = {QUERIES: config.checkpoints, FLINK: config.flink_checkpoints}
    return noun in roots and all(root.cluster != cluster for root in roots[noun])


class CollectorState(NamedTuple):
    """A collector's state in one or two words, and their tone."""

    tone: str
    words: str


def collector_state(row: LiveCollector, now_ms: int) -> CollectorState:
    if row.error:
        return CollectorState("critical", "failing")
    if not row.alive:
        return CollectorState("warning", "not running")
    if row.seen_through_ms is None:
        return CollectorState("info", "first read")
    # Retention rests for longer than that.
    if row.name not in visibility.SHOWS_NOTHING and now_ms - row.seen_through_ms > stale_after_ms():
        return CollectorState("warning", "catching up" if row.behind else "late")
    return CollectorState("ok", "up to date")


def _late(row: LiveCollector, now_ms: int) -> Blind | None:
    """Return why a collector without an error has no new data, None when it is on time."""
    if row.error:
        return Blind(row.cluster.name, row.name, row.since_ms, row.error)
    since_ms = row.seen_through_ms
    if since_ms is None or now_ms - since_ms <= stale_after_ms():
        return None
    return Blind(row.cluster.name, row.name, since_ms, visibility.gap_reason(row, since_ms), is_broken=False)
