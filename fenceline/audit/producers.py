"""Other writers to the output: records of producers without a decision in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from fenceline.audit.judging import Output
from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.manifest import AuditObstacle, ObstacleKind
from fenceline.audit.runs import ProducerRun
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun


class ProducerOwner(NamedTuple):
    """The owner of a producer id, as coordinators report it."""

    transactional_id: str
    #: The prefix of all ids of that sink's ledger; "" if it is no exactly-once sink.
    stem: str = ""


def foreign_runs(index: LedgerIndex, output: Output, since_ms: int) -> tuple[ProducerRun, ...]:
    """Return readable runs without a decision since the sink's first write to the partition.

    Records before the sink's first run that are older than `since_ms` are not included.
    """
    runs = list(chain.from_iterable(output.runs.values()))
    begins = _begins(index, output, runs)
    return tuple(
        run
        for run in runs
        if run.is_committed and index.owner(run.producer_id, run.producer_epoch) is None
        if run.newest_ms >= since_ms or run.last >= begins.get(run.partition, run.last + 1)
    )


def _begins(index: LedgerIndex, output: Output, runs: Iterable[ProducerRun]) -> Mapping[TopicPartition, int]:
    """Return the offset in each partition from which the sink is known to write."""
    asked = {where: range_.asked for where, range_ in output.ranges.items() if range_.asked}
    for run in runs:
        if index.owner(run.producer_id, run.producer_epoch) is not None:
            asked[run.partition] = min(run.first, asked.get(run.partition, run.first))
    return asked


def foreign_obstacles(
    foreign: Iterable[ProducerRun], owners: Mapping[int, ProducerOwner], stem: str
) -> tuple[AuditObstacle, ...]:
    """Return an obstacle for each partition with other writers, and for each other query among them.

    `stem` is the prefix of the audited sink's transactional ids: its own runs without a decision belong to
    batches that have left the ledger.
    """
    obstacles: dict[tuple[ObstacleKind, str], AuditObstacle] = {}
    for run in foreign:
        owner = owners.get(run.producer_id)
        if owner is not None and owner.stem == stem:
            continue
        obstacle = _obstacle(run, owner)
        obstacles.setdefault((obstacle.kind, obstacle.where), obstacle)
    return tuple(obstacles.values())


def _obstacle(run: ProducerRun, owner: ProducerOwner | None) -> AuditObstacle:
    records = f"{count_noun(run.records, 'record')} from offset {run.first:,} on"
    if owner is not None and owner.stem:
        return AuditObstacle(
            ObstacleKind.SHARED_OUTPUT,
            run.partition.topic,
            f"the exactly-once sink {owner.stem} writes to it too: {records} in {run.partition}",
            "each query is audited by its own ledger; the topic as a whole is not proved",
        )
    who = f"transactional id {owner.transactional_id}" if owner else _unnamed(run)
    return AuditObstacle(
        ObstacleKind.FOREIGN_RECORDS,
        str(run.partition),
        f"{who} has written {records}, and no decision of the ledger names it",
        "these records may repeat or replace those of the query; the topic as a whole is not proved",
    )


def _unnamed(run: ProducerRun) -> str:
    if run.producer_id < 0:
        return "a producer without idempotence"
    kind = "a transactional producer" if run.transactional else "an idempotent producer"
    return f"{kind} (producer id {run.producer_id})"
