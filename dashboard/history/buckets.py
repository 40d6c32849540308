"""Spans of time and what was counted in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fenceline.facts import TransitionKind

#: Counts by kind; what is missing is none.
Counts = Mapping[TransitionKind, int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """What happened in `span_ms` from `start_ms` on."""

    start_ms: int
    span_ms: int
    counts: Counts

    def count_of(self, kinds: Iterable[TransitionKind]) -> int:
        """Return how many of some kinds together."""
        return sum(self.counts.get(kind, 0) for kind in kinds)
