"""What an incident costs: counts of what its findings name, sums where figures are known, how bad it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.incidents.findings import FindingKey, OpenFinding, key_of
from fenceline.limits import Limits
from fenceline.severity import of_incident, worst_severity
from fenceline.snapshot import Snapshot

#: Rules whose queries lose the records of their prepared batches, or have lost them.
_LOSING = ("batch_prepared", "batch_lost")
#: Rules about who is blocked: what their findings affect is what blocks them.
_BLOCKED_READERS = ("group_stalled", "offsets_unstable", "query_blocked")
#: A sum that has changed by less than this part is the same: else each new record were news.
_NEWS = 0.1


class ImpactFigures(NamedTuple):
    """Figures of a snapshot that counts cannot give; what is missing is not known."""

    #: Subjects of partitions -> records and markers between LSO and high watermark.
    backlog: Mapping[str, int] = {}
    #: Subjects of queries -> records of their batches that are prepared or lost, and not recorded as such.
    records_at_risk: Mapping[str, int] = {}


class IncidentImpact(NamedTuple):
    """Distinct things that the findings of an incident name; None where no figure is known."""

    transactions: int
    partitions: int
    groups: int
    queries: int
    #: Records, at most, that read_committed consumers cannot read, over the partitions with a known figure.
    backlog: int | None
    #: Records that are lost unless their batches are committed, or are lost already.
    records_lost: int | None

    def is_news(self, before: IncidentImpact) -> bool:
        """Whether it differs from the impact before: a count at all, a sum by a tenth."""
        return self[:4] != before[:4] or any(
            _differs(now, then) for now, then in zip(self[4:], before[4:], strict=True)
        )


def impact_figures(snapshot: Snapshot) -> ImpactFigures:
    """Return the figures of a snapshot."""
    batches = {
        query.subject: [each.records_at_risk for each in query.sink_batches if not each.recorded]
        for query in snapshot.queries
    }
    return ImpactFigures(
        {f"partition:{each}": each.uncommitted_backlog for each in snapshot.partitions},
        {subject: sum(records) for subject, records in batches.items() if records},
    )


def affected_things(cause: FindingKey, findings: Iterable[OpenFinding]) -> set[str]:
    """Return the subjects of an incident's findings, and what these affect.

    What blocks a reader is another cause, or counted already, unless that reader is all there is to see.
    """
    things: set[str] = set()
    for each in findings:
        is_above = each.rule in _BLOCKED_READERS and key_of(each) != cause
        things |= {each.subject, *(() if is_above else each.affected)}
    return things


def impact_of(cause: FindingKey, findings: Collection[OpenFinding], figures: ImpactFigures) -> IncidentImpact:
    """Return the impact of an incident by its findings, with or without that of the cause itself."""
    things = affected_things(cause, findings)
    losing = {each.subject for each in findings if each.rule in _LOSING}
    return IncidentImpact(
        transactions=_count("transaction:", things),
        partitions=_count("partition:", things),
        groups=_count("group:", things),
        queries=_count("query:", things),
        backlog=_sum(figures.backlog, things),
        records_lost=_sum(figures.records_at_risk, losing),
    )


def incident_severity(
    findings: Collection[OpenFinding], impact: IncidentImpact, *, limits: Limits
) -> Severity:
    """Return how bad an incident is by its findings and by what they add up to."""
    readers = {each.subject for each in findings if each.rule in _BLOCKED_READERS}
    worst = worst_severity(Severity(each.severity) for each in findings)
    return of_incident(worst, len(readers), impact.backlog, limits=limits)


def first_deadline(findings: Iterable[OpenFinding]) -> int | None:
    """Return the first instant at which something of an incident ends by itself, or is lost."""
    return min((each.deadline_ms for each in findings if each.deadline_ms is not None), default=None)


def _count(kind: str, things: Iterable[str]) -> int:
    return sum(thing.startswith(kind) for thing in things)


def _sum(figures: Mapping[str, int], things: Iterable[str]) -> int | None:
    known = [figures[thing] for thing in things if thing in figures]
    return sum(known) if known else None


def _differs(now: int | None, before: int | None) -> bool:
    if now is None or before is None:
        return now is not before
    return abs(now - before) > _NEWS * before
