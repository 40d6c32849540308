"""A rule: a pure function, and the senses that its silence depends on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fenceline.facts import Finding
from fenceline.findings import Sense
from fenceline.limits import Limits
from fenceline.snapshot import Snapshot

#: Makes a finding; the table of rules adds owner and cluster.
claim = partial(Finding, "", "")
#: How long a loss is reported.
REPORTED_MS = 86_400_000
#: Maximum affected ids of one finding.
_MOST_AFFECTED = 100


def affected_ids(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"transaction:{name}" for name in names[:_MOST_AFFECTED])


class RuleCheck(Protocol):
    """Finds the problems in a snapshot."""

    def __call__(self, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
        """Yield findings. Their words contain instants and rough numbers, so they stay the same over time."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, named like its findings and its page in `docs/rules`.

    It neither opens nor closes a finding if one of `needs` cannot see the subject or an affected subject.
    `settled`: its data is stored only once two polls agree, or is final.
    """

    name: str
    check: RuleCheck
    needs: frozenset[Sense] = frozenset()
    settled: bool = False
