"""The input of the rules, read from the database: rows of one cluster -> Snapshot. A tick reads each second,
so it reads only open, pinned or blocked rows, along a partial index. Figures of minutes and hours have their
own interval (`dashboard.evaluation.baselines`). Instants are converted to our clock here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from django.db.models import BooleanField, F, Func, Q, QuerySet

from dashboard.evaluation import finding_queries
from dashboard.evaluation.baselines import Clocks, ClusterBaselines
from dashboard.evaluation.blocking import with_missing_markers
from dashboard.evaluation.derived_facts import FlinkCommits, blocked_groups, blocked_queries, deleted_reads
from dashboard.evaluation.open_transactions import OpenTransactionSeries
from dashboard.evaluation.second_polls import SecondPolls
from dashboard.history.audits import read_violations
from dashboard.models import (
    IS_OPEN,
    Cluster,
    Collector,
    GapRecord,
    Group,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Position,
    Transaction,
)
from dashboard.recoveries.commit_watch import read_aborted_commits
from dashboard.runtime.collector_names import (
    ACTIONS,
    ALERTS,
    AUDITS,
    CAPABILITIES,
    CHECKPOINTS,
    COORDINATORS,
    DELIVERIES,
    FLINK,
    GROUPS,
    JUDGE,
    PARTITIONS,
    RECONCILE,
    TAIL,
    collectors_of,
)
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.runtime.sql import prepared, read_rows
from dashboard.runtime.visibility import OFFSETS_TOPIC, Places
from dashboard.streaming.rule_input import Queries
from dashboard.transactions.sql import unpacked_partitions
from fenceline.decode.typed import record_of
from fenceline.engines.flink.restore import FlinkJobFacts
from fenceline.facts import NOT_FROM_LOG, TransactionState, VisibilityGap
from fenceline.findings import EVERYWHERE, Sense
from fenceline.grouping import grouped
from fenceline.kafka.coordinator import start_ms
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, Pin
from fenceline.limits import Limits
from fenceline.snapshot import (
    BlockedGroup,
    BlockedOffset,
    BlockedQueryFacts,
    CollectorStatus,
    OpenTransactionFacts,
    PinnedPartition,
    Snapshot,
)
from fenceline.spark.queries import QueryStatus

#: Collectors without outside sources.
_NO_LOOKERS = (JUDGE, ACTIONS, ALERTS, DELIVERIES, CAPABILITIES, COORDINATORS, "retention")
_SENSES = {
    PARTITIONS: Sense.PARTITIONS,
    GROUPS: Sense.GROUPS,
    RECONCILE: Sense.LISTS,
    CHECKPOINTS: Sense.QUERIES,
    AUDITS: Sense.AUDITS,
    FLINK: Sense.FLINK,
}
#: A literal, not a parameter: SQLite uses a partial index only for the same text.
_IS_PINNED = Func(F("verdict"), template="NOT (%(expressions)s = 'clear')", output_field=BooleanField())
_TRANSACTION = (
    "transactional_id", "application", "state", "producer_id", "producer_epoch", "timeout_ms", "started_ms",
    "updated_ms", "partitions", "log_partition",
)  # fmt: skip
_OFFSET = (
    "group_id", "topic", "partition", "offset", "high_watermark", "waiting", "waiting_ms", "unstable",
    "blockers",
)  # fmt: skip


#: By partition of `__transaction_state`: our clock's lead over its coordinator's, and its first read.
_PartitionClocks = Mapping[int, tuple[int | None, int | None]]


class SnapshotReader:
    """Reads the snapshots of one cluster, and caches the parts that need not be read each second."""

    def __init__(self, cluster: str) -> None:
        self._cluster = Cluster.objects.get(name=cluster)
        self._figures = ClusterBaselines(self._cluster.pk)
        self._queries = Queries(self._cluster.pk)
        self._flink = FlinkCommits(self._cluster.pk)
        #: Findings that the evaluator delays until their sources are polled again.
        self.second_polls = SecondPolls()
        #: The series of open transactions.
        self.open_transactions = OpenTransactionSeries()

    def read(self, *, now_ms: int, limits: Limits) -> Snapshot:
        """Return the current input of the rules."""
        rows = _lookers(self._cluster.pk)
        gaps = tuple(record_of(VisibilityGap, row) for row in _open_gaps(self._cluster.pk))
        clocks = self._clocks()
        ahead: Clocks = {number: ahead_ms for number, (ahead_ms, _) in clocks.items()}
        partitions = tuple(self._partitions())
        groups = tuple(self._groups())
        queries = self._queries.read_statuses(now_ms=now_ms)
        flink_jobs = (
            self._flink.read_jobs(ahead, now_ms=now_ms) if FLINK in {row.name for row in rows} else ()
        )
        waiting = blocked_groups(groups), blocked_queries(queries, partitions)
        opened = self._transactions(now_ms, limits, clocks, partitions, *waiting)
        decided_ms = now_ms - int(limits.stuck_in_prepare_s * 1_000)
        transactions = tuple(with_missing_markers(self._cluster.pk, opened, partitions, decided_ms))
        lately = self._figures.recent_activity(now_ms=now_ms, limits=limits, clocks=ahead)
        return Snapshot(
            cluster=self._cluster.name,
            collectors=tuple(_statuses(rows)),
            gaps=gaps,
            transactions=transactions,
            partitions=partitions,
            groups=groups,
            deleted_reads=tuple(deleted_reads(self._cluster.pk, now_ms)),
            aborted_commits=tuple(read_aborted_commits(self._cluster.pk, now_ms)),
            queries=queries,
            flink_jobs=flink_jobs,
            audits=read_violations(self._cluster.pk),
            usual=self._figures.usual_commits(_past_usual(transactions, now_ms, limits), now_ms),
            applications=lately.applications,
            takeovers=lately.takeovers,
            timeouts=lately.timeouts,
            places=self._places(gaps, rows, transactions, partitions, groups, queries, flink_jobs),
        )

    def _clocks(self) -> _PartitionClocks:
        columns = ("partition", "clock_ms", "since_ms")
        rows = read_rows(Position, columns, cluster_id=self._cluster.pk, topic=TRANSACTION_STATE)
        return {number: (ahead_ms, since_ms or None) for number, ahead_ms, since_ms in rows}

    def _transactions(
        self,
        now_ms: int,
        limits: Limits,
        clocks: _PartitionClocks,
        partitions: Sequence[PinnedPartition],
        waiting: Mapping[str, tuple[str, ...]],
        standing: Mapping[str, tuple[BlockedQueryFacts, ...]],
    ) -> Iterator[OpenTransactionFacts]:
        behind = min((ahead_ms or 0 for ahead_ms, _ in clocks.values()), default=0)
        newest_ms = now_ms - _youngest_ms(limits) - min(0, behind)
        old = Q(started_ms__lte=newest_ms) | Q(started_ms__gt=now_ms) | Q(started_ms=None)
        rows = Transaction.objects.filter(IS_OPEN, old, cluster=self._cluster)
        first_seen = _first_seen(partitions)
        for row in rows.values_list(*_TRANSACTION, named=True).iterator():
            ahead_ms, since_ms = clocks.get(row.log_partition, (None, None))
            by_ours = partial(start_ms, now_ms=now_ms, ahead_ms=ahead_ms, since_ms=since_ms)
            began_ms, decided_ms = by_ours(row.started_ms), by_ours(row.updated_ms)
            if began_ms is None:
                # A list has no start: the transaction is open at least since its first listing.
                is_listed = row.log_partition == NOT_FROM_LOG and row.started_ms is None
                listed_ms = row.updated_ms if is_listed else None
                began_ms = first_seen.get((row.transactional_id, row.producer_id), listed_ms)
            yield OpenTransactionFacts(
                transactional_id=row.transactional_id,
                state=TransactionState(row.state),
                producer_id=row.producer_id,
                timeout_ms=row.timeout_ms,
                started_ms=began_ms,
                updated_ms=now_ms if decided_ms is None else decided_ms,
                partitions=unpacked_partitions(row.partitions or "[]"),
                application=row.application,
                waiting=waiting.get(row.transactional_id, ()),
                queries=standing.get(row.transactional_id, ()),
                instance="" if row.started_ms is None else f"{row.producer_id}@{row.started_ms}",
            )

    def _partitions(self) -> Iterator[PinnedPartition]:
        pins = grouped(
            ((row.topic, row.partition), record_of(Pin, row)) for row in _pin_rows(self._cluster.pk)
        )
        for row in _pinned_partitions(self._cluster.pk):
            yield PinnedPartition(
                row.topic,
                row.partition,
                row.pinned_ms or 0,
                row.lso or 0,
                row.high_watermark or row.lso or 0,
                PartitionVerdict(row.verdict),
                tuple(sorted(pins.get((row.topic, row.partition), ()), key=attrgetter("start_offset"))),
            )

    def _groups(self) -> Iterator[BlockedGroup]:
        names = {row.pk: (row.group_id, row.log_partition) for row in _blocked_groups(self._cluster.pk)}
        if not names:
            return
        offsets_rows = PartitionRecord.objects.filter(cluster=self._cluster, topic=OFFSETS_TOPIC)
        pinned = dict(offsets_rows.values_list("partition", "pinned_ms"))
        offsets: dict[int, list[BlockedOffset]] = defaultdict(list)
        blocks = Q(unstable=True) | ~Q(waiting="")
        for pk, *fields in GroupOffset.objects.filter(blocks, group__in=names).values_list(*_OFFSET):
            offsets[pk].append(_blocked(fields))
        for pk, offsets_of_group in offsets.items():
            name, log = names[pk]
            yield BlockedGroup(name, tuple(offsets_of_group), None if log is None else pinned.get(log))

    def _places(
        self,
        gaps: Iterable[VisibilityGap],
        rows: Sequence[Collector],
        transactions: Iterable[OpenTransactionFacts],
        partitions: Iterable[PinnedPartition],
        groups: Iterable[BlockedGroup],
        queries: Sequence[QueryStatus],
        flink_jobs: Iterable[FlinkJobFacts],
    ) -> Mapping[str, frozenset[str]]:
        """Return the places of all present and former subjects, only while a part is hidden."""
        several = len([row for row in rows if row.name.startswith(TAIL)]) > 1
        hidden = any(gap.scope != EVERYWHERE for gap in gaps)
        if not (several or hidden or any(row.detail.get("unseen") for row in rows)):
            return {}
        things = {f"transaction:{transaction.transactional_id}" for transaction in transactions}
        things |= {f"partition:{partition}" for partition in partitions}
        things |= {f"partition:{offset}" for group in groups for offset in group.offsets}
        things |= {f"group:{group.group_id}" for group in groups}
        things |= {query.subject for query in queries} | {job.subject for job in flink_jobs}
        things |= {f"partition:{where}" for query in queries for where in query.positions}
        of_cluster = self._cluster.pk
        for row in (*finding_queries.open_in_cluster(of_cluster), *finding_queries.lately_closed(of_cluster)):
            things |= {row.subject, *row.affected}
        return Places(self._cluster.pk, rows).places_of(things)


@prepared
def _lookers(cluster_id: int) -> QuerySet[Collector]:
    return Collector.objects.filter(cluster_id=cluster_id).exclude(name__in=_NO_LOOKERS)


@prepared
def _open_gaps(cluster_id: int) -> QuerySet[GapRecord]:
    # Sorted like the index of open gaps, because otherwise SQLite reads all gaps of the cluster.
    return GapRecord.objects.filter(cluster_id=cluster_id, until_ms=None).order_by("source", "scope")


@prepared
def _pinned_partitions(cluster_id: int) -> QuerySet[PartitionRecord]:
    return PartitionRecord.objects.filter(_IS_PINNED, cluster_id=cluster_id, pinned_ms__isnull=False).only(
        "topic", "partition", "pinned_ms", "lso", "high_watermark", "verdict"
    )


@prepared
def _pin_rows(cluster_id: int) -> QuerySet[PinRecord]:
    return PinRecord.objects.filter(cluster_id=cluster_id)


@prepared
def _blocked_groups(cluster_id: int) -> QuerySet[Group]:
    rows = Group.objects.filter(Q(blocked__gt=0) | Q(unstable__gt=0), cluster_id=cluster_id)
    return rows.only("group_id", "log_partition")


def _statuses(rows: Sequence[Collector]) -> Iterator[CollectorStatus]:
    seeing = {row.name for row in collectors_of(rows)}
    several = len([row for row in rows if row.name.startswith(TAIL)]) > 1
    for row in rows:
        is_tail = row.name.startswith(TAIL)
        senses = {_SENSES[row.name]} if row.name in _SENSES else set()
        senses |= {Sense.TRANSACTIONS} if row.name in seeing else set()
        senses |= {Sense.HISTORY} if is_tail else set()
        yield CollectorStatus(
            row.name,
            row.seen_through_ms,
            row.error,
            row.since_ms,
            frozenset(senses),
            f"shard:{row.name.rpartition('-')[2]}" if is_tail and several else EVERYWHERE,
            tuple(row.detail.get("unseen", ())) if row.name == RECONCILE else (),
        )


def _youngest_ms(limits: Limits) -> int:
    """Return the minimum age of a transaction for any rule."""
    ages_s = (
        limits.open_too_long_s,
        limits.open_usual_s,
        limits.late_grace_s,
        limits.stuck_in_prepare_s,
        limits.offsets_unstable_s,
    )
    return int(min(ages_s) * 1_000)


def _past_usual(transactions: Iterable[OpenTransactionFacts], now_ms: int, limits: Limits) -> set[str]:
    oldest_ms = now_ms - int(min(limits.open_usual_s, limits.open_too_long_s) * 1_000)
    return {
        transaction.application
        for transaction in transactions
        if transaction.state is TransactionState.ONGOING
        and transaction.started_ms is not None
        and transaction.started_ms < oldest_ms
    }


def _first_seen(partitions: Iterable[PinnedPartition]) -> Mapping[tuple[str, int], int]:
    first_seen: dict[tuple[str, int], int] = {}
    for pin in (pin for partition in partitions for pin in partition.pins):
        which = pin.transactional_id, pin.producer_id
        first_seen[which] = min(pin.first_seen_ms, first_seen.get(which, pin.first_seen_ms))
    return first_seen


def _blocked(fields: Sequence[Any]) -> BlockedOffset:
    topic, number, offset, high_watermark, waiting, waiting_ms, unstable, blockers = fields
    behind = None if offset is None or high_watermark is None else max(0, high_watermark - offset)
    return BlockedOffset(
        topic,
        number,
        behind,
        Waiting(waiting) if waiting else None,
        waiting_ms,
        unstable,
        tuple(GroupBlocker(**blocker) for blocker in blockers),
    )
