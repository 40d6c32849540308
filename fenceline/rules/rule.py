"""What a rule is: a pure function, and what must be seen for its silence to mean anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fenceline.facts import Finding
from fenceline.findings.visibility import Sense
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot

#: Makes a finding; the table of rules adds whose it is, and of which cluster.
claim = partial(Finding, "", "")


class RuleCheck(Protocol):
    """Finds what is wrong in a snapshot."""

    def __call__(self, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
        """Yield findings. Their words hold instants and rough numbers, so they stay the same over time."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by the name of its findings, and of its page in `docs/rules`.

    It neither opens nor closes a finding if one of `needs` cannot see the subject or an affected thing.
    `settled`: its data is stored only when two polls have agreed, or is never taken back.
    """

    name: str
    check: RuleCheck
    needs: frozenset[Sense] = frozenset()
    settled: bool = False
