"""The verdict: everything the first page shows, said in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.models import FindingRecord
from dashboard.web.freshness import Blind, Freshness
from fenceline.facts import Severity
from fenceline.formatting import count_noun, format_clock, format_duration

#: A subject of 32 kB makes no headline.
_LONGEST = 140


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence, the figures it stands on, and its tone: a severity, "ok" or "unknown"."""

    tone: str
    sentence: str
    figures: Sequence[str]
    #: The rule that decided, "" where none did.
    rule: str = ""


def overview_headline(
    findings: Sequence[FindingRecord],
    sight: Freshness,
    *,
    clusters: Sequence[str],
    ids: int,
    open_now: int,
    oldest_ms: int | None,
    now_ms: int,
    pinned: int = 0,
    blocked: int = 0,
) -> Headline:
    """Judge the whole: the worst finding decides, and nothing is called fine that was not seen.

    `oldest_ms` is when the oldest open transaction began; `pinned` partitions are held back by one, and
    `blocked` groups are at its LSO.
    """
    if not clusters:
        return Headline("unknown", "No cluster is configured.", _HOW_TO_CONFIGURE)
    needs = [row for row in findings if row.severity != Severity.INFO]
    figures = _figures(len(clusters), ids, open_now, oldest_ms, now_ms)
    figures += [f"{count_noun(pinned, 'partition')} blocked"] if pinned else []
    figures += [f"{count_noun(blocked, 'group')} blocked"] if blocked else []
    if needs:
        return Headline(needs[0].severity, _worst(needs), [*figures, *_unseen(sight.blind)], needs[0].rule)
    if sight.blind:
        return Headline(
            "warning",
            _blind(sight.blind, clusters),
            [*figures, "nothing was stuck in the last complete data"],
        )
    if sight.unseen:
        return Headline(
            "unknown", f"{_listed(sight.unseen)} {_have(sight.unseen)} not been read yet.", _progress(sight)
        )
    return Headline("ok", "No transaction is stuck.", figures)


_HOW_TO_CONFIGURE = (
    'Name one under [clusters.NAME] in fenceline.toml with "bootstrap.servers"',
    "or start with make up BOOTSTRAP=host:port",
)


def _worst(needs: Sequence[FindingRecord]) -> str:
    first = needs[0].summary.rstrip(".")
    first = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
    more = len(needs) - 1
    return f"{first}." if not more else f"{first} (+{more:,} more)."


def _blind(blind: Sequence[Blind], clusters: Sequence[str]) -> str:
    names = sorted({reason.cluster for reason in blind})
    since = format_clock(min(reason.since_ms for reason in blind))
    where = f" in {_listed(names)}" if len(clusters) > 1 else ""
    return f"Data is incomplete{where} since {since}: whether anything is stuck is unknown."


def _unseen(blind: Sequence[Blind]) -> Sequence[str]:
    return (
        [f"data is incomplete since {format_clock(min(reason.since_ms for reason in blind))}"]
        if blind
        else []
    )


def _figures(clusters: int, ids: int, open_now: int, oldest_ms: int | None, now_ms: int) -> list[str]:
    figures = [count_noun(ids, "transactional id"), f"{open_now:,} open"]
    if open_now and oldest_ms is not None:
        figures[1] += f", the oldest for {format_duration(now_ms - oldest_ms)}"
    return [*figures, *([count_noun(clusters, "cluster")] if clusters > 1 else [])]


def _progress(sight: Freshness) -> Sequence[str]:
    behind = sum(row.behind or 0 for row in sight.collectors)
    read = sum(row.records for row in sight.collectors)
    if not sight.collectors:
        return ["No collector has reported yet; collectors start within seconds of a worker"]
    to_go = f"{behind:,} to go" if behind else "the end offset is not known yet"
    return [f"First read in progress: {count_noun(read, 'record')} read, {to_go}"]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
