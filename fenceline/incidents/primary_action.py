"""Which finding of an incident its one action comes from, and which actions it is never. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fenceline.incidents.findings import OpenFinding
from fenceline.kafka.applications import Shape, application_of
from fenceline.plans.plan import Act

#: Causes that no end of an effect ends: a broker or a collector has to come back.
_OUT_OF_REACH = ("collector_behind", "collector_gap", "coordinator_loading", "stuck_in_prepare")
Found = TypeVar("Found", bound=OpenFinding)


def action_candidates(findings: Sequence[Found]) -> Sequence[Found]:
    """Return the findings whose actions end an incident: the cause, others of its subject, then the rest.

    `findings` begin with the cause, or where that is over with the worst effect that is left.
    """
    first, *effects = findings
    if first.rule in _OUT_OF_REACH:
        return [first]
    return [first, *sorted(effects, key=lambda each: each.subject != first.subject)]


def may_lose_records(act: Act, finding: OpenFinding) -> bool:
    """Whether an action that the planner allows may lose what is to be committed: it is never offered first.

    To roll a batch back aborts it; a transaction that may be Flink's may be decided by a checkpoint of it.
    What would accept that a part of a batch is lost is not offered at all (`fenceline.plans.offers`).
    """
    if act is Act.ROLL_BACK_BATCH:
        return True
    name = finding.subject.partition(":")[2]
    return act is Act.FENCE and application_of(name).kind is Shape.FLINK
