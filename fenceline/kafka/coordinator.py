"""Where a transactional id lives: its partition of `__transaction_state`, whose leader coordinates it.

A coordinator that takes a partition over reads all of its log before it answers (KIP-98); it reads one
partition after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS, zip_equal
from fenceline.formatting import count_noun

#: Settings of brokers that bound transactions and ids, in ms.
MAX_TIMEOUT, EXPIRATION = "transaction.max.timeout.ms", "transactional.id.expiration.ms"
#: Polls further apart than this do not tell how long a coordinator took: ms.
_FOLLOWED_MS = 10_000
#: A coordinator that does not answer for so long is not followed any more: ms.
GIVE_UP_MS = 600_000
#: A load is measured if it took this many times the gap between the two polls.
_MEASURABLE = 2
#: `transaction.state.log.num.partitions` of a cluster without a setting of its own.
DEFAULT_PARTITIONS = 50


def partition_for(name: bytes, partitions: int = DEFAULT_PARTITIONS) -> int:
    """Return the partition of `__transaction_state` that holds a transactional id (raw bytes, not escaped).

    The same rule places a consumer group in `__consumer_offsets`. It is Java's: the absolute value of
    `String.hashCode()`, where the one hash that has none counts as 0 (`Utils.abs`), modulo the partitions.
    """
    hashed = java_hash(name)
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


def java_hash(name: bytes) -> int:
    """Return `String.hashCode()` of a name: over its UTF-16 units, wrapped to a signed 32-bit integer."""
    hashed = 0
    units = name.decode(errors="replace").encode("utf-16-be")
    for high, low in zip_equal(units[::2], units[1::2]):
        hashed = (31 * hashed + (high << 8) + low) & 0xFFFFFFFF
    return hashed - 2**32 if hashed & 0x80000000 else hashed


class LedPartition(NamedTuple):
    """A partition of `__transaction_state`, and the broker that leads it: the coordinator of its ids."""

    partition: int
    #: None while no broker leads it.
    leader: int | None
    #: Brokers whose replica is in sync, the preferred leader first.
    in_sync: tuple[int, ...] = ()
    ids: int = 0
    #: Bytes on the leader's disk; None where that is not known.
    size: int | None = None


class CoordinatorMove(NamedTuple):
    """Partitions whose coordinator changed between two polls, from one broker to another. Unix ms."""

    #: The last poll that saw the old coordinator, and the first that saw the new one.
    before_ms: int
    seen_ms: int
    from_broker: int
    to_broker: int
    #: Those that have ids.
    partitions: tuple[int, ...]
    ids: int
    #: Their bytes; None where that is not known.
    size: int | None = None
    #: When the new coordinator described an id of each partition; None before it did.
    answered_ms: int | None = None

    @property
    def took_ms(self) -> int | None:
        """Return the time from the last poll that saw the old one to the answer, in ms; None if not known."""
        is_followed = self.seen_ms - self.before_ms <= _FOLLOWED_MS
        return self.answered_ms - self.before_ms if is_followed and self.answered_ms is not None else None

    def unfollowed(self) -> CoordinatorMove:
        """Return the move with a gap before it: nobody can tell any more how long it took."""
        return self._replace(before_ms=min(self.before_ms, self.seen_ms - _FOLLOWED_MS - 1))

    def is_loading(self, now_ms: int) -> bool:
        """Whether its new coordinator has not answered, as far as it is followed."""
        return self.answered_ms is None and now_ms - self.seen_ms < GIVE_UP_MS

    @property
    def text(self) -> str:
        """Return the move as a sentence for operators."""
        moved = f"the coordinator of {count_noun(self.ids, 'id')} moved from broker {self.from_broker} to "
        if self.answered_ms is None:
            return f"{moved}{self.to_broker}, which was not seen to answer"
        if self.took_ms is None:
            return f"{moved}{self.to_broker}; how long it loaded was not seen"
        return f"{moved}{self.to_broker}, which answered within {self.took_ms / 1_000:.1f} s"


class SampleId(NamedTuple):
    """How many ids a partition of the log has, and one of them."""

    ids: int
    transactional_id: str


@dataclass(frozen=True, **SLOTS)
class ObservedCoordinators:
    """The results of one poll of the coordinators."""

    at_ms: int
    leaders: Mapping[int, int]
    #: Brokers whose replica is in sync, by partition.
    in_sync: Mapping[int, tuple[int, ...]]
    #: Moves that were seen first, or whose new coordinator has answered.
    moves: tuple[CoordinatorMove, ...]
    #: Bytes by partition, and settings of brokers; None where they were not asked for.
    sizes: Mapping[int, int] | None
    settings: Mapping[str, int] | None
    #: Why no sizes are known; "" where they are.
    sizes_unseen: str
    requests: int
    broker_ms: float


class Failover(NamedTuple):
    """What follows if one broker dies: how many ids get another coordinator, and how long that loads."""

    broker: int
    partitions: int
    ids: int
    #: None where no rate was measured, or sizes are not known.
    load_ms: int | None
    #: Partitions that no other broker has in sync: their ids wait until this one is back.
    alone: int


def find_moves(
    before: Mapping[int, tuple[int, int]], now: Mapping[int, int]
) -> Mapping[tuple[int, int], Sequence[int]]:
    """Return the partitions whose leader changed, by old and new leader.

    `before` has a partition's last known leader and the poll that saw it, `now` the leaders of this poll.
    """
    moved: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for partition, leader in sorted(now.items()):
        if partition in before and before[partition][0] != leader:
            moved[before[partition][0], leader].append(partition)
    return moved


def load_rate(moves: Iterable[CoordinatorMove]) -> float | None:
    """Return the bytes per ms at which coordinators loaded in some moves, at least; None without any.

    The slowest one counts, of those that took so long that the gap between two polls hardly matters.
    """
    rates = [
        move.size / move.took_ms
        for move in moves
        if move.size and move.took_ms and move.took_ms >= _MEASURABLE * (move.seen_ms - move.before_ms)
    ]
    return min(rates, default=None)


def failovers(partitions: Sequence[LedPartition], rate: float | None) -> Sequence[Failover]:
    """Return what follows if each broker that leads something dies; `rate` is in bytes per ms.

    The next replica in sync takes over. Brokers load at the same time: the one with the most bytes sets the
    end.
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
