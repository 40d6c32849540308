"""What a rule is: a pure function, and what must be seen for its silence to mean anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from fenceline.facts import Finding
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot
from fenceline.visibility import Sense


class RuleCheck(Protocol):
    """Finds what is wrong in a snapshot."""

    def __call__(self, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
        """Yield findings; their words hold instants and rough numbers, so that they stay while time goes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by the name that its findings carry and its page in `docs/rules` has.

    It neither opens nor closes a finding whose subject, or whose affected things, one of `needs` cannot see.
    `settled`: what it rests on is stored only when two polls have agreed, or is never taken back.
    """

    name: str
    check: RuleCheck
    needs: frozenset[Sense] = frozenset()
    settled: bool = False
