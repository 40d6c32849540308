"""Save the polls of `collectors.kafka.coordinators`, and read the rows that it starts from.

Leaders, sizes and settings are in the detail of its collector; every move of ids is a row.
"""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Count, Max, Min, QuerySet

from dashboard.models import Collector, CoordinatorMoveRecord, Transaction
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import COORDINATORS
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.decode.typed import fields_of, record_of
from fenceline.kafka.coordinator import CoordinatorMove, ObservedCoordinators, SampleId

NAME = COORDINATORS
_KEY = ("cluster_id", "seen_ms", "from_broker", "to_broker")
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
#: The most moves that a starting collector continues to follow.
_MOST_UNANSWERED = 20


class CoordinatorRows:
    """The rows of one cluster."""

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

    def samples(self, partitions: Collection[int]) -> Mapping[int, SampleId]:
        """Return an id of each partition with ids."""
        rows = Transaction.objects.filter(cluster__name=self._cluster, log_partition__in=partitions)
        counted = rows.values_list("log_partition").annotate(n=Count("pk"), name=Min("transactional_id"))
        return {number: SampleId(ids, name) for number, ids, name in counted.order_by("log_partition")}


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
