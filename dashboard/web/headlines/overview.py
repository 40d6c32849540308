"""The verdicts of the first page and of the list of streaming queries: the worst fact, then figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dashboard.labels.query import STATE_LABELS
from dashboard.models import FindingRecord, Query
from dashboard.runtime.collector_names import RECONCILE
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import is_overdue, prepared_batches
from dashboard.streaming.queries import PREPARED
from dashboard.streaming.registry import driver_of
from dashboard.web.freshness import Blind, Freshness, collector_state
from fenceline.facts import Severity
from fenceline.formatting import count_noun, format_clock
from fenceline.incidents.sentences import IncidentFacts, worst_fact
from fenceline.kafka.reconcile import format_agreement
from fenceline.spark.records import QueryState
from fenceline.spark.safe_to_restart import prepared_headline
from fenceline.text import Sentence

#: Longer parts of a sentence are clipped: a subject may have 32 kB.
_LONGEST = 140


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence, the figures below it, and its tone: a severity, "ok" or "unknown"."""

    tone: str
    sentence: Sentence
    figures: Sequence[str]


class OverviewFigures(NamedTuple):
    """Clusters and numbers of the first page."""

    clusters: Sequence[str]
    ids: int
    open_now: int
    #: Partitions whose LSO an open transaction blocks, and groups that are at such an LSO.
    blocked_partitions: int = 0
    blocked_groups: int = 0


def overview_headline(
    problems: Sequence[tuple[str, IncidentFacts]],
    number: int,
    freshness: Freshness,
    figures: OverviewFigures,
    *,
    now_ms: int,
) -> Headline:
    """Return the verdict: the first open incident decides, and unread parts are never called fine. `problems`
    are the first of `number`, by damage and deadline: the severity and the facts of each.
    """
    if not figures.clusters:
        return Headline("unknown", ("No cluster is configured.",), _HOW_TO_CONFIGURE)
    needs = [(severity, facts) for severity, facts in problems if severity != Severity.INFO]
    shown = _figures(figures, freshness, now_ms)
    if needs:
        severity, facts = needs[0]
        begin = f"{count_noun(number, 'open incident')}. "
        return Headline(severity, (begin, *_clipped(worst_fact(facts, now_ms=now_ms))), shown)
    if freshness.blind:
        sentence = _blind(freshness.blind, figures.clusters)
        return Headline("warning", (sentence,), [*shown, "nothing was stuck in the last complete data"])
    if freshness.unseen:
        have = "has" if len(freshness.unseen) == 1 else "have"
        sentence = f"{_listed(freshness.unseen)} {have} not been read yet."
        return Headline("unknown", (sentence,), _progress(freshness))
    return Headline("ok", ("No transaction is stuck.",), shown)


def range_headline(number: int, most: int) -> Headline:
    """Return the number of incidents in a past range; above `most` they are not counted."""
    if not number:
        return Headline("ok", ("No incident was open in this range.",), ())
    words = f"More than {most} incidents" if number > most else count_noun(number, "incident")
    return Headline("unknown", (f"{words} in this range.",), ())


_HOW_TO_CONFIGURE = (
    'Name one under [clusters.NAME] in fenceline.toml with "bootstrap.servers"',
    "or start with make up BOOTSTRAP=host:port",
)


def _clipped(sentence: Sentence) -> Sentence:
    return tuple(
        f"{part[:_LONGEST]}…" if isinstance(part, str) and len(part) > _LONGEST else part for part in sentence
    )


def _blind(blind: Sequence[Blind], clusters: Sequence[str]) -> str:
    names = sorted({reason.cluster for reason in blind})
    since = format_clock(min(reason.since_ms for reason in blind))
    where = f" in {_listed(names)}" if len(clusters) > 1 else ""
    return f"Data is incomplete{where} since {since}: whether anything is stuck is unknown."


def _figures(figures: OverviewFigures, freshness: Freshness, now_ms: int) -> list[str]:
    """Return the figures behind the verdict: numbers, and the progress of their reading."""
    several = [count_noun(len(figures.clusters), "cluster")] if len(figures.clusters) > 1 else []
    seen = [count_noun(figures.ids, "transactional id"), f"{figures.open_now:,} open"]
    blocked = {"partition": figures.blocked_partitions, "group": figures.blocked_groups}
    seen += [f"{count_noun(number, noun)} blocked" for noun, number in blocked.items() if number]
    return [
        *several,
        *seen,
        *_collectors(freshness, now_ms),
        *_unseen(freshness.blind),
        *_agreement(freshness),
    ]


def _collectors(freshness: Freshness, now_ms: int) -> Sequence[str]:
    number = len(freshness.collectors)
    current = sum(collector_state(row, now_ms).tone == "ok" for row in freshness.collectors)
    if not number:
        return []
    return [
        f"all {number} collectors current"
        if current == number
        else f"{current} of {number} collectors current"
    ]


def _unseen(blind: Sequence[Blind]) -> Sequence[str]:
    if not blind:
        return []
    return [f"data is incomplete since {format_clock(min(reason.since_ms for reason in blind))}"]


def _agreement(freshness: Freshness) -> Sequence[str]:
    """Return how far the rows agree with the coordinators' own lists, where these were compared."""
    details = [row.detail for row in freshness.collectors if row.name == RECONCILE]
    compared = sum(detail.get("compared", 0) for detail in details)
    agreed = sum(detail.get("agreed", 0) for detail in details)
    return [f"{format_agreement(agreed, compared)} agreement with coordinators"] if compared else []


def _progress(freshness: Freshness) -> Sequence[str]:
    behind = sum(row.behind or 0 for row in freshness.collectors)
    read = sum(row.records for row in freshness.collectors)
    if not freshness.collectors:
        return ["No collector has reported yet; collectors start within seconds of a worker"]
    to_go = f"{behind:,} to go" if behind else "the end offset is not known yet"
    return [f"First read in progress: {count_noun(read, 'record')} read, {to_go}"]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


#: Maximum queries with a prepared batch that are searched for the one whose batch is lost first.
_MOST_STUCK = 200
#: Longer summaries of findings are clipped.
_LONGEST_SUMMARY = 120


def stuck_queries(cluster: str, now_ms: int) -> Sequence[Query]:
    """Return the queries whose prepared batch has waited past its limit, by the deadline of its loss."""
    prepared = streaming_queries.SortedQueries(cluster=cluster, state=PREPARED)
    page = streaming_queries.query_page(prepared, page=1, size=_MOST_STUCK)
    late = {
        decision.query_id
        for decision in streaming_batches.open_decisions(page.items)
        if is_overdue(decision.query, decision, now_ms) or driver_of(decision.query, now_ms).alive is False
    }
    return [row for row in page.items if row.pk in late]


def queries_headline(
    number: int,
    states: Mapping[str, int],
    waiting: Sequence[Query],
    findings: Sequence[FindingRecord],
    now_ms: int,
) -> Headline:
    """Return the verdict on `number` queries; `findings` are theirs, the worst first."""
    queries = count_noun(number, "query")
    figures = [
        f"{states[state]:,} {STATE_LABELS[state].words}"
        for state in streaming_queries.WORST_STATES
        if states[state]
    ]
    needs = [row for row in findings if row.severity != Severity.INFO]
    if waiting:
        return _waits(queries, waiting, figures, now_ms)
    if needs:
        summary = needs[0].summary.rstrip(".")
        shown = summary if len(summary) <= _LONGEST_SUMMARY else f"{summary[:_LONGEST_SUMMARY]}…"
        more = f", and {len(needs) - 1} more" if len(needs) > 1 else ""
        return Headline(needs[0].severity, (f"{queries}; {shown}{more}.",), figures)
    if failed := states[QueryState.FAILED]:
        return Headline("critical", (f"{queries}; {failed:,} of them failed.",), figures)
    silent = states[QueryState.UNHEARD]
    if silent == number:
        return Headline("unknown", (f"{queries}; no heartbeat from any driver.",), figures)
    return Headline("ok", (f"{queries}, no uncommitted batch.",), figures)


def _waits(queries: str, waiting: Sequence[Query], figures: Sequence[str], now_ms: int) -> Headline:
    row = waiting[0]
    more = f" (+{len(waiting) - 1} more)" if len(waiting) > 1 else ""
    prepared = prepared_batches(row, streaming_batches.open_decisions([row]), now_ms)
    first = prepared_headline(prepared, driver_of(row, now_ms), now_ms=now_ms, of=str(row))
    return Headline("critical", (f"{first.removesuffix('.')}{more}; {queries}.",), figures)
