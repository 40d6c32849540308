"""Describe transactional ids for a plan, from their coordinators' answers and our rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dashboard.actions import inspect
from dashboard.engines.flink_jobs import holds_of
from dashboard.evaluation.baselines import ClusterBaselines
from dashboard.models import PinRecord, Position, Query, SinkDecision, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.streaming.batch_state import prepared_decisions
from dashboard.streaming.batches import written_for
from dashboard.transactions.queries import partitions_of
from fenceline.decode.typed import record_of
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, TopicPartition, expand_partitions
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.coordinator import start_ms
from fenceline.kafka.reconcile import Described, NotDescribed
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.plans.impact import HeldLog
from fenceline.plans.producers import Producer, SinkOwner
from fenceline.spark.records import Decided


def describe_producers(inspector: inspect.ClusterInspector, names: Sequence[str]) -> Sequence[Producer]:
    """Return transactional ids (escaped text) with their coordinators' descriptions, in the same order."""
    described = inspect.describe_ids(inspector, names)
    keys = {key_of_name(name): name for name in names}
    known = Transaction.objects.filter(cluster_id=inspector.cluster_id, key__in=list(keys))
    rows = {keys[bytes(row.key)]: row for row in known}
    pins = inspect.pins_of(
        inspector.cluster_id,
        [answer.producer_id for answer in described.values() if isinstance(answer, Described)],
    )
    wheres = {name: _wheres(answer, pins) for name, answer in described.items()}
    logs = inspect.partition_logs(
        inspector, list(dict.fromkeys(where for partitions in wheres.values() for where in partitions))
    )
    coordinators = partition_queries.coordinator_brokers(
        inspector.cluster_id, [row.log_partition for row in rows.values()]
    )
    committing = inspect.committing_groups(inspector.cluster_id, names)
    ours = _OurRows(inspector.cluster_id, names, rows, pins, inspector.now_ms)
    producers = []
    for name in names:
        own_logs = tuple(logs[where] for where in wheres[name])
        producer = replace(
            ours.producer_of(name, described[name]),
            logs=own_logs,
            coordinator=coordinators.get(rows[name].log_partition) if name in rows else None,
            silent_since_ms=_silent_since_ms(inspector, described[name], own_logs, pins),
            committing=committing.get(name, ()),
        )
        producers.append(producer)
    return producers


def producers_of_rows(rows: Sequence[Transaction], *, now_ms: int) -> Sequence[Producer]:
    """Return transactional ids of one cluster from our rows, without asking the cluster.

    The logs of their partitions are missing, so a plan has no effects.
    """
    if not rows:
        return ()
    cluster_id = rows[0].cluster_id
    pins = inspect.pins_of(cluster_id, [row.producer_id for row in rows])
    rows_by_name = {row.transactional_id: row for row in rows}
    ours = _OurRows(cluster_id, list(rows_by_name), rows_by_name, pins, now_ms)
    producers = []
    for row in rows:
        described = record_of(Described, row, partitions=tuple(partitions_of(row)))
        silent_since_ms = max((pin.seen_ms for pin in pins.get(row.producer_id, ())), default=None)
        producer = ours.producer_of(row.transactional_id, described)
        producers.append(replace(producer, silent_since_ms=silent_since_ms))
    return producers


class _OurRows:
    """Our rows of transactional ids of one cluster; `pins` by producer id."""

    def __init__(
        self,
        cluster_id: int,
        names: Sequence[str],
        rows: Mapping[str, Transaction],
        pins: Mapping[int, Sequence[PinRecord]],
        now_ms: int,
    ) -> None:
        self._rows, self._pins, self._now_ms = rows, pins, now_ms
        applications = {application_of(name).application for name in names}
        self._usual = ClusterBaselines(cluster_id).usual_commits(applications, now_ms)
        self._sinks = _Sinks(cluster_id)
        self._holds = holds_of(cluster_id, names, now_ms=now_ms)
        positions = Position.objects.filter(
            cluster_id=cluster_id,
            topic=partition_queries.STATE_TOPIC,
            partition__in={row.log_partition for row in rows.values()},
        )
        self._places = {place.partition: place for place in positions}

    def producer_of(self, name: str, described: Described | NotDescribed) -> Producer:
        return Producer(
            name,
            described,
            started_ms=self._started_ms(name, described),
            usual=self._usual.get(application_of(name).application),
            sink=self._sinks.owner_of(name, described),
            flink=self._holds.get(name),
        )

    def _started_ms(self, name: str, described: Described | NotDescribed) -> int | None:
        """Return the start of a transaction by our clock, as the rules compute it."""
        if not isinstance(described, Described) or described.started_ms is None:
            return None
        ahead_ms = since_ms = None
        if name in self._rows and (place := self._places.get(self._rows[name].log_partition)):
            ahead_ms, since_ms = place.clock_ms, place.since_ms or None
        begun_ms = start_ms(described.started_ms, now_ms=self._now_ms, ahead_ms=ahead_ms, since_ms=since_ms)
        if begun_ms is not None:
            return begun_ms
        return min((pin.first_seen_ms for pin in self._pins.get(described.producer_id, ())), default=None)


def _wheres(
    described: Described | NotDescribed, pins: Mapping[int, Sequence[PinRecord]]
) -> Sequence[TopicPartition]:
    """Return the partitions in a coordinator's description, and those of the producer's open transactions."""
    if not isinstance(described, Described):
        return ()
    named = expand_partitions(described.partitions)
    pinned = [TopicPartition(row.topic, row.partition) for row in pins.get(described.producer_id, ())]
    return list(dict.fromkeys([*named, *pinned]))


def _silent_since_ms(
    inspector: inspect.ClusterInspector,
    described: Described | NotDescribed,
    logs: Sequence[HeldLog],
    pins: Mapping[int, Sequence[PinRecord]],
) -> int | None:
    """Return the time since which no record was written, None if unknown for a partition."""
    if not isinstance(described, Described) or any(log.unseen for log in logs):
        return None
    since = [inspect.silent_since(inspector, log, described.producer_id, pins) for log in logs]
    opened = [
        silent_ms
        for silent_ms, log in zip(since, logs, strict=True)
        if log.start_of({described.producer_id}) is not None
    ]
    if not opened or None in opened:
        return None
    return max(silent_ms for silent_ms in opened if silent_ms is not None)


class _Sinks:
    """The sinks that own transactional ids of a cluster; prepared decisions are read once."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._prepared: Sequence[SinkDecision] | None = None

    def owner_of(self, name: str, described: Described | NotDescribed) -> SinkOwner | None:
        """Return the sink that owns an id, None for any other id."""
        decision = self._open_decision(name, described)
        if decision is not None:
            return SinkOwner(decision.query.ident, str(decision.query), decision.batch_id, prepared=True)
        written = written_for(self._cluster_id, name)
        if written is not None:
            return SinkOwner(written.query.ident, str(written.query), next_batch(written.query))
        if isinstance(described, Described) and described.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
            # Another system may have decided to commit it (KIP-939).
            return None
        return SinkOwner() if application_of(name).kind is Shape.FENCELINE_SINK else None

    def _open_decision(self, name: str, described: Described | NotDescribed) -> SinkDecision | None:
        """Return the prepared, unfinished decision that names an id's open transaction."""
        if self._prepared is None:
            rows = prepared_decisions().filter(query__cluster_id=self._cluster_id)
            self._prepared = list(rows.select_related("query"))
        for row in self._prepared:
            for written in row.transactions:
                same = not isinstance(described, Described) or written["producer_id"] == described.producer_id
                if written["transactional_id"] == name and same:
                    return row
        return None


def next_batch(query: Query) -> int | None:
    """Return the next batch of a query's sink: the one after its last prepared batch."""
    last = (
        SinkDecision.objects.filter(query=query, decided=Decided.PREPARED.value).order_by("-batch_id").first()
    )
    if last is None:
        return query.planned
    return max(last.batch_id + 1, query.planned or 0)
