"""Spans of time with their counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fenceline.facts import TransitionKind

#: Counts by kind; a missing kind counts as 0.
Counts = Mapping[TransitionKind, int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Counts of the `span_ms` from `start_ms` on."""

    start_ms: int
    span_ms: int
    counts: Counts

    def count_of(self, kinds: Iterable[TransitionKind]) -> int:
        """Return the sum of some kinds."""
        return sum(self.counts.get(kind, 0) for kind in kinds)
