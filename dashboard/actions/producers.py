"""Transactional ids for a plan: what their coordinators say now, and what our rows know beside that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashboard.actions import blocked_readers, inspect
from dashboard.evaluation.baselines import ClusterBaselines
from dashboard.models import PinRecord, Position, Query, SinkDecision, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.streaming.batches import written_for
from dashboard.streaming.flink_jobs import holds_of
from dashboard.transactions.queries import partitions_of
from fenceline.decode import text
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.applications import application_of
from fenceline.kafka.clock_skew import start_ms
from fenceline.kafka.reconcile import Described, NotDescribed
from fenceline.kafka.transactional_ids import key_of
from fenceline.plans.impact import HeldLog
from fenceline.plans.plan import RefusalReason
from fenceline.plans.producers import Producer, SinkOwner
from fenceline.plans.protected import protection_reason
from fenceline.spark.records import Decided


def describe_producers(inspector: inspect.ClusterInspector, names: Sequence[str]) -> Sequence[Producer]:
    """Return transactional ids (escaped text) as their coordinators describe them now, in this order."""
    described = inspect.describe_ids(inspector, names)
    rows = _transactions(inspector, names)
    pins = inspect.producer_pins(
        inspector, [each.producer_id for each in described.values() if isinstance(each, Described)]
    )
    wheres = {name: _wheres(each, pins) for name, each in described.items()}
    seen = inspect.partition_logs(
        inspector, list(dict.fromkeys(where for each in wheres.values() for where in each))
    )
    usual = ClusterBaselines(inspector.cluster_id).usual_commits(
        {application_of(name).application for name in names}, inspector.now_ms
    )
    coordinators = partition_queries.coordinator_brokers(
        inspector.cluster_id, [row.log_partition for row in rows.values()]
    )
    committing = blocked_readers.committing_groups(inspector.cluster_id, names)
    sinks, places = _Sinks(inspector.cluster_id), _places(inspector.cluster_id, rows.values())
    holds = holds_of(inspector.cluster_id, names, now_ms=inspector.now_ms)
    found = []
    for name in names:
        row = rows.get(name)
        those = tuple(seen[where] for where in wheres[name])
        found.append(
            Producer(
                name,
                described[name],
                those,
                coordinators.get(row.log_partition) if row else None,
                _started_ms(
                    inspector.now_ms, described[name], places.get(row.log_partition) if row else None, pins
                ),
                _silent_since_ms(inspector, described[name], those, pins),
                usual.get(application_of(name).application),
                sinks.owner_of(name, described[name]),
                committing.get(name, ()),
                holds.get(name),
            )
        )
    return found


def producers_of_rows(rows: Sequence[Transaction], *, now_ms: int) -> Sequence[Producer]:
    """Return transactional ids of one cluster as our rows have them, without asking the cluster.

    The logs of their partitions are missing, so a plan has no effects.
    """
    if not rows:
        return ()
    cluster_id = rows[0].cluster_id
    pins = inspect.pins_of(cluster_id, [row.producer_id for row in rows])
    usual = ClusterBaselines(cluster_id).usual_commits({row.application for row in rows}, now_ms)
    sinks, places = _Sinks(cluster_id), _places(cluster_id, rows)
    holds = holds_of(cluster_id, [row.transactional_id for row in rows], now_ms=now_ms)
    found = []
    for row in rows:
        name, described, its = row.transactional_id, _described(row), pins.get(row.producer_id, ())
        found.append(
            Producer(
                name,
                described,
                started_ms=_started_ms(now_ms, described, places.get(row.log_partition), pins),
                silent_since_ms=max((pin.seen_ms for pin in its), default=None),
                usual=usual.get(row.application),
                sink=sinks.owner_of(name, described),
                flink=holds.get(name),
            )
        )
    return found


def _described(row: Transaction) -> Described:
    ids = row.producer_id, row.producer_epoch, row.timeout_ms, row.started_ms
    return Described(row.transactional_id, TransactionState(row.state), *ids, tuple(partitions_of(row)))


def _transactions(inspector: inspect.ClusterInspector, names: Sequence[str]) -> Mapping[str, Transaction]:
    keys = {bytes(key_of(text.unescape_text(name))): name for name in names}
    rows = Transaction.objects.filter(cluster_id=inspector.cluster_id, key__in=list(keys))
    return {keys[bytes(row.key)]: row for row in rows}


def _wheres(
    described: Described | NotDescribed, pins: Mapping[int, Sequence[PinRecord]]
) -> Sequence[TopicPartition]:
    """Return the partitions that a coordinator names, and those in which we have seen the producer open."""
    if not isinstance(described, Described):
        return ()
    named = [TopicPartition(topic, number) for topic, numbers in described.partitions for number in numbers]
    ours = [TopicPartition(row.topic, row.partition) for row in pins.get(described.producer_id, ())]
    return list(dict.fromkeys([*named, *ours]))


def _started_ms(
    now_ms: int,
    described: Described | NotDescribed,
    place: Position | None,
    pins: Mapping[int, Sequence[PinRecord]],
) -> int | None:
    """Return since when a transaction is open by our clock, as the rules compute it.

    `place` is the partition of `__transaction_state` that holds its id, None where that was not read.
    """
    if not isinstance(described, Described) or described.started_ms is None:
        return None
    ahead_ms = since_ms = None
    if place is not None:
        ahead_ms, since_ms = place.clock_ms, place.since_ms or None
    found = start_ms(described.started_ms, now_ms=now_ms, ahead_ms=ahead_ms, since_ms=since_ms)
    if found is not None:
        return found
    return min((pin.first_seen_ms for pin in pins.get(described.producer_id, ())), default=None)


def _places(cluster_id: int, rows: Iterable[Transaction]) -> Mapping[int, Position]:
    """Return the partitions of `__transaction_state` that hold some ids, by number."""
    found = Position.objects.filter(
        cluster_id=cluster_id,
        topic=partition_queries.STATE_TOPIC,
        partition__in={row.log_partition for row in rows},
    )
    return {place.partition: place for place in found}


def _silent_since_ms(
    inspector: inspect.ClusterInspector,
    described: Described | NotDescribed,
    those: Sequence[HeldLog],
    pins: Mapping[int, Sequence[PinRecord]],
) -> int | None:
    """Return since when no record was observed, None where a partition shows nothing."""
    if not isinstance(described, Described) or any(log.unseen for log in those):
        return None
    since = [inspect.silent_since(inspector, log, described.producer_id, pins) for log in those]
    opened = [
        each
        for each, log in zip(since, those, strict=True)
        if log.start_of({described.producer_id}) is not None
    ]
    if not opened or None in opened:
        return None
    return max(each for each in opened if each is not None)


class _Sinks:
    """Whose sinks the transactional ids of a cluster are of; the prepared decisions are read once."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._prepared: Sequence[SinkDecision] | None = None

    def owner_of(self, name: str, described: Described | NotDescribed) -> SinkOwner | None:
        """Whose sink an id is of, None for any other id."""
        decision = self._open_decision(name, described)
        if decision is not None:
            return SinkOwner(decision.query.ident, str(decision.query), decision.batch_id, prepared=True)
        written = written_for(self._cluster_id, name)
        if written is not None:
            return SinkOwner(written.query.ident, str(written.query), next_batch(written.query))
        timeout_ms = described.timeout_ms if isinstance(described, Described) else 0
        return SinkOwner() if protection_reason(name, timeout_ms) is RefusalReason.OWN_SINK else None

    def _open_decision(self, name: str, described: Described | NotDescribed) -> SinkDecision | None:
        """The prepared decision, not carried out to the end, that names an id's open transaction."""
        if self._prepared is None:
            rows = SinkDecision.objects.filter(
                query__cluster_id=self._cluster_id, outcome="", decided=Decided.PREPARED.value
            )
            self._prepared = list(rows.select_related("query"))
        for row in self._prepared:
            for each in row.transactions:
                same = not isinstance(described, Described) or each["producer_id"] == described.producer_id
                if each["transactional_id"] == name and same:
                    return row
        return None


def next_batch(query: Query) -> int | None:
    """Return the batch that a query's sink writes next: the one behind the last that it has prepared."""
    last = (
        SinkDecision.objects.filter(query=query, decided=Decided.PREPARED.value).order_by("-batch_id").first()
    )
    if last is None:
        return query.planned
    return max(last.batch_id + 1, query.planned or 0)
