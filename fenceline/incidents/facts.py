"""The facts of an incident: for sentences, read from the snapshot of its evaluation; and as evidence for its
cause, in time order, each with its source. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

from fenceline.engines.status import ConnectorTask
from fenceline.findings import Sense
from fenceline.incidents.findings import FindingKey, OpenFinding
from fenceline.incidents.impact import IncidentImpact, affected_things
from fenceline.incidents.sentences import IncidentFacts, StuckBatches
from fenceline.kafka.applications import application_of
from fenceline.kafka.producer_identity import Engine, ProducerIdentity
from fenceline.limits import Limits
from fenceline.rules import RULES
from fenceline.snapshot import Snapshot
from fenceline.spark.batch_chain import BatchStep, ChainLink
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.queries import QueryStatus
from fenceline.spark.safe_to_restart import PreparedBatches

#: An instant that moves by less is no news: clocks are compared again, and producers continue to write.
_SAME_INSTANT_MS = {"deadline_ms": 1_000, "silent_since_ms": 10_000}
#: Maximum listed facts: the first ones.
MOST_LINES = 25
#: The source of findings, by the senses of their rules; the first match applies.
_SOURCES: Sequence[tuple[Sense, str]] = (
    (Sense.GROUPS, "group offsets"),
    (Sense.PARTITIONS, "partition offsets"),
    (Sense.QUERIES, "checkpoint, ledger"),
    (Sense.TRANSACTIONS, "__transaction_state"),
    (Sense.HISTORY, "__transaction_state"),
    (Sense.LISTS, "coordinators' lists"),
    (Sense.AUDITS, "audit"),
)
#: The source of a batch's step, N for the batch and R for the round of its decision.
_FILES: Mapping[BatchStep, str] = {
    BatchStep.PLANNED: "offsets/N",
    BatchStep.WRITTEN: "ledger, round R",
    BatchStep.PREPARED: "N.R.decision",
    BatchStep.COMMITTED: "__transaction_state",
    BatchStep.RECORDED: "N.R.done",
    BatchStep.CHECKPOINTED: "commits/N",
}


class FactsReader:
    """Reads the facts of incidents from one snapshot; `blocked` as in `ImpactFigures`."""

    def __init__(
        self, snapshot: Snapshot, *, now_ms: int, limits: Limits, blocked: AbstractSet[str] | None = None
    ) -> None:
        self._snapshot, self._now_ms, self._limits = snapshot, now_ms, limits
        self._queries = {query.subject: query for query in snapshot.queries}
        self._blocked = blocked
        #: The last writes of open transactions' producers, from the leaders' producer lists.
        self._silent: dict[str, int] = {}
        for pin in (pin for partition in snapshot.partitions for pin in partition.pins):
            if pin.transactional_id and pin.seen_ms is not None:
                subject = f"transaction:{pin.transactional_id}"
                self._silent[subject] = max(pin.seen_ms, self._silent.get(subject, pin.seen_ms))

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


class EvidenceLine(NamedTuple):
    """A fact: its instant by our clock or its writer's, its text, and its source."""

    at_ms: int
    words: str
    where: str
    #: Whether the other facts follow from it.
    is_cause: bool = False
    #: The rule of a finding, "" for any other fact; and the number of its findings in this line.
    rule: str = ""
    times: int = 1


def evidence_in_order(lines: Iterable[EvidenceLine]) -> Sequence[EvidenceLine]:
    """Return the cause, then facts by time. The first line counts further findings of its rule."""
    unique = sorted(dict.fromkeys(lines))
    firsts: dict[object, EvidenceLine] = {}
    for number, line in enumerate(unique):
        key = (line.rule, line.is_cause) if line.rule else number
        first = firsts.get(key)
        firsts[key] = first._replace(times=first.times + 1) if first else line
    return sorted(firsts.values(), key=lambda line: not line.is_cause)[:MOST_LINES]


def finding_evidence(rule: str, summary: str, since_ms: int, *, is_cause: bool) -> EvidenceLine:
    """Return a finding as a fact, with its start."""
    return EvidenceLine(since_ms, summary, source_of(rule), is_cause, rule)


def batch_evidence(batch_id: int, round_: int, links: Iterable[ChainLink]) -> Iterator[EvidenceLine]:
    """Yield the steps of a batch that are certainly done."""
    for link in links:
        if link.at_ms is not None:
            name = f"batch {batch_id:,} {link.link}"
            file = _FILES[link.link].replace("N", str(batch_id)).replace("R", str(round_))
            yield EvidenceLine(link.at_ms, f"{name}: {link.evidence}", file)


def driver_evidence(name: str, driver: Driver) -> Iterator[EvidenceLine]:
    """Yield the last heartbeat or the end of a driver that has stopped or may have."""
    if driver.ended_ms is not None:
        verb = "failed" if driver.failed else "stopped"
        yield EvidenceLine(driver.ended_ms, f"the driver of {name} {verb}", "listener")
    elif driver.silent_since_ms is not None:
        yield EvidenceLine(driver.silent_since_ms, f"last heartbeat of the driver of {name}", "listener")


def producer_evidence(name: str, producer: ProducerIdentity, at_ms: int) -> EvidenceLine:
    """Return the engine's instance and part that use a transactional id."""
    kind = "group" if producer.engine is Engine.KAFKA_CONNECT else "application"
    parts = ", ".join(f"{part} {value}" for part, value in producer.parts)
    host = f", on {producer.host}" if producer.host else ""
    words = f"{name} is used by {producer.engine} {kind} {producer.application}: {parts}{host}"
    return EvidenceLine(at_ms, words, producer.sign or "the shape of its id")


def connector_evidence(
    name: str, state: str, task: ConnectorTask | None, at_ms: int, url: str
) -> EvidenceLine:
    """Return a Connect worker's report of a connector and of the task that uses an id."""
    reason = f" ({task.reason})" if task and task.reason else ""
    own = (
        f"its task {task.number} {task.state} on {task.worker}{reason}"
        if task
        else "it has no such task: the id is one of an earlier number of tasks"
    )
    return EvidenceLine(at_ms, f"connector {name} is {state}, {own}", url)


def source_of(rule: str) -> str:
    needs = RULES[rule].needs if rule in RULES else frozenset()
    source = next((words for sense, words in _SOURCES if sense in needs), "")
    return source or ("collectors" if rule.startswith(("collector", "coordinator")) else "listener")
