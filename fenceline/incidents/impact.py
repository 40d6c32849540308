"""Compute the damage of an incident: counts of the subjects in its findings, known sums, and a severity."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.findings import of_incident, worst_severity
from fenceline.incidents.findings import FindingKey, OpenFinding, key_of
from fenceline.limits import Limits
from fenceline.series.rollup import greater_known
from fenceline.snapshot import Snapshot

#: Rules whose queries lose, or have lost, the records of their prepared batches.
_LOSING = ("batch_prepared", "batch_lost")
#: Rules about blocked readers: their findings' `affected` are the blockers.
_BLOCKED_READERS = ("group_stalled", "offsets_unstable", "query_blocked")
#: A sum that has changed by a smaller share is the same: otherwise each new record would be news.
_NEWS = 0.1


class ImpactFigures(NamedTuple):
    """Figures of a snapshot beyond counts; a missing key is unknown."""

    #: Subjects of partitions -> records and markers between LSO and high watermark.
    backlog: Mapping[str, int] = {}
    #: Subjects of queries -> records of their prepared or lost batches, without an accepted loss.
    records_at_risk: Mapping[str, int] = {}
    #: Subjects of blocked partitions; None if unknown: then all named ones count.
    blocked: AbstractSet[str] | None = None


class IncidentImpact(NamedTuple):
    """Distinct subjects in an incident's findings; unknown figures are None.

    A query that is the cause does not count as blocked.
    """

    transactions: int
    partitions: int
    groups: int
    queries: int
    #: Maximum records that read_committed consumers cannot read, over the partitions with a known figure.
    backlog: int | None
    #: Records that will be lost without their batches' commit, or are lost already.
    records_lost: int | None

    def worst_with(self, other: IncidentImpact) -> IncidentImpact:
        """Return the larger of each figure; None if both are unknown."""
        return IncidentImpact._make(
            greater_known(own, others) for own, others in zip(self, other, strict=True)
        )

    def is_news(self, before: IncidentImpact) -> bool:
        """Whether it differs from the former impact: any count, or a sum by a tenth."""
        return self[:4] != before[:4] or any(
            _differs(now, then) for now, then in zip(self[4:], before[4:], strict=True)
        )


def impact_figures(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> ImpactFigures:
    batches = {
        query.subject: [batch.records_at_risk for batch in query.sink_batches if not batch.recorded]
        for query in snapshot.queries
    }
    return ImpactFigures(
        {f"partition:{partition}": partition.uncommitted_backlog for partition in snapshot.partitions},
        {subject: sum(records) for subject, records in batches.items() if records},
        {
            f"partition:{partition}"
            for partition in snapshot.partitions
            if partition.is_blocked(now_ms, limits)
        },
    )


def affected_things(cause: FindingKey, findings: Iterable[OpenFinding]) -> set[str]:
    """Return the subjects of an incident's findings, and their affected subjects.

    A blocked reader's finding adds no affected things, because its blocker is another cause or already
    counted. It does if it is the cause.
    """
    things: set[str] = set()
    for finding in findings:
        is_above = finding.rule in _BLOCKED_READERS and key_of(finding) != cause
        things |= {finding.subject, *(() if is_above else finding.affected)}
    return things


def impact_of(cause: FindingKey, findings: Collection[OpenFinding], figures: ImpactFigures) -> IncidentImpact:
    """Return the impact of an incident from its findings, with or without the cause's own."""
    things = affected_things(cause, findings)
    # A query that is the cause blocks others, unless the finding is that it is blocked itself.
    own = set() if cause.rule in _BLOCKED_READERS else {cause.subject}
    losing = {finding.subject for finding in findings if finding.rule in _LOSING}
    return IncidentImpact(
        transactions=_count("transaction:", things),
        partitions=_count("partition:", things if figures.blocked is None else things & figures.blocked),
        groups=_count("group:", things),
        queries=_count("query:", things - own),
        backlog=_sum(figures.backlog, things),
        records_lost=_sum(figures.records_at_risk, losing),
    )


def incident_severity(
    findings: Collection[OpenFinding], impact: IncidentImpact, *, limits: Limits
) -> Severity:
    readers = {finding.subject for finding in findings if finding.rule in _BLOCKED_READERS}
    worst = worst_severity(Severity(finding.severity) for finding in findings)
    return of_incident(worst, len(readers), impact.backlog, limits=limits)


def first_deadline(findings: Iterable[OpenFinding]) -> int | None:
    """Return the first instant at which a part of an incident ends by itself, or is lost."""
    return min((finding.deadline_ms for finding in findings if finding.deadline_ms is not None), default=None)


def _count(kind: str, things: Iterable[str]) -> int:
    return sum(thing.startswith(kind) for thing in things)


def _sum(figures: Mapping[str, int], things: Iterable[str]) -> int | None:
    known = [figures[thing] for thing in things if thing in figures]
    return sum(known) if known else None


def _differs(now: int | None, before: int | None) -> bool:
    if now is None or before is None:
        return now is not before
    return abs(now - before) > _NEWS * before
