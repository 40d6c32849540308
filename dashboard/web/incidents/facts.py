"""What sentences about open incidents are made of, read at once for all incidents of a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Max

from dashboard.evaluation.baselines import ClusterBaselines
from dashboard.incidents import queries as incident_queries
from dashboard.models import FindingRecord, Incident, PinRecord, Query, SinkDecision
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming.batch_state import decision_of, prepared_batches, transaction_outcomes
from dashboard.streaming.names import names_by_subject
from dashboard.streaming.registry import driver_of
from fenceline.incidents.findings import FindingKey
from fenceline.incidents.impact import affected_things
from fenceline.incidents.sentences import IncidentFacts, StuckBatches
from fenceline.kafka.applications import application_of
from fenceline.spark.sink_fates import TransactionFate

_SAFE = (TransactionFate.COMMITTED, TransactionFate.COMMITTING)


@dataclass(frozen=True, slots=True)
class OpenProblem:
    """An open incident with its open findings, or a finding that is in none.

    The first of `findings` is the cause, or once that is over the worst effect that is left.
    """

    incident: Incident | None
    findings: Sequence[FindingRecord]

    @property
    def cause(self) -> FindingKey:
        """Return the key of the cause, which may be over."""
        if self.incident is not None:
            return FindingKey(self.incident.rule, self.incident.subject)
        return FindingKey(self.findings[0].rule, self.findings[0].subject)

    @property
    def severity(self) -> str:
        """Return how bad it is: an incident as the worst of its findings, or what they add up to."""
        return (self.incident or self.findings[0]).severity


class FactsReader:
    """Reads, for all problems of a page, what is known beside their findings: in a handful of SQL queries."""

    def __init__(self, problems: Sequence[OpenProblem], *, now_ms: int) -> None:
        self._now_ms = now_ms
        shown = [each.findings[0] for each in problems]
        self._things = {id(each): affected_things(each.cause, each.findings) for each in problems}
        self._names = self._query_names(problems)
        self._silent = _silent_since([row for row in shown if row.subject.startswith("transaction:")])
        self._usual = _usual_commits(shown, now_ms)
        self._batches = _stuck_batches([row for row in shown if row.subject.startswith("query:")], now_ms)
        over = [each.incident for each in problems if each.incident and each.incident.cause_over_ms]
        self._over = incident_queries.causes_of(over) if over else {}

    def facts_of(self, problem: OpenProblem) -> IncidentFacts:
        """Return the facts of one of the problems."""
        shown, row = problem.findings[0], problem.incident
        things, cluster = self._things[id(problem)], shown.cluster_id
        subject = cluster, shown.subject
        over = self._over.get(row.pk) if row else None
        return IncidentFacts(
            rule=shown.rule,
            name=self._names.get(subject, shown.subject.partition(":")[2]),
            summary=shown.summary,
            evidence=shown.evidence,
            since_ms=shown.since_ms,
            partitions=_named("partition:", things),
            groups=_named("group:", things - {shown.subject}),
            queries=sorted(
                self._names.get((cluster, each), each.partition(":")[2])
                for each in things - {shown.subject}
                if each.startswith("query:")
            ),
            backlog=row.impact.get("backlog") if row else None,
            deadline_ms=row.deadline_ms if row else shown.deadline_ms,
            usual_ms=self._usual.get(subject),
            silent_since_ms=self._silent.get(subject),
            batches=self._batches.get(subject),
            cause_over_ms=row.cause_over_ms if row else None,
            over_summary=over.summary if over else "",
        )

    def _query_names(self, problems: Iterable[OpenProblem]) -> Mapping[tuple[int, str], str]:
        wanted: dict[int, set[str]] = defaultdict(set)
        for each in problems:
            wanted[each.findings[0].cluster_id] |= self._things[id(each)]
        return {
            (cluster_id, subject): name
            for cluster_id, subjects in wanted.items()
            for subject, name in names_by_subject(cluster_id, subjects).items()
        }


def _named(kind: str, things: Collection[str]) -> Sequence[str]:
    return sorted(each.removeprefix(kind) for each in things if each.startswith(kind))


def _silent_since(rows: Sequence[FindingRecord]) -> Mapping[tuple[int, str], int]:
    """Return since when the producers of open transactions have written nothing, by leaders' own lists."""
    names = {row.subject.removeprefix("transaction:") for row in rows}
    pins = PinRecord.objects.filter(cluster__in={row.cluster_id for row in rows}, transactional_id__in=names)
    found = pins.values_list("cluster", "transactional_id").annotate(Max("seen_ms")) if rows else ()
    return {(cluster, f"transaction:{name}"): seen_ms for cluster, name, seen_ms in found}


def _usual_commits(rows: Iterable[FindingRecord], now_ms: int) -> Mapping[tuple[int, str], int]:
    """Return how long 99 of 100 commits take, for transactions that are open for too long."""
    applications: dict[int, dict[str, str]] = defaultdict(dict)
    for row in rows:
        if row.rule == "open_too_long":
            name = row.subject.removeprefix("transaction:")
            applications[row.cluster_id][row.subject] = application_of(name).application
    found: dict[tuple[int, str], int] = {}
    for cluster_id, of_subject in applications.items():
        usual = ClusterBaselines(cluster_id).usual_commits(set(of_subject.values()), now_ms)
        found |= {
            (cluster_id, subject): usual[name].p99_ms for subject, name in of_subject.items() if name in usual
        }
    return found


def _stuck_batches(rows: Sequence[FindingRecord], now_ms: int) -> Mapping[tuple[int, str], StuckBatches]:
    """Return the batches that are prepared and not committed, of queries that are causes."""
    idents = {row.subject.removeprefix("query:") for row in rows}
    clusters = {row.cluster_id for row in rows}
    queries = list(Query.objects.filter(cluster__in=clusters, ident__in=idents)) if rows else []
    decided: dict[int, list[SinkDecision]] = defaultdict(list)
    for decision in streaming_batches.open_decisions(queries) if queries else ():
        decided[decision.query_id].append(decision)
    return {
        (query.cluster_id, f"query:{query.ident}"): _stuck_batch(query, decided[query.pk], now_ms)
        for query in queries
        if query.pk in decided
    }


def _stuck_batch(query: Query, decisions: Sequence[SinkDecision], now_ms: int) -> StuckBatches:
    written = [each for decision in decisions for each in decision_of(decision).transactions]
    outcomes = transaction_outcomes(query.cluster_id, written)
    driver = driver_of(query, now_ms)
    return StuckBatches(
        [decision.batch_id for decision in decisions],
        sum(each.records for each in written if outcomes[each].fate not in _SAFE),
        driver,
        prepared_batches(query, decisions, now_ms).is_orphaned(driver),
    )
