"""All streaming queries in one sentence, the worst first. Pure but for its one question to the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from dashboard import micro_batches, streaming
from dashboard.models import FindingRecord, Query
from dashboard.streaming import PREPARED
from fenceline.facts import Severity
from fenceline.spark import QueryState

#: So many queries with a prepared batch are looked through for the one that is lost first.
_MOST_STUCK = 200
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence up to a countdown, and its tone; `until_ms` is when what waits is lost, if anything."""

    tone: str
    sentence: str
    figures: Sequence[str]
    until_ms: int | None = None


def stuck(cluster: str, now_ms: int) -> Sequence[Query]:
    """Return the queries whose prepared batch has waited past its limit, the one that is lost first first."""
    limit_ms = int(settings.FENCELINE.limits.batch_prepared_s * 1_000)
    page = streaming.page(
        streaming.Filter(cluster=cluster, state=PREPARED, sort="worst"), page=1, size=_MOST_STUCK
    )
    late = {
        each.query_id
        for each in micro_batches.open_decisions(page.items)
        if now_ms - each.decided_ms > limit_ms
    }
    return [row for row in page.items if row.pk in late]


def verdict(
    number: int,
    states: Mapping[str, int],
    waiting: Sequence[Query],
    findings: Sequence[FindingRecord],
    now_ms: int,
) -> Said:
    """Return the verdict on `number` queries; `findings` are theirs, the worst first."""
    queries = f"{number:,} {'query' if number == 1 else 'queries'}"
    figures = [f"{states[state]:,} {state}" for state in streaming.WORST_STATES if states[state]]
    needs = [row for row in findings if row.severity != Severity.INFO]
    if waiting:
        return _waits(queries, waiting, figures, now_ms)
    if needs:
        summary = needs[0].summary.rstrip(".")
        shown = summary if len(summary) <= _LONGEST else f"{summary[:_LONGEST]}…"
        more = f", and {len(needs) - 1} more" if len(needs) > 1 else ""
        return Said(needs[0].severity, f"{queries}; {shown}{more}.", figures)
    if failed := states[QueryState.FAILED]:
        return Said("critical", f"{queries}; {failed:,} of them failed.", figures)
    unheard = states[QueryState.UNHEARD]
    if unheard == number:
        return Said("unknown", f"{queries}; no listener tells whether their drivers live.", figures)
    return Said("ok", f"{queries}; nothing waits for a commit.", figures)


def _waits(queries: str, waiting: Sequence[Query], figures: Sequence[str], now_ms: int) -> Said:
    row = waiting[0]
    more = f", and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    waits = f"{queries}; {row} waits for a prepared batch{more}"
    if row.expires_ms is None:
        return Said("critical", f"{waits}.", figures)
    if row.expires_ms <= now_ms:
        return Said("critical", f"{waits}: its transactions have timed out, the batch may be lost.", figures)
    return Said("critical", waits, figures, row.expires_ms)
