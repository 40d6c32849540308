"""The coordinators of a cluster's transactional ids, their load, and their moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from dashboard.models import Cluster, Collector, CoordinatorMoveRecord, PartitionRecord, TransitionRecord
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.transactions.coordinator_store import read_detail
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, TransitionKind
from fenceline.kafka.coordinator import (
    EXPIRATION,
    MAX_TIMEOUT,
    CoordinatorMove,
    Failover,
    LedPartition,
    failovers,
    load_rate,
)
from fenceline.preflight.setup import BrokerSetup

_DAY_MS = 86_400_000
#: Maximum moves on a page, and for the measurement of the loading rate.
_MOST_MOVES, _MEASURED = 20, 100
#: Brokers allocate producer ids in blocks (`ProducerIdManager`); an epoch is a short.
_BLOCK, _LAST_EPOCH = 1_000, 32_766
#: The partition of ids known only from lists.
_UNPLACED = str(NOT_FROM_LOG)


@dataclass(frozen=True, slots=True)
class LogPartition:
    """One partition of `__transaction_state`; unknown values are None."""

    led: LedPartition
    epoch: int | None
    log_start: int | None
    end: int | None
    #: Ids that expired within a day.
    expired: int
    #: Epochs left for the id with the highest epoch before it gets another producer id.
    epochs_left: int | None

    @property
    def offsets(self) -> int | None:
        """Return the number of offsets in its log; compaction has removed many of the records."""
        return None if self.log_start is None or self.end is None else self.end - self.log_start


@dataclass(frozen=True, slots=True)
class Coordinators:
    """The coordinators of one cluster."""

    cluster: str
    partitions: Sequence[LogPartition]
    failovers: Sequence[Failover]
    #: The newest moves first, and the moves whose new coordinator has not answered yet.
    moves: Sequence[CoordinatorMove]
    loading: Sequence[CoordinatorMove]
    #: A lower bound of the blocks of producer ids used in `blocks_ms`; None if unknown.
    blocks: int | None
    #: The age of the first known producer id in ms, at most about a day.
    blocks_ms: int
    settings: Mapping[str, int]
    sizes_unseen: str
    #: Ids known only from lists, whose partition is unknown.
    unplaced: int
    #: When sizes and ids were read; None before.
    sized_ms: int | None

    @property
    def slowest_ms(self) -> int | None:
        """Return the longest wait of a move's ids; None if no move was followed."""
        return max((move.took_ms for move in self.moves if move.took_ms is not None), default=None)

    @property
    def ids(self) -> int:
        """Return the number of ids."""
        return sum(part.led.ids for part in self.partitions)


def read_coordinators(cluster: Cluster, *, now_ms: int) -> Coordinators:
    """Return the coordinators of a cluster."""
    detail = read_detail(Collector.objects.filter(cluster=cluster))
    rows = CoordinatorMoveRecord.objects.filter(cluster=cluster, seen_ms__gte=0).order_by("-seen_ms", "pk")
    moves = [record_of(CoordinatorMove, row) for row in rows[:_MEASURED]]
    rate = load_rate(moves)
    partitions = _partitions(cluster, detail, now_ms)
    newest_ids = [(at, newest) for at, newest in detail.get("producer_ids", ())]
    ids = detail.get("ids", {})
    newest = max((newest_id for _, _, newest_id in ids.values()), default=None)
    first_ms, first = newest_ids[0] if newest_ids else (now_ms, None)
    return Coordinators(
        cluster.name,
        partitions,
        failovers([part.led for part in partitions], rate),
        moves[:_MOST_MOVES],
        [move for move in moves[:_MOST_MOVES] if move.is_loading(now_ms)],
        None if first is None or newest is None else max(0, newest // _BLOCK - first // _BLOCK),
        now_ms - first_ms,
        detail.get("settings", {}),
        detail.get("sizes_unseen", ""),
        ids.get(_UNPLACED, (0,))[0],
        detail.get("sized_ms"),
    )


def broker_setup(cluster_id: int) -> BrokerSetup:
    """Return the brokers' limits of transactions as last read; unknown limits are None."""
    known = read_detail(Collector.objects.filter(cluster=cluster_id)).get("settings", {})
    return BrokerSetup(known.get(MAX_TIMEOUT), known.get(EXPIRATION))


def _partitions(cluster: Cluster, detail: Mapping[str, Any], now_ms: int) -> Sequence[LogPartition]:
    logs = PartitionRecord.objects.filter(cluster=cluster, topic=TRANSACTION_STATE).defer("ends")
    by_number = {row.partition: row for row in logs}
    expired = _expired(cluster, now_ms)
    numbers = sorted({*by_number, *map(int, detail.get("leaders", {}))})
    return [_partition(number, by_number.get(number), detail, expired.get(number, 0)) for number in numbers]


def _partition(
    number: int, row: PartitionRecord | None, detail: Mapping[str, Any], expired: int
) -> LogPartition:
    leader, in_sync, size, ids = (
        detail.get(name, {}).get(str(number)) for name in ("leaders", "in_sync", "sizes", "ids")
    )
    count, highest, _ = ids or (0, None, None)
    return LogPartition(
        LedPartition(number, leader, tuple(in_sync or ()), count, size),
        row.leader_epoch if row else None,
        row.log_start if row else None,
        row.high_watermark if row else None,
        expired,
        None if highest is None or highest < 0 else max(0, _LAST_EPOCH - highest),
    )


def _expired(cluster: Cluster, now_ms: int) -> Mapping[int, int]:
    rows = TransitionRecord.objects.filter(
        cluster=cluster, kind=TransitionKind.EXPIRY.value, at_ms__gte=now_ms - _DAY_MS
    )
    counted = rows.values_list("log_partition").annotate(n=Count("pk")).order_by("log_partition")
    return dict(counted)
