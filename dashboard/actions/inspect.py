"""Inspect a cluster for plans, and for the checks of `execute`: our rows, and a direct poll of the cluster.

The poll is the collectors' join (`fenceline.kafka.partitions`): a partition's leader, then the coordinators,
then the leader again. It is repeated if an open transaction has no owner.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q

from dashboard.config import ClusterConfig
from dashboard.models import Cluster, GroupOffset, PinRecord, Transaction
from dashboard.partitions import store as partition_store
from dashboard.runtime import collector_names, visibility
from dashboard.runtime.leases import Lease
from dashboard.streaming import lag as blocked_queries
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition, TransactionState
from fenceline.grouping import grouped
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import (
    Offsets,
    Pin,
    PinKey,
    ProducerOwners,
    ProducerState,
    VerdictReason,
    evaluate_pin,
    open_in_both,
    still_accused,
)
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.limits import Limits
from fenceline.plans.impact import MOST_COUNTED, OFFSETS_TOPIC, HeldLog
from fenceline.plans.markers import Marked
from transaction_admin.api import AdminUnavailable, Unseen, describe_grant
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Maximum rows that one plan reads, and parameters of one SQL query: SQLite allows 32,766.
_MOST = 5_000


#: Groups, and streaming queries by name, at a partition's LSO.
BlockedReaders = tuple[tuple[str, ...], tuple[str, ...]]
NOBODY: BlockedReaders = ((), ())


def readers_at(
    cluster_id: int, lsos: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, BlockedReaders]:
    """Return the consumers at these offsets."""
    if not lsos:
        return {}
    groups, queries = _groups(cluster_id, lsos), _queries(cluster_id, lsos)
    return {
        where: (tuple(sorted(groups.get(where, ()))), tuple(sorted(queries.get(where, ()))))
        for where in {*groups, *queries}
    }


def committing_groups(cluster_id: int, names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups with pending commits in the transactions of these ids, by id."""
    groups: dict[str, set[str]] = defaultdict(set)
    rows = GroupOffset.objects.filter(group__cluster_id=cluster_id, unstable=True).select_related("group")
    for row in rows[:_MOST]:
        for blocker in row.blockers:
            if blocker.get("pending") and blocker.get("transactional_id") in names:
                groups[blocker["transactional_id"]].add(row.group.group_id)
    return {name: tuple(sorted(group_ids)) for name, group_ids in groups.items()}


def _groups(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    groups: dict[TopicPartition, set[str]] = defaultdict(set)
    offsets = list(dict.fromkeys(lsos.values()))[:_MOST]
    rows = GroupOffset.objects.filter(
        Q(waiting=Waiting.PROBABLY.value) | Q(offset__in=offsets),
        group__cluster_id=cluster_id,
        topic__in={where.topic for where in lsos},
    )
    names = rows.values_list("group__group_id", "topic", "partition", "offset", "waiting")
    for name, topic, number, offset, waiting in names[:_MOST]:
        where = TopicPartition(topic, number)
        if where in lsos and (offset == lsos[where] or waiting == Waiting.PROBABLY):
            groups[where].add(name)
    return groups


def _queries(cluster_id: int, lsos: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[str]]:
    names: dict[TopicPartition, set[str]] = defaultdict(set)
    rows = PinRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in lsos})
    pins = {row.pk: row for row in rows if TopicPartition(row.topic, row.partition) in lsos}
    for pk, queries in blocked_queries.blocked_queries(list(pins.values())).items():
        where = TopicPartition(pins[pk].topic, pins[pk].partition)
        names[where].update(query.name for query in queries)
    return names


#: Seconds within which a cluster must answer a request, because a user waits for the page.
ANSWER_S = 10.0
#: Bytes of one request for batches, maximum requests of a partition, maximum counted partitions of a plan.
_BYTES_AT_ONCE, _MOST_REQUESTS, _MOST_COUNTED_LOGS = 1024 * 1024, 16, 20
#: Polls for a verdict of hanging.
_POLLS = 2


class UnknownCluster(Exception):
    """The cluster is not configured, or its row is not stored yet; the text lists known clusters."""


@dataclass(frozen=True, slots=True)
class ClusterInspector:
    """Connections to one cluster, and our rows of it."""

    cluster: str
    cluster_id: int
    reads: ClusterReads
    admin: TransactionAdmin
    now_ms: int
    limits: Limits
    #: Whether the cluster shows us every transactional id.
    sees_all: bool
    #: The command that makes every id visible to us.
    remedy: str


@contextmanager
def connect_cluster(cluster: str, now_ms: int) -> Iterator[ClusterInspector]:
    """Connect to a cluster. Raises `UnknownCluster`, `AdminUnavailable` and `CannotTranslate`."""
    config = settings.FENCELINE.clusters.get(cluster)
    row = Cluster.objects.filter(name=cluster).first()
    if config is None or row is None:
        # Only visible clusters, because the actor may not know all configured ones.
        seen = {row.name for row in visibility.configured_clusters()}
        known = ", ".join(name for name in settings.FENCELINE.clusters if name in seen) or "none"
        raise UnknownCluster(f"No cluster {cluster!r} is configured; known are: {known}")
    with (
        closing(ClusterReads(config.properties, ANSWER_S, config.scope)) as reads,
        closing(TransactionAdmin(config.properties, ANSWER_S, config.scope)) as admin,
    ):
        yield ClusterInspector(
            cluster,
            row.pk,
            reads,
            admin,
            now_ms,
            settings.FENCELINE.limits,
            _rows(row, now_ms, config).sees_all(),
            describe_grant(f"User:{config.properties.get('sasl.username', '…')}"),
        )


def _rows(row: Cluster, now_ms: int, config: ClusterConfig) -> partition_store.PartitionRows:
    """Return the collector's view of our rows; it only reads, so it needs no lease."""
    tails = [collector_names.tail_name(shard, settings.SHARDS) for shard in range(settings.SHARDS)]
    rows = partition_store.PartitionRows(
        Lease(row.name, row.pk, collector_names.PARTITIONS, 0),
        tails,
        vouched=config.sees_all_transactional_ids,
        scope=config.scope,
    )
    rows.now_ms = now_ms
    return rows


def describe_ids(
    inspector: ClusterInspector, names: Collection[str]
) -> Mapping[str, Described | NotDescribed]:
    """Return coordinators' descriptions of ids (escaped text); creates nothing. Raises `AdminUnavailable`."""
    described = inspector.admin.describe_transactions(names)
    if any(
        isinstance(answer, NotDescribed) and answer.obstacle is Obstacle.UNSEEN
        for answer in described.values()
    ):
        # If the topic is not visible, a list proves that it exists, so that a look-up creates nothing.
        inspector.admin.list_transactions([TransactionState.ONGOING])
        described = inspector.admin.describe_transactions(names)
    return described


def partition_logs(
    inspector: ClusterInspector, wheres: Collection[TopicPartition]
) -> Mapping[TopicPartition, HeldLog]:
    """Return partitions from their leaders' current description, with blocked readers and batches."""
    if not wheres:
        return {}
    offsets = inspector.reads.list_offsets(wheres)
    producers = inspector.reads.describe_producers(wheres)
    standing = readers_at(
        inspector.cluster_id,
        {
            where: at.lso
            for where, at in offsets.items()
            if isinstance(at, Offsets) and at.lso < at.high_watermark
        },
    )
    logs = {}
    counted = 0
    for where in wheres:
        at = offsets[where]
        batches = None
        if (
            isinstance(at, Offsets)
            and where.topic != OFFSETS_TOPIC
            and counted < _MOST_COUNTED_LOGS
            and 0 < at.high_watermark - at.lso <= MOST_COUNTED
        ):
            counted += 1
            batches = _batches(inspector, where, at)
        logs[where] = _log(where, at, producers[where], batches, standing.get(where, NOBODY))
    return logs


def _log(
    where: TopicPartition,
    offsets: Offsets | Unseen,
    producers: tuple[ProducerState, ...] | Unseen,
    batches: tuple[RecordBatch, ...] | None,
    standing: BlockedReaders,
) -> HeldLog:
    blind = next((answer.reason for answer in (offsets, producers) if isinstance(answer, Unseen)), "")
    opened: tuple[ProducerState, ...] = ()
    if not isinstance(producers, Unseen):
        opened = tuple(sorted(_opened(producers), key=lambda producer: producer.start_offset or 0))
    if isinstance(offsets, Unseen):
        return HeldLog(where, opened=opened, unseen=blind)
    return HeldLog(where, offsets.lso, offsets.high_watermark, opened, batches, *standing, blind)


def _batches(
    inspector: ClusterInspector, where: TopicPartition, offsets: Offsets
) -> tuple[RecordBatch, ...] | None:
    """Return the headers from the LSO to the high watermark, None if that takes too many requests."""
    batches: list[RecordBatch] = []
    at = offsets.lso
    for _ in range(_MOST_REQUESTS):
        answer = inspector.reads.batch_headers(where, at, most_bytes=_BYTES_AT_ONCE)
        if isinstance(answer, Unseen):
            return None
        batches += answer.batches
        if answer.next >= offsets.high_watermark:
            return tuple(batches)
        if answer.next <= at:
            return None
        at = answer.next
    return None


def pins_of(cluster_id: int, producer_ids: Collection[int]) -> Mapping[int, Sequence[PinRecord]]:
    """Return our rows of the producers' open transactions in a cluster, by producer id."""
    return grouped(
        (row.producer_id, row)
        for row in PinRecord.objects.filter(cluster_id=cluster_id, producer_id__in=set(producer_ids))
    )


def silent_since(
    inspector: ClusterInspector, log: HeldLog, producer_id: int, ours: Mapping[int, Sequence[PinRecord]]
) -> int | None:
    """Return the time since which a producer has not written to a partition; each write changes our row."""
    now = next((producer for producer in log.opened if producer.producer_id == producer_id), None)
    if now is None:
        return None
    for row in ours.get(producer_id, ()):
        if (row.topic, row.partition, row.start_offset) == (*log.where, now.start_offset):
            same = (row.last_sequence, row.last_timestamp_ms) == (now.last_sequence, now.last_timestamp_ms)
            return row.seen_ms if same else inspector.now_ms
    return None


def inspect_partitions(
    inspector: ClusterInspector, wheres: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Marked]:
    """Return the open transactions of partitions and their owners, with the polls that a verdict needs."""
    topology = inspector.reads.describe_topology({where.topic for where in wheres})
    logs = partition_logs(inspector, wheres)
    pins: dict[TopicPartition, list[Pin]] = {}
    owners = ProducerOwners({}, {}, whole=True, may_hide=not inspector.sees_all)
    accused: frozenset[PinKey] = frozenset()
    for _ in range(_POLLS):
        pins, owners = _join(inspector, wheres, accused)
        all_pins = [pin for open_pins in pins.values() for pin in open_pins]
        if not any(pin.ground is VerdictReason.SEEN_ONCE for pin in all_pins):
            break
        accused = still_accused(all_pins, accused)
    producer_ids = [pin.producer_id for open_pins in pins.values() for pin in open_pins]
    ours = pins_of(inspector.cluster_id, producer_ids)
    marked = {}
    for where in wheres:
        leader = topology.partitions.get(where)
        silent = {
            pin.producer_id: since
            for pin in pins.get(where, ())
            if (since := silent_since(inspector, logs[where], pin.producer_id, ours)) is not None
        }
        marked[where] = Marked(
            logs[where],
            leader.leader if leader else None,
            leader.leader_epoch if leader else None,
            tuple(pins.get(where, ())),
            owners.descriptions,
            inspector.remedy,
            silent,
        )
    return marked


def _join(
    inspector: ClusterInspector, wheres: Sequence[TopicPartition], accused: Collection[PinKey]
) -> tuple[dict[TopicPartition, list[Pin]], ProducerOwners]:
    """Ask leaders, coordinators, then leaders again; return verdicts on transactions open both times."""
    before = inspector.reads.describe_producers(wheres)
    opened = {where: _opened(states) for where, states in before.items() if not isinstance(states, Unseen)}
    owners = owners_of(inspector, {producer.producer_id for states in opened.values() for producer in states})
    asked = [where for where, states in opened.items() if states]
    after = inspector.reads.describe_producers(asked) if asked else {}
    pins = {}
    for where, states in after.items():
        if isinstance(states, Unseen):
            continue
        pins[where] = [
            evaluate_pin(
                where,
                producer,
                owners,
                known=None,
                since_ms=inspector.now_ms,
                accused=PinKey(
                    *where, producer.producer_id, producer.producer_epoch, producer.start_offset or 0
                )
                in accused,
                now_ms=inspector.now_ms,
                grace=0,
            )
            for producer in open_in_both(opened[where], states)
        ]
    return pins, owners


def _opened(producers: Sequence[ProducerState]) -> list[ProducerState]:
    return [producer for producer in producers if producer.start_offset is not None]


def owners_of(inspector: ClusterInspector, producer_ids: Collection[int]) -> ProducerOwners:
    """Return the owners of producer ids, and their coordinators' current descriptions."""
    if not producer_ids:
        return ProducerOwners({}, {}, whole=True, may_hide=not inspector.sees_all)
    try:
        ids = dict(inspector.reads.transactional_ids(producer_ids))
        whole = True
    except AdminUnavailable:
        ids, whole = {}, False
    missing = [producer_id for producer_id in producer_ids if producer_id not in ids]
    rows = Transaction.objects.filter(cluster_id=inspector.cluster_id, producer_id__in=missing)
    ids |= dict(rows.values_list("producer_id", "transactional_id"))
    descriptions = describe_ids(inspector, set(ids.values())) if ids else {}
    return ProducerOwners(ids, descriptions, whole, may_hide=not inspector.sees_all)
