"""The facts for sentences about an incident, read from the snapshot of its evaluation. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from fenceline.incidents.findings import FindingKey, OpenFinding
from fenceline.incidents.impact import IncidentImpact, affected_things
from fenceline.incidents.sentences import IncidentFacts, StuckBatches
from fenceline.kafka.applications import application_of
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.queries import QueryStatus
from fenceline.spark.safe_to_restart import PreparedBatches

#: An instant that moves by less is no news: clocks are compared again, and producers continue to write.
_SAME_INSTANT_MS = {"deadline_ms": 1_000, "silent_since_ms": 10_000}


class FactsReader:
    """Reads the facts of incidents from one snapshot; `blocked` as in `ImpactFigures`."""

    def __init__(
        self, snapshot: Snapshot, *, now_ms: int, limits: Limits, blocked: AbstractSet[str] | None = None
    ) -> None:
        self._snapshot, self._now_ms, self._limits = snapshot, now_ms, limits
        self._queries = {query.subject: query for query in snapshot.queries}
        self._silent = _silent_since(snapshot)
        self._blocked = blocked

    def facts_of(
        self,
        cause: FindingKey,
        findings: Sequence[OpenFinding],
        impact: IncidentImpact,
        *,
        since_ms: int,
        deadline_ms: int | None,
    ) -> IncidentFacts:
        """Return the facts of an incident by its open findings, the cause first.

        `since_ms` is the begin of its damage, `deadline_ms` the first end or loss of a part.
        """
        shown = findings[0]
        things = affected_things(cause, findings)
        others = things - {shown.subject}
        query = self._queries.get(shown.subject)
        return IncidentFacts(
            rule=shown.rule,
            name=self._name(shown.subject),
            summary=shown.summary,
            evidence=shown.evidence,
            since_ms=since_ms,
            partitions=_named("partition:", things if self._blocked is None else things & self._blocked),
            groups=_named("group:", others),
            queries=sorted(self._name(thing) for thing in others if thing.startswith("query:")),
            backlog=impact.backlog,
            deadline_ms=deadline_ms,
            usual_ms=self._usual_ms(shown),
            silent_since_ms=self._silent.get(shown.subject),
            batches=self._stuck_batches(query) if query else None,
        )

    def _name(self, subject: str) -> str:
        query = self._queries.get(subject)
        return query.name if query else subject.partition(":")[2]

    def _usual_ms(self, shown: OpenFinding) -> int | None:
        """Return the 99th percentile of the application's commits, for a transaction that is open for too
        long.
        """
        if shown.rule != "open_too_long":
            return None
        application = application_of(shown.subject.removeprefix("transaction:")).application
        usual = self._snapshot.usual.get(application)
        return usual.p99_ms if usual else None

    def _stuck_batches(self, query: QueryStatus) -> StuckBatches | None:
        """Return a query's prepared, uncommitted batches, None without any."""
        waiting = [batch for batch in query.sink_batches if not batch.recorded]
        if not waiting:
            return None
        driver = query.driver or Driver(DriverStatus.UNKNOWN)
        limit_ms = self._limits.batch_prepared_s * 1_000
        prepared = PreparedBatches(
            [batch.batch_id for batch in waiting],
            overdue=any(batch.waited_ms(self._now_ms) > limit_ms for batch in waiting),
        )
        # Heartbeats of a running driver are no news.
        still = driver._replace(heartbeat_ms=None) if driver.alive else driver
        rows = sum(batch.records_at_risk for batch in waiting)
        return StuckBatches(prepared.batches, rows, still, prepared.is_orphaned(driver))


def are_news(now: IncidentFacts, before: IncidentFacts) -> bool:
    """Whether facts differ by more than clocks and figures, which change continually."""
    same: dict[str, Any] = {"backlog": now.backlog}
    for name, least_ms in _SAME_INSTANT_MS.items():
        one, other = getattr(now, name), getattr(before, name)
        if one is not None and other is not None and abs(one - other) <= least_ms:
            same[name] = one
    return replace(before, **same) != now


def facts_of_finding(finding: OpenFinding, since_ms: int) -> IncidentFacts:
    """Return the facts of a finding without an incident yet."""
    return IncidentFacts(
        rule=finding.rule,
        name=finding.subject.partition(":")[2],
        summary=finding.summary,
        evidence=finding.evidence,
        since_ms=since_ms,
        deadline_ms=finding.deadline_ms,
    )


def damage_since_ms(cause: FindingKey, findings: Iterable[OpenFinding], now_ms: int) -> int:
    """Return the begin of the damage: the earliest start among findings of the cause's subject."""
    own = [
        finding.since_ms
        for finding in findings
        if finding.subject == cause.subject and finding.since_ms is not None
    ]
    return min(own, default=now_ms)


def _named(kind: str, things: Collection[str]) -> Sequence[str]:
    return sorted(thing.removeprefix(kind) for thing in things if thing.startswith(kind))


def _silent_since(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the last writes of open transactions' producers, from the leaders' producer lists."""
    silent: dict[str, int] = {}
    for pin in (pin for partition in snapshot.partitions for pin in partition.pins):
        if pin.transactional_id and pin.seen_ms is not None:
            subject = f"transaction:{pin.transactional_id}"
            silent[subject] = max(pin.seen_ms, silent.get(subject, pin.seen_ms))
    return silent
