"""Locate a transactional id's coordinator: the leader of its partition of `__transaction_state`; convert its
timestamps to our clock.

A new coordinator of a partition reads the partition's whole log before it answers (KIP-98). It reads its
partitions one after the other.

Coordinators stamp records, and may be an hour off. The measurable value is how far our clock is ahead of a
record's timestamp when we read the record soon after it was written. That is the difference of the clocks
plus the reading delay, and the delay is never negative. So the smallest recent value counts (`follow_offset`,
kept in `Position.clock_ms`). A difference of a few seconds counts as 0 (`difference_ms`), because it cannot
be distinguished from a delay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS, zip_equal
from fenceline.formatting import count_noun
from fenceline.grouping import grouped

#: Broker settings that limit transactions and ids, in ms.
MAX_TIMEOUT, EXPIRATION = "transaction.max.timeout.ms", "transactional.id.expiration.ms"
#: Polls further apart than this do not show how long a coordinator took to answer, in ms.
_FOLLOWED_MS = 10_000
#: A coordinator without an answer for this long is no longer followed, in ms.
GIVE_UP_MS = 600_000
#: A load is measurable if it took at least this many times the gap between the two polls.
_MEASURABLE = 2
#: Kafka's default of `transaction.state.log.num.partitions`.
DEFAULT_PARTITIONS = 50
#: Differences up to this are ignored. A record is measured only if everything had been read at most this long
#: before (`dashboard.runtime.collector_store.clocks_ahead`), so no delay is larger.
LEAST_MS = 5_000
#: How long a smallest difference counts: to the end of the next window. By then an adjusted clock is noticed.
WINDOW_MS = 60_000


def partition_for(name: bytes, partitions: int = DEFAULT_PARTITIONS) -> int:
    """Return a transactional id's partition of `__transaction_state`; `name` is raw bytes, not escaped.

    The same rule places a consumer group in `__consumer_offsets`. It is Java's: the absolute value of
    `String.hashCode()` modulo the partitions. -2^31, which has no absolute value, counts as 0 (`Utils.abs`).
    """
    hashed = java_hash(name)
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


def java_hash(name: bytes) -> int:
    """Return `String.hashCode()` of a name: computed over UTF-16 units, as a signed 32-bit integer."""
    hashed = 0
    units = name.decode(errors="replace").encode("utf-16-be")
    for high, low in zip_equal(units[::2], units[1::2]):
        hashed = (31 * hashed + (high << 8) + low) & 0xFFFFFFFF
    return hashed - 2**32 if hashed & 0x80000000 else hashed


class LedPartition(NamedTuple):
    """A partition of `__transaction_state`, and its leader: the coordinator of its ids."""

    partition: int
    #: None without a leader.
    leader: int | None
    #: Brokers whose replica is in sync, the preferred leader first.
    in_sync: tuple[int, ...] = ()
    ids: int = 0
    #: Bytes on the leader's disk; None if unknown.
    size: int | None = None


class CoordinatorMove(NamedTuple):
    """Partitions whose coordinator changed from one broker to another between two polls. Unix ms."""

    #: The last poll with the old coordinator, and the first with the new one.
    before_ms: int
    seen_ms: int
    from_broker: int
    to_broker: int
    #: The partitions that have ids.
    partitions: tuple[int, ...]
    ids: int
    #: Their bytes; None if unknown.
    size: int | None = None
    #: When the new coordinator had described an id of each partition; None before that.
    answered_ms: int | None = None

    @property
    def took_ms(self) -> int | None:
        """Return the ms from the last poll with the old coordinator to the answer; None if unknown."""
        is_followed = self.seen_ms - self.before_ms <= _FOLLOWED_MS
        return self.answered_ms - self.before_ms if is_followed and self.answered_ms is not None else None

    def unfollowed(self) -> CoordinatorMove:
        """Return the move with a gap before it, which makes its duration unknown."""
        return self._replace(before_ms=min(self.before_ms, self.seen_ms - _FOLLOWED_MS - 1))

    def is_loading(self, now_ms: int) -> bool:
        """Whether its new coordinator has not answered, and is still followed."""
        return self.answered_ms is None and now_ms - self.seen_ms < GIVE_UP_MS

    @property
    def text(self) -> str:
        moved = f"the coordinator of {count_noun(self.ids, 'id')} moved from broker {self.from_broker} to "
        if self.answered_ms is None:
            return f"{moved}{self.to_broker}, which was not seen to answer"
        if self.took_ms is None:
            return f"{moved}{self.to_broker}; how long it loaded was not seen"
        return f"{moved}{self.to_broker}, which answered within {self.took_ms / 1_000:.1f} s"


@dataclass(frozen=True, **SLOTS)
class ObservedCoordinators:
    """The results of one poll of the coordinators."""

    at_ms: int
    leaders: Mapping[int, int]
    #: Brokers whose replica is in sync, by partition.
    in_sync: Mapping[int, tuple[int, ...]]
    #: Moves that are new, or whose new coordinator has answered.
    moves: tuple[CoordinatorMove, ...]
    #: Bytes by partition, and settings of brokers; None if they were not queried.
    sizes: Mapping[int, int] | None
    settings: Mapping[str, int] | None
    #: Why the sizes are unknown; "" if they are known.
    sizes_unseen: str
    requests: int
    broker_ms: float


class Failover(NamedTuple):
    """The effect of one broker's failure: the ids that change coordinator, and how long the new ones load."""

    broker: int
    partitions: int
    ids: int
    #: None if no rate was measured, or sizes are unknown.
    load_ms: int | None
    #: Partitions without another in-sync replica: their ids wait until this broker is back.
    alone: int


def find_moves(
    before: Mapping[int, tuple[int, int]], now: Mapping[int, int]
) -> Mapping[tuple[int, int], Sequence[int]]:
    """Group the partitions whose leader changed by old and new leader.

    `before` has a partition's last known leader and the poll that saw it, `now` the leaders of this poll.
    """
    return grouped(
        ((before[partition][0], leader), partition)
        for partition, leader in sorted(now.items())
        if partition in before and before[partition][0] != leader
    )


def load_rate(moves: Iterable[CoordinatorMove]) -> float | None:
    """Return the least bytes per ms at which coordinators loaded; None without a measurable move.

    The slowest load counts, among loads long enough that the gap between two polls hardly matters.
    """
    rates = [
        move.size / move.took_ms
        for move in moves
        if move.size and move.took_ms and move.took_ms >= _MEASURABLE * (move.seen_ms - move.before_ms)
    ]
    return min(rates, default=None)


def failovers(partitions: Sequence[LedPartition], rate: float | None) -> Sequence[Failover]:
    """Return the effect of the failure of each leading broker; `rate` is in bytes per ms.

    The next in-sync replica takes over. Brokers load at the same time: the broker with the most bytes
    finishes last.
    """
    brokers = sorted({partition.leader for partition in partitions if partition.leader is not None})
    return [_failover(broker, [p for p in partitions if p.leader == broker], rate) for broker in brokers]


def _failover(broker: int, led: Sequence[LedPartition], rate: float | None) -> Failover:
    loads: defaultdict[int, int] = defaultdict(int)
    alone = 0
    for partition in led:
        heir = next((other for other in partition.in_sync if other != broker), None)
        if heir is None:
            alone += 1
        else:
            loads[heir] += partition.size or 0
    is_known = rate is not None and loads and all(partition.size is not None for partition in led)
    load_ms = round(max(loads.values()) / rate) if is_known and rate else None
    return Failover(broker, len(led), sum(partition.ids for partition in led), load_ms, alone)


class Offset(NamedTuple):
    """How far our clock is ahead of another clock: the smallest recently measured difference."""

    ahead_ms: int
    #: The smallest difference of this window, and our clock at the window's start.
    window_ms: int
    since_ms: int


def follow_offset(known: Offset | None, ahead_ms: int, now_ms: int) -> Offset:
    """Return the offset after another measurement: the least of this window and the previous one."""
    if known is None:
        return Offset(ahead_ms, ahead_ms, now_ms)
    if 0 <= now_ms - known.since_ms < WINDOW_MS:
        return Offset(min(known.ahead_ms, ahead_ms), min(known.window_ms, ahead_ms), known.since_ms)
    return Offset(min(known.window_ms, ahead_ms), ahead_ms, now_ms)


def difference_ms(ahead_ms: int | None) -> int:
    """Return the correction for timestamps: 0 if the difference may be a delay, or was not measured."""
    return ahead_ms if ahead_ms is not None and abs(ahead_ms) > LEAST_MS else 0


def to_local_ms(stamped_ms: int, *, now_ms: int, ahead_ms: int | None) -> int:
    """Return a timestamp by our clock: corrected by the difference of the clocks, at most `now_ms`."""
    return min(now_ms, stamped_ms + difference_ms(ahead_ms))


def start_ms(
    stamped_ms: int | None, *, now_ms: int, ahead_ms: int | None, since_ms: int | None
) -> int | None:
    """Return when a transaction began by our clock, None if unknown.

    `ahead_ms` is how far our clock is ahead of its coordinator's. It is None if no record of its partition
    was observed live. The record then existed before we came: the start is its timestamp or our first poll
    (`since_ms`), whichever is later. A timestamp in our future then proves that its clock is wrong, and
    nothing about the transaction's age.
    """
    if stamped_ms is None:
        return None
    if ahead_ms is not None:
        return to_local_ms(stamped_ms, now_ms=now_ms, ahead_ms=ahead_ms)
    if stamped_ms > now_ms:
        return None
    return max(stamped_ms, since_ms or 0)
