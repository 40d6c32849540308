"""Save the columns that all collectors have: positions, gaps, errors, costs.

Call these functions in a write transaction after the lease's renewal; some open their own transaction.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from django.db import transaction
from django.db.models import F, QuerySet

from dashboard.models import Cluster, Collector, GapRecord, Position
from dashboard.runtime.collector_names import (
    AUDITS,
    CHECKPOINTS,
    ENGINES,
    FLINK,
    GROUPS,
    OFFSETS,
    PARTITIONS,
    RECONCILE,
    TAIL,
    tail_name,
)
from dashboard.runtime.leases import Lease, LeaseLost, collector_row
from dashboard.runtime.sql import read_rows, write_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import PositionMove
from fenceline.formatting import fit_name
from fenceline.kafka.coordinator import LEAST_MS, Offset, follow_offset
from fenceline.limits import Limits

TRANSACTION_STATE = "__transaction_state"

#: The cost of each minute is kept for this many minutes.
_COST_MINUTES = 5
_LONGEST_SCOPE = 300
_CLOCK = ("clock_ms", "clock_window_ms", "clock_since_ms")


def sync_clusters(names: Iterable[str]) -> None:
    """Create a row for each configured cluster, and mark the rows of clusters no longer configured."""
    wanted = set(names)
    Cluster.objects.bulk_create([Cluster(name=name) for name in sorted(wanted)], ignore_conflicts=True)
    Cluster.objects.exclude(name__in=wanted).filter(configured=True).update(configured=False)
    Cluster.objects.filter(name__in=wanted, configured=False).update(configured=True)


def keep_collectors(
    shards: int,
    limits: Limits,
    rooted: Mapping[str, Collection[str]],
    now_ms: int,
    *,
    audited: bool,
) -> None:
    """Remove unused collectors: of another number of shards, or turned off by a limit of 0.

    `rooted` has the clusters with a checkpoint root, or a REST API, by the collector that reads it; that
    collector is removed in all other clusters. `audited`: whether a place for audits is configured. The open
    gaps of removed collectors are closed, because nothing polls for them.
    """
    gone = Collector.objects.none()
    for of in TAIL, OFFSETS:
        tails = Collector.objects.filter(name__startswith=of)
        gone |= tails.exclude(name__in=[tail_name(shard, shards, of) for shard in range(shards)])
    pace = {RECONCILE: limits.reconcile_every_s, PARTITIONS: limits.partitions_every_s}
    pace[GROUPS] = limits.groups_every_s
    pace[CHECKPOINTS] = pace[FLINK] = limits.checkpoints_every_s
    pace[ENGINES] = limits.engines_every_s
    gone |= Collector.objects.filter(name__in=[name for name, every_s in pace.items() if not every_s])
    for of in CHECKPOINTS, FLINK, ENGINES:
        gone |= Collector.objects.filter(name=of).exclude(cluster__name__in=rooted[of])
    if not audited:
        gone |= Collector.objects.filter(name=AUDITS)
    for row in gone:
        _remove_collector(row, now_ms)


@retry_write
def _remove_collector(row: Collector, now_ms: int) -> None:
    with transaction.atomic():
        # Delete the collector's row first, because it guards its gaps.
        Collector.objects.filter(pk=row.pk).delete()
        gaps = GapRecord.objects.filter(cluster_id=row.cluster_id, source=row.name, until_ms=None)
        gaps.update(until_ms=now_ms)


def saved_positions(
    cluster: str, topic: str = TRANSACTION_STATE, *, shard: int = 0, shards: int = 1
) -> tuple[str, dict[int, int]]:
    """Return the topic id of the last read ("" before the first poll) and the next offset by partition.

    The partitions are those of one shard: every `shards`-th, starting at `shard`.
    """
    positions = list(Position.objects.filter(cluster__name=cluster, topic=topic))
    offsets = {row.partition: row.next_offset for row in positions if row.partition % shards == shard}
    return (positions[0].topic_id if positions else ""), offsets


def saved_epochs(cluster: str, topic: str) -> dict[int, int]:
    """Return the epochs of the batches before the saved positions, by partition, -1 if unknown."""
    rows = Position.objects.filter(cluster__name=cluster, topic=topic)
    return dict(rows.values_list("partition", "epoch"))


@retry_write
def save_trouble(lease: Lease, reason: str, *, now_ms: int) -> bool:
    """Save a collector's failure as its error and an open gap; return whether it is new.

    It renews the lease; raises `LeaseLost` if another holder has it.
    """
    with write_transaction(lease, lock_cluster=False) as write:
        changed = collector_row(lease).exclude(error=reason).update(error=reason, since_ms=now_ms)
        _open_gap(lease, reason, now_ms)
        if changed:
            write.notify_after_commit("collectors")
    return bool(changed)


def add_gap(lease: Lease, scope: str, reason: str, now_ms: int, count: int = 1) -> None:
    """Save a closed gap of `count` unobserved items."""
    GapRecord.objects.create(
        cluster_id=lease.cluster_id,
        source=lease.name,
        scope=scope,
        since_ms=now_ms,
        until_ms=now_ms,
        reason=reason,
        count=count,
    )


def save_gaps(lease: Lease, gaps: Mapping[str, tuple[int, str]], now_ms: int) -> bool:
    """Open a gap for each scope, with its start and reason, and close this collector's other gaps.

    Return whether a gap opened or closed. `save_trouble` manages the gap of a collector that cannot observe
    its cluster at all.
    """
    gaps = {scope if len(scope) <= _LONGEST_SCOPE else fit_name(scope): why for scope, why in gaps.items()}
    of_collector = {"cluster_id": lease.cluster_id, "source": lease.name}
    known = GapRecord.objects.filter(**of_collector, until_ms=None)
    reasons = dict(known.exclude(scope="cluster").values_list("scope", "reason"))
    known.filter(scope__in=reasons.keys() - gaps.keys()).update(until_ms=now_ms)
    for scope, (_, reason) in gaps.items():
        if reasons.get(scope, reason) != reason:
            known.filter(scope=scope).update(reason=reason)
    GapRecord.objects.bulk_create(
        GapRecord(**of_collector, scope=scope, since_ms=since_ms, reason=reason)
        for scope, (since_ms, reason) in sorted(gaps.items())
        if scope not in reasons
    )
    return reasons.keys() != gaps.keys()


class Costly(Protocol):
    """An observation with its cost: requests, and milliseconds of waiting for their answers."""

    @property
    def requests(self) -> int: ...
    @property
    def broker_ms(self) -> float: ...


def record_poll(row: Collector, observed: Costly, now_ms: int, *, sees: bool = True) -> bool:
    """Save the cost of a poll, and the row's `detail`; return whether the poll ended an error.

    `row` must be read after the renewal of its lease. `sees`: whether the poll could observe its cluster.
    """
    ends_error = sees and clear_error(row, now_ms)
    minute, broker_ms = now_ms // 60_000, round(observed.broker_ms)
    costs = {at: (n, ms) for at, n, ms in row.costs if at > minute - _COST_MINUTES}
    n, ms = costs.get(minute, (0, 0))
    costs[minute] = n + observed.requests, ms + broker_ms
    row.costs = [[at, *cost] for at, cost in sorted(costs.items())]
    row.requests, row.broker_ms = row.requests + observed.requests, row.broker_ms + broker_ms
    row.save(update_fields=["costs", "requests", "broker_ms", "detail"])
    return ends_error


def record_tail(row: Collector, batch: TailBatch, now_ms: int) -> None:
    """Save the cost of a tail's batch; the tail's error ends if it advanced, or is at the end."""
    sees = bool(batch.moves) or batch.seen_through_ms is not None
    record_poll(row, batch, now_ms, sees=sees)


def progress_columns(batch: TailBatch, rate: float) -> dict[str, object]:
    fields: dict[str, object] = {"rate": rate}
    if batch.behind is not None:
        fields["behind"] = batch.behind
    if batch.seen_through_ms is not None:
        fields["seen_through_ms"] = batch.seen_through_ms
    return fields


def clocks_ahead(lease: Lease, stamps: Iterable[tuple[int, int]], now_ms: int) -> dict[int, int]:
    """Return, by partition, how far our clock is ahead of the timestamps of records just written.

    Empty if the tail has not reached the end so recently that it reads such records. The difference is too
    large by the time until the read, never too small (`fenceline.kafka.coordinator`).
    """
    ((seen_ms,),) = read_rows(Collector, ["seen_through_ms"], cluster_id=lease.cluster_id, name=lease.name)
    if seen_ms is None or abs(now_ms - seen_ms) > LEAST_MS:
        return {}
    clocks: dict[int, int] = {}
    for partition, at_ms in stamps:
        clocks[partition] = min(clocks.get(partition, now_ms - at_ms), now_ms - at_ms)
    return clocks


def move_positions(
    lease: Lease,
    topic_id: str,
    moves: Iterable[PositionMove],
    *,
    now_ms: int,
    topic: str = TRANSACTION_STATE,
    clocks: Mapping[int, int],
) -> None:
    """Move the positions of an internal topic; raises `LeaseLost` if one is not at the start of its move.

    `clocks` are the new clock differences by partition; the smallest of a window is saved. Call it after the
    lease's renewal in one transaction: the locked row of the lease excludes other writers.
    """
    moves = tuple(moves)
    of_topic = {"cluster_id": lease.cluster_id, "topic": topic}
    columns = ("partition", "next_offset", "hole_offset", *_CLOCK)
    rows = read_rows(Position, columns, **of_topic, partition=[move.partition for move in moves])
    known = {partition: saved for partition, *saved in rows}
    moved = []
    for partition, previous, following, end, holes, epoch in moves:
        current, hole, *saved = known.get(partition, (None, None, None, None, None))
        if current != previous:
            raise LeaseLost(f"{lease.cluster}: partition {partition} is not at {previous} any more")
        clock = None if None in saved else Offset(*saved)
        if partition in clocks:
            clock = follow_offset(clock, clocks[partition], now_ms)
        moved.append(
            {
                **of_topic,
                "partition": partition,
                "next_offset": following,
                "end_offset": end,
                "epoch": epoch,
                "topic_id": topic_id,
                "hole_offset": holes[-1] if holes else hole,
                "since_ms": now_ms,
                **dict(zip(_CLOCK, clock or saved, strict=True)),
            }
        )
    write_rows(Position, moved, ("cluster_id", "topic", "partition"), keep=("since_ms",))


def count_undecoded(row: Collector, undecoded: Mapping[str, int]) -> None:
    """Add to a collector's counts of undecodable records, by reason."""
    if not undecoded:
        return
    for reason, count in undecoded.items():
        row.undecoded[reason] = row.undecoded.get(reason, 0) + count
    row.save(update_fields=["undecoded"])


def _blindness(collector: Lease | Collector) -> QuerySet[GapRecord]:
    """Return the open gap of a collector that cannot observe its cluster at all."""
    return GapRecord.objects.filter(
        cluster_id=collector.cluster_id, source=collector.name, scope="cluster", until_ms=None
    )


def _open_gap(lease: Lease, reason: str, now_ms: int) -> None:
    gap = _blindness(lease)
    if not gap.update(reason=reason, count=F("count") + 1):
        gap.create(
            cluster_id=lease.cluster_id, source=lease.name, scope="cluster", since_ms=now_ms, reason=reason
        )


def clear_error(row: Collector, now_ms: int) -> bool:
    """Clear a collector's error and close its gap; return whether there was one."""
    if not row.error:
        return False
    row.error, row.since_ms = "", now_ms
    row.save(update_fields=["error", "since_ms"])
    _blindness(row).update(until_ms=now_ms)
    return True
