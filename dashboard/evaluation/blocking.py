"""Find the readers that wait for open transactions, the transactions' partitions and coordinators."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from dashboard.groups import queries as group_queries
from dashboard.groups.queries import BlockedReader
from dashboard.models import Collector, Group, PartitionRecord, PinRecord, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.streaming import lag as blocked_queries
from dashboard.streaming.lag import BlockedQuery
from dashboard.transactions import queries as transaction_queries
from fenceline.facts import NOT_REPORTED, OPEN_STATES, TransactionState, expand_partitions
from fenceline.grouping import grouped
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.snapshot import MissingMarker, OpenTransactionFacts, PinnedPartition

#: Decided transactions, and partitions of all of them, whose markers are searched.
_MOST_DECIDED, _MOST_MARKERS = 100, 1_000


@dataclass(frozen=True, slots=True)
class Waits:
    """A transaction's worst verdict in its partitions, and the waiting readers."""

    verdict: str = PartitionVerdict.CLEAR.value
    pins: Sequence[PinRecord] = ()
    waiting: Sequence[BlockedReader] = ()
    #: Streaming queries at the LSO that it blocks.
    queries: Sequence[BlockedQuery] = ()

    @property
    def group_count(self) -> int:
        return len({reader.group for reader in self.waiting})


@dataclass(frozen=True, slots=True)
class NamedPartition:
    """A partition in a transaction's record: its last row, and whether the transaction is open there."""

    topic: str
    partition: int
    seen: PartitionRecord | None
    pin: PinRecord | None
    waiting: Sequence[BlockedReader]
    queries: Sequence[BlockedQuery] = ()
    #: For a transaction that is being ended: "written", "waiting" or "unknown"; "" for others.
    marker: str = ""

    @property
    def unstable(self) -> int | None:
        """Return the number of offsets after its LSO, None if unknown."""
        return None if self.seen is None else partition_queries.unstable_offsets(self.seen)

    @property
    def blocked_ms(self) -> int | None:
        """Return since when the transaction blocks it, None unless it is open at its LSO."""
        if self.seen is None or self.pin is None or self.seen.lso != self.pin.start_offset:
            return None
        return self.seen.pinned_ms


def waits_of(rows: Sequence[Transaction]) -> Mapping[int, Waits]:
    """Return the waits for transactions, by the key of their row, in a few SQL queries for all of them."""
    pins = partition_queries.pins_of(rows)
    streams = blocked_queries.blocked_queries([pin for pins_of_row in pins.values() for pin in pins_of_row])
    waiting = group_queries.transaction_waiters(rows, pins, {row.pk: offsets_partitions(row) for row in rows})
    return {
        row.pk: Waits(
            partition_queries.verdict_of(row.state in OPEN_STATES, pins.get(row.pk, ())),
            pins.get(row.pk, ()),
            waiting.get(row.pk, ()),
            [query for pin in pins.get(row.pk, ()) for query in streams.get(pin.pk, ())],
        )
        for row in rows
    }


def transaction_partitions(row: Transaction, waits: Waits, *, most: int) -> Sequence[NamedPartition]:
    """Return the first partitions with a transaction's records, blocked partitions first."""
    records = [pin for pin in waits.pins if pin.topic != group_queries.OFFSETS_TOPIC]
    pins = {(row.cluster_id, pin.topic, pin.partition): pin for pin in records}
    named = [
        (row.cluster_id, *where)
        for where in expand_partitions(transaction_queries.partitions_of(row))
        if where.topic != group_queries.OFFSETS_TOPIC
    ]
    names = list(dict.fromkeys([*pins, *named]))[:most]
    known = partition_queries.partitions_by_name(names)
    collector = Collector.objects.filter(cluster_id=row.cluster_id, name=PARTITIONS)
    polled_ms = collector.values_list("seen_through_ms", flat=True).first() if row.is_ending else None
    places = [_place(name, known.get(name), pins.get(name), waits) for name in names]
    return [replace(place, marker=_marker(row, place, polled_ms)) for place in places]


def _marker(row: Transaction, place: NamedPartition, polled_ms: int | None) -> str:
    """Return the state of an ending transaction's marker in a partition.

    The marker is written once the leader no longer names the transaction, in a poll after the decision.
    Producers are requested if the LSO has not moved in two polls.
    """
    if not row.is_ending:
        return ""
    if place.pin is not None:
        return "waiting"
    seen = place.seen
    if seen is None or seen.error or (polled_ms or 0) < row.updated_ms:
        return "unknown"
    return "written" if seen.lso == seen.high_watermark or seen.pinned_ms else "unknown"


def with_missing_markers(
    cluster_id: int,
    transactions: Iterable[OpenTransactionFacts],
    partitions: Iterable[PinnedPartition],
    decided_before_ms: int,
) -> Iterator[OpenTransactionFacts]:
    """Yield transactions; those decided before an instant get the partitions without their marker.

    Such a partition has no leader, or its leader still lists the transaction's producer.
    """
    opened = {
        (partition.topic, partition.partition, pin.producer_id)
        for partition in partitions
        for pin in partition.pins
        if pin.verdict is not PartitionVerdict.HANGING
    }
    listed = list(transactions)
    decided = [transaction for transaction in listed if _is_decided(transaction, decided_before_ms)]
    names = {
        (cluster_id, *where)
        for transaction in decided[:_MOST_DECIDED]
        for where in expand_partitions(transaction.partitions)
    }
    known = partition_queries.partitions_by_name(islice(names, _MOST_MARKERS))
    for transaction in listed:
        if not _is_decided(transaction, decided_before_ms):
            yield transaction
            continue
        wheres = sorted(expand_partitions(transaction.partitions))
        missing = tuple(
            MissingMarker(*where, row.leader, tuple(row.replicas))
            for where in wheres
            if (row := known.get((cluster_id, *where))) is not None
            and (row.leader is None or (*where, transaction.producer_id) in opened)
        )
        yield replace(transaction, missing=missing)


def _is_decided(transaction: OpenTransactionFacts, before_ms: int) -> bool:
    return transaction.state is not TransactionState.ONGOING and transaction.updated_ms <= before_ms


def candidate_groups(row: Transaction, waits: Waits) -> Sequence[Group]:
    """Return the groups for which a read-process-write transaction may commit; empty if commits show it."""
    log_partitions = offsets_partitions(row)
    if not log_partitions or any(reader.pending for reader in waits.waiting):
        return []
    return group_queries.candidate_groups(row, log_partitions)


def coordinator_brokers(rows: Sequence[Transaction]) -> Mapping[int, int]:
    """Return the known coordinators of ids, by the key of the id's row.

    A coordinator is the leader of its id's partition of `__transaction_state`.
    """
    placed = grouped((row.cluster_id, row) for row in rows if row.log_partition != NOT_REPORTED)
    brokers: dict[int, int] = {}
    for cluster_id, of_cluster in placed.items():
        numbers = {row.log_partition for row in of_cluster}
        leaders = partition_queries.coordinator_brokers(cluster_id, numbers)
        brokers |= {row.pk: leaders[row.log_partition] for row in of_cluster if row.log_partition in leaders}
    return brokers


def offsets_partitions(row: Transaction) -> Sequence[int]:
    """Return the partitions of `__consumer_offsets` in a transaction's record."""
    named = dict(transaction_queries.partitions_of(row))
    return named.get(group_queries.OFFSETS_TOPIC, ())


def _place(
    name: partition_queries.Name, seen: PartitionRecord | None, pin: PinRecord | None, waits: Waits
) -> NamedPartition:
    _, topic, number = name
    standing = [reader for reader in waits.waiting if not reader.pending]
    here = [reader for reader in standing if (reader.topic, reader.partition) == (topic, number)]
    streams = [query for query in waits.queries if (query.topic, query.partition) == (topic, number)]
    return NamedPartition(topic, number, seen, pin, here, streams)
