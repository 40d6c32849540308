"""Choose the finding of an incident for its one action. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fenceline.incidents.findings import OpenFinding

#: Causes that the end of an effect does not end: a broker or a part of the cluster must return.
_OUT_OF_REACH = ("collector_gap", "coordinator_loading", "stuck_in_prepare")
Found = TypeVar("Found", bound=OpenFinding)


def action_candidates(findings: Sequence[Found]) -> Sequence[Found]:
    """Return the findings whose actions end an incident: the cause, others of its subject, then the rest.

    `findings` begin with the cause, or after its end with the worst remaining effect.
    """
    first, *effects = findings
    if first.rule in _OUT_OF_REACH:
        return [first]
    return [first, *sorted(effects, key=lambda effect: effect.subject != first.subject)]
