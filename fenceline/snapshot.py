"""What the rules may look at in one tick: every fact of one cluster that a finding can be made of."""

from __future__ import annotations

from dataclasses import dataclass

from fenceline.facts import Gap, State, TopicPartitions
from fenceline.limits import Limits


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is not complete, as the rules see it."""

    cluster: str
    transactional_id: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """What a collector says of itself: how far it has seen, and what keeps it from seeing more."""

    cluster: str
    name: str
    #: Everything before this instant has been seen; None before the first complete look.
    seen_through_ms: int | None
    #: Records between its position and the end of what it reads; None when the end is unknown.
    behind: int | None
    #: Why it cannot see, in words for an operator; "" when it can.
    error: str
    since_ms: int
    #: Whether what the rules know of the cluster comes from it: a tail, or the coordinators' lists alone.
    is_eye: bool = True

    @property
    def blind_since_ms(self) -> int:
        """Since when nothing newer has been seen; the collector's own beginning before its first look."""
        return self.since_ms if self.seen_through_ms is None else self.seen_through_ms

    def is_behind(self, now_ms: int, limits: Limits) -> bool:
        """Whether it has not seen the last `limits.collector_behind_s` seconds."""
        return now_ms - self.blind_since_ms > limits.collector_behind_s * 1000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the rules may look at in one tick."""

    transactions: tuple[OpenTransaction, ...] = ()
    collectors: tuple[CollectorStatus, ...] = ()
    #: The open gaps of its eyes.
    gaps: tuple[Gap, ...] = ()

    def is_blind(self, *, now_ms: int, limits: Limits) -> bool:
        """Whether what it says of the cluster may be old: a gap is open, or one of its eyes is behind.

        A rule about the cluster then neither opens nor closes anything: unseen is not absent.
        """
        eyes = [each for each in self.collectors if each.is_eye]
        return bool(self.gaps) or any(each.is_behind(now_ms, limits) for each in eyes)
