"""The evidence for the cause of an incident: facts in time order, each with its source. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fenceline.engines.status import ConnectorTask
from fenceline.findings.visibility import Sense
from fenceline.kafka.producer_identity import Engine, ProducerIdentity
from fenceline.rules import RULES
from fenceline.spark.batch_chain import BatchStep, ChainLink
from fenceline.spark.drivers import Driver

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
            yield EvidenceLine(link.at_ms, f"{name}: {link.evidence}", _file(link.link, batch_id, round_))


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


def _file(step: BatchStep, batch_id: int, round_: int) -> str:
    return _FILES[step].replace("N", str(batch_id)).replace("R", str(round_))
