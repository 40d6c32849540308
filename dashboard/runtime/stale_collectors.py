"""Late collectors: each is a gap until it reports newer data.

These gaps are not rows: they are derived from a collector's `seen_through_ms` and the clock. So they exist
even if no process runs that could write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings

from dashboard.models import Collector, GapRecord
from dashboard.runtime.collector_names import CAPABILITIES, RECONCILE, TAIL, collectors_of
from fenceline.facts import VisibilityGap
from fenceline.findings.visibility import EVERYWHERE, expected_ms, stale_gap
from fenceline.formatting import format_clock
from fenceline.limits import Limits

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Alive(TypedDict):
        alive: bool

    #: A collector's row and whether its lease is live.
    LiveCollector = WithAnnotations[Collector, _Alive]

#: Collectors without data for a page or a response.
_SHOWS_NOTHING = ("retention", "deliveries", CAPABILITIES)


def late_gaps(rows: Iterable[LiveCollector], limits: Limits, now_ms: int) -> list[GapRecord]:
    """Return the gaps of late collectors as unsaved rows, oldest first; `rows` are sorted by cluster."""
    gaps = [
        gap
        for _, group in groupby(rows, attrgetter("cluster_id"))
        for gap in _of_cluster(list(group), limits, now_ms)
    ]
    return sorted(gaps, key=attrgetter("since_ms"))


def gap_reason(row: LiveCollector, since_ms: int) -> str:
    """Return why a collector reports nothing newer."""
    if row.error:
        return row.error
    if not row.alive:
        return "no worker holds its lease; is the worker running?"
    if row.behind:
        return f"it is catching up, {row.behind:,} records to go"
    if row.seen_through_ms is None:
        return f"its first poll, begun at {format_clock(since_ms)}, is not complete"
    return f"it has reported nothing newer than {format_clock(since_ms)}"


def absence_doubt(topic: str, poller: Collector | None, unseen: str, now_ms: int) -> str | None:
    """Return why a missing topic may be needed; "" if it is not needed, None until that is known.

    `poller` lists the users of such a topic and has found no user; `unseen` describes omissions in its last
    list.
    """
    if poller is None:
        return None
    if reason := poller.error or unseen:
        return f"brokers have no {topic}, and who needs it cannot be seen: {reason}"
    late_ms = expected_ms(settings.FENCELINE.limits, reads_on=False)
    is_new = poller.seen_through_ms is not None and now_ms - poller.seen_through_ms <= late_ms
    return "" if is_new else None


def _of_cluster(rows: list[LiveCollector], limits: Limits, now_ms: int) -> Iterable[GapRecord]:
    seeing = {row.name for row in collectors_of(rows)}
    several = len([row for row in rows if row.name.startswith(TAIL)]) > 1
    for row in rows:
        # While a tail reads the log, the coordinators' lists only serve for comparison, at their own
        # interval.
        if row.name in _SHOWS_NOTHING or (row.name == RECONCILE and RECONCILE not in seeing):
            continue
        is_tail = row.name.startswith(TAIL)
        since_ms = row.since_ms if row.seen_through_ms is None else row.seen_through_ms
        gap = stale_gap(
            row.cluster.name,
            row.name,
            seen_through_ms=row.seen_through_ms,
            since_ms=row.since_ms,
            expected_ms=expected_ms(limits, reads_on=is_tail or row.name in seeing),
            now_ms=now_ms,
            reason=gap_reason(row, since_ms),
            scope=f"shard:{row.name.rpartition('-')[2]}" if is_tail and several else EVERYWHERE,
        )
        if gap is not None:
            yield _record(row, gap)


def _record(row: LiveCollector, gap: VisibilityGap) -> GapRecord:
    return GapRecord(
        cluster=row.cluster, source=gap.source, scope=gap.scope, since_ms=gap.since_ms, reason=gap.reason
    )
