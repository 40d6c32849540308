"""The coordinators of a cluster's transactional ids, their load, and their moves. Saves the polls of
`collectors.kafka.coordinators`, and reads the rows that it starts from.

Leaders, sizes and settings are in the detail of its collector; every move of ids is a row.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Min, QuerySet

from dashboard.models import (
    Cluster,
    Collector,
    CoordinatorMoveRecord,
    PartitionRecord,
    Transaction,
    TransitionRecord,
)
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import COORDINATORS
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.decode.typed import fields_of, record_of
from fenceline.facts import NOT_FROM_LOG, TransitionKind
from fenceline.kafka.coordinator import (
    EXPIRATION,
    MAX_TIMEOUT,
    CoordinatorMove,
    Failover,
    LedPartition,
    ObservedCoordinators,
    failovers,
    load_rate,
)
from fenceline.preflight.setup import BrokerSetup

NAME = COORDINATORS
_KEY = ("cluster_id", "seen_ms", "from_broker", "to_broker")
_HOUR_MS = 3_600_000
#: The most moves that a starting collector continues to follow.
_MOST_UNANSWERED = 20


class CoordinatorRows:
    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def last_leaders(self) -> Mapping[int, tuple[int, int]]:
        """Return each partition's last leader, and the time of the poll that observed it."""
        detail = read_detail(Collector.objects.filter(cluster__name=self._cluster))
        return {
            int(number): (leader, detail["at_ms"]) for number, leader in detail.get("leaders", {}).items()
        }

    def unanswered(self) -> Collection[CoordinatorMove]:
        """Return the moves whose new coordinator has not answered, newest first."""
        rows = CoordinatorMoveRecord.objects.filter(cluster__name=self._cluster, answered_ms=None)
        return [record_of(CoordinatorMove, row) for row in rows.order_by("-seen_ms", "pk")[:_MOST_UNANSWERED]]

    def samples(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        rows = Transaction.objects.filter(cluster__name=self._cluster, log_partition__in=partitions)
        counted = rows.values_list("log_partition").annotate(n=Count("pk"), name=Min("transactional_id"))
        return {number: (ids, name) for number, ids, name in counted.order_by("log_partition")}


def read_detail(collectors: QuerySet[Collector]) -> Mapping[str, Any]:
    """Return the last saved detail of a cluster's coordinators, given its collectors; empty before one."""
    return collectors.filter(name=NAME).values_list("detail", flat=True).first() or {}


@retry_write
def save_coordinators(lease: Lease, observed: ObservedCoordinators, *, now_ms: int) -> None:
    """Save the result and the cost of a poll. Raises `LeaseLost`."""
    # Before the transaction, because it may count a million ids.
    ids = None if observed.sizes is None else _ids_by_partition(lease.cluster_id)
    with write_transaction(lease, {"seen_through_ms": observed.at_ms}, lock_cluster=False) as write:
        row = write.collector
        now = {"leaders": _by_number(observed.leaders), "in_sync": _by_number(observed.in_sync)}
        news = bool(row.error) or any(row.detail.get(name) != value for name, value in now.items())
        row.detail |= {"at_ms": observed.at_ms, **now}
        if ids is not None:
            row.detail |= _slow_facts(observed, ids, row.detail)
            news = True
        collector_store.record_poll(row, observed, now_ms)
        if observed.moves:
            rev = write.next_rev()
            moves = (
                {**fields_of(move), "cluster_id": lease.cluster_id, "rev": rev} for move in observed.moves
            )
            write_rows(CoordinatorMoveRecord, moves, _KEY)
        if news or observed.moves:
            write.notify_after_commit("collectors")


def _ids_by_partition(cluster_id: int) -> Mapping[str, tuple[int, int, int]]:
    """Return the number of ids, the highest epoch and producer id by log partition ("-1" if unknown)."""
    rows = Transaction.objects.filter(cluster_id=cluster_id).values_list("log_partition")
    counted = rows.annotate(n=Count("pk"), epoch=Max("producer_epoch"), newest=Max("producer_id"))
    return {str(number): (n, epoch, newest) for number, n, epoch, newest in counted.order_by("log_partition")}


def _slow_facts(
    observed: ObservedCoordinators, ids: Mapping[str, tuple[int, int, int]], before: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the facts that are read every minute: sizes, settings, and ids by log partition."""
    newest_id = max((newest for _, _, newest in ids.values()), default=None)
    return {
        "sized_ms": observed.at_ms,
        "sizes": _by_number(observed.sizes or {}),
        "sizes_unseen": observed.sizes_unseen,
        "settings": dict(observed.settings or {}),
        "ids": ids,
        "producer_ids": _newest_ids(before.get("producer_ids", ()), observed.at_ms, newest_id),
    }


def _newest_ids(known: Collection[list[int]], at_ms: int, newest: int | None) -> list[list[int]]:
    """Return the newest producer id at the start of each hour of the last day, oldest first."""
    kept = [[at, number] for at, number in known if at > at_ms - _DAY_MS - _HOUR_MS]
    if newest is not None and (not kept or at_ms - kept[-1][0] >= _HOUR_MS):
        # The id of the highest number may be removed, but the number was used.
        kept.append([at_ms, max([newest, *(number for _, number in kept)])])
    return kept


def _by_number(values: Mapping[int, int] | Mapping[int, tuple[int, ...]]) -> dict[str, Any]:
    """Return values in JSON form, by number."""
    return {
        str(number): list(value) if isinstance(value, tuple) else value
        for number, value in sorted(values.items())
    }


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
        return sum(part.led.ids for part in self.partitions)


def read_coordinators(cluster: Cluster, *, now_ms: int) -> Coordinators:
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
    expiries = TransitionRecord.objects.filter(
        cluster=cluster, kind=TransitionKind.EXPIRY.value, at_ms__gte=now_ms - _DAY_MS
    )
    counted = expiries.values_list("log_partition").annotate(n=Count("pk")).order_by("log_partition")
    expired = dict(counted)
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
