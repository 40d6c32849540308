"""Save the polls of `collectors.kafka.partitions`, and read the rows that it starts from.

No other module writes these rows. As in `dashboard.transactions.store`, a save checks the lease by its token,
takes the revision, then writes changed rows in key order, in short database transactions. Pages are notified
after the last one.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db import connection

from dashboard.models import (
    IS_OPEN,
    Cluster,
    Collector,
    DeletedPartition,
    GapRecord,
    PartitionRecord,
    PinRecord,
    Position,
    ReplicaLook,
    Transaction,
)
from dashboard.partitions.queries import pin_of
from dashboard.runtime import collector_store
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions, write_rows
from dashboard.runtime.write_transactions import cluster_transaction, retry_write, write_transaction
from dashboard.series.store import SeriesSample, extend_span, save_samples
from fenceline.decode.record_batches import BatchWriters
from fenceline.decode.typed import fields_of, record_of
from fenceline.facts import TopicPartition, expand_partitions
from fenceline.kafka.partitions import (
    KnownPartition,
    ObservedPartitions,
    PartitionPlace,
    Pin,
    ProducerState,
)
from fenceline.kafka.scope import EVERYTHING, Scope
from fenceline.series.points import PARTITION

NAME = PARTITIONS
#: Maximum rows in one save, about 50 ms even with long histories of ends.
_SAVE_AT_ONCE = 1_000
#: Maximum age in milliseconds of a tail's data for its rows to count as all ids.
_FRESH_MS = 10_000

_KEY = ("cluster_id", "topic", "partition")
_TABLE = PartitionRecord._meta.db_table
_IS = " AND ".join(f"{column} = %s" for column in _KEY)
_DELETE = f"DELETE FROM {_TABLE} WHERE {_IS}"  # noqa: S608 - our own constants
_PIN_KEY = (*_KEY, "producer_id", "producer_epoch", "start_offset")
_PINS = PinRecord._meta.db_table
_DELETE_PIN = f"DELETE FROM {_PINS} WHERE {' AND '.join(f'{column} = %s' for column in _PIN_KEY)}"  # noqa: S608


class PartitionRows:
    """The rows of one cluster; `tails` names the collectors that read `__transaction_state`."""

    def __init__(
        self, lease: Lease, tails: Collection[str], *, vouched: bool, scope: Scope = EVERYTHING
    ) -> None:
        """`vouched`: whether the operator has declared that we can see all transactional ids."""
        self._scope = scope
        self._cluster_id = lease.cluster_id
        self._tails, self._vouched = tails, vouched
        #: When the last poll began, for the age of a tail's data.
        self.now_ms = 0

    def known_partitions(self) -> dict[TopicPartition, KnownPartition]:
        rows = PartitionRecord.objects.filter(cluster_id=self._cluster_id).defer("ends")
        known = {}
        for row in rows.iterator():
            place = PartitionPlace(row.topic_id, row.leader, row.leader_epoch, tuple(row.replicas))
            known[TopicPartition(row.topic, row.partition)] = record_of(KnownPartition, row, place=place)
        return known

    def end_histories(self) -> dict[TopicPartition, str]:
        """Return the packed histories of ends of all partitions."""
        rows = PartitionRecord.objects.filter(cluster_id=self._cluster_id)
        rows_of_ends = rows.values_list("topic", "partition", "ends").iterator()
        return {TopicPartition(topic, number): packed for topic, number, packed in rows_of_ends}

    def open_pins(self) -> list[Pin]:
        return [pin_of(row) for row in PinRecord.objects.filter(cluster_id=self._cluster_id)]

    def named_partitions(self) -> set[TopicPartition]:
        """Return the partitions in the records of open transactions."""
        rows = Transaction.objects.filter(IS_OPEN, cluster_id=self._cluster_id)
        return {
            where
            for packed in rows.values_list("partitions", flat=True).distinct()
            for where in expand_partitions(json.loads(packed or "[]"))
            if self._scope.has_topic(where.topic)
        }

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the escaped transactional ids by producer id, read in portions."""
        ids = Transaction.objects.filter(cluster_id=self._cluster_id)
        names: dict[int, str] = {}
        for rows in in_portions(ids, "producer_id", producer_ids):
            names.update(rows.values_list("producer_id", "transactional_id"))
        return names

    def sees_all(self) -> bool:
        """Whether all transactional ids are visible: by our tails, or by the operator's declaration."""
        return self._scope.has_all_ids and (self._vouched or self._tails_see_all())

    def _tails_see_all(self) -> bool:
        rows = Collector.objects.filter(cluster_id=self._cluster_id, name__in=self._tails)
        gaps = GapRecord.objects.filter(cluster_id=self._cluster_id, source__in=self._tails, until_ms=None)
        states = list(rows.values_list("seen_through_ms", "error", "undecoded"))
        # A tail of a missing topic has read nothing, so a missing row does not prove that an id does not
        # exist.
        was_read = Position.objects.filter(cluster_id=self._cluster_id, topic=TRANSACTION_STATE)
        return (
            0 < len(states) == len(self._tails)
            and was_read.exists()
            and all(
                seen is not None and self.now_ms - seen <= _FRESH_MS and not error and not undecoded
                for seen, error, undecoded in states
            )
            and not gaps.exists()
        )


def save_partitions(lease: Lease, observation: ObservedPartitions, *, now_ms: int) -> None:
    """Save the result and the cost of a poll. Raises `LeaseLost` for an outdated token."""
    pins = sorted(observation.pins, key=lambda pin: pin.key)
    rows = sorted(observation.rows.items())
    while len(pins) + len(rows) > _SAVE_AT_ONCE:
        first, pins = pins[:_SAVE_AT_ONCE], pins[_SAVE_AT_ONCE:]
        others, rows = rows[: _SAVE_AT_ONCE - len(first)], rows[_SAVE_AT_ONCE - len(first) :]
        _save_some(lease, observation, first, others)
    _save_rest(lease, observation, pins, rows, now_ms)


@retry_write
def _save_some(
    lease: Lease,
    observation: ObservedPartitions,
    pins: Sequence[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
) -> None:
    with write_transaction(lease) as write:
        _write(lease.cluster_id, write.next_rev(), observation, pins, rows)


@retry_write
def _save_rest(
    lease: Lease,
    observation: ObservedPartitions,
    pins: Sequence[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
    now_ms: int,
) -> None:
    columns = {"seen_through_ms": observation.at_ms}
    with write_transaction(lease, columns, read=len(observation.rows)) as write:
        _write(lease.cluster_id, write.next_rev(), observation, pins, rows)
        _delete(lease.cluster_id, observation)
        extend_span(lease.cluster_id, NAME, at_ms=observation.at_ms)
        write.collector.detail |= _figures(observation)
        news = collector_store.record_poll(write.collector, observation, now_ms)
        if observation.gaps is not None:
            gaps = {scope: (now_ms, reason) for scope, reason in observation.gaps.items()}
            news = collector_store.save_gaps(lease, gaps, now_ms) or news
        if observation.rows or observation.gone or observation.pins or observation.ended:
            write.notify_after_commit("partitions")
        if news:
            write.notify_after_commit("collectors")


def _write(
    cluster_id: int,
    rev: int,
    observation: ObservedPartitions,
    pins: Iterable[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
) -> None:
    at_ms = observation.at_ms
    pin_rows = ({**fields_of(pin), "cluster_id": cluster_id, "seen_ms": at_ms} for pin in pins)
    write_rows(PinRecord, pin_rows, _PIN_KEY)
    for are_packed in (False, True):
        partition_rows = [
            _row(cluster_id, rev, known, observation.ends.get(where))
            for where, known in rows
            if (where in observation.ends) is are_packed
        ]
        write_rows(PartitionRecord, partition_rows, _KEY)
    samples = [_sample(where, known, at_ms) for where, known in rows]
    save_samples(cluster_id, PARTITION, samples, at_ms=at_ms)


def _sample(where: TopicPartition, known: KnownPartition, at_ms: int) -> SeriesSample:
    """Return the offsets that this poll read; None values if it could not read them."""
    if known.seen_ms != at_ms or known.lso is None or known.high_watermark is None:
        return SeriesSample(str(where), None)
    return SeriesSample(str(where), (known.lso, max(0, known.high_watermark - known.lso)))


def _row(cluster_id: int, rev: int, known: KnownPartition, ends: str | None) -> Mapping[str, Any]:
    """Return the columns of a partition; without a new history of ends the old one is kept."""
    columns = {**fields_of(known), **fields_of(known.place), "cluster_id": cluster_id, "rev": rev}
    del columns["place"]
    return columns if ends is None else {**columns, "ends": ends}


def _delete(cluster_id: int, observation: ObservedPartitions) -> None:
    """Delete ended transactions, and partitions of deleted topics."""
    with connection.cursor() as cursor:
        if observation.ended:
            cursor.executemany(_DELETE_PIN, sorted((cluster_id, *key) for key in observation.ended))
        if observation.gone:
            _keep_ends(cluster_id, observation)
            cursor.executemany(_DELETE, sorted((cluster_id, *where) for where in observation.gone))
    ended = [SeriesSample(str(where), None, ended=True) for where in observation.gone]
    save_samples(cluster_id, PARTITION, ended, at_ms=observation.at_ms)
    for where in observation.gone:
        ReplicaLook.objects.filter(
            cluster_id=cluster_id, topic=where.topic, partition=where.partition
        ).delete()


def _keep_ends(cluster_id: int, observation: ObservedPartitions) -> None:
    """Save the start and end of deleted partitions' logs, which bound the groups' unread records."""
    topics = sorted({where.topic for where in observation.gone})
    known = PartitionRecord.objects.filter(cluster_id=cluster_id).defer("ends")
    for rows in in_portions(known, "topic", topics):
        deleted = (
            {
                "cluster_id": cluster_id,
                "topic": row.topic,
                "partition": row.partition,
                "log_start": row.log_start,
                "high_watermark": row.high_watermark,
                "deleted_ms": observation.at_ms,
            }
            for row in rows
            if TopicPartition(row.topic, row.partition) in observation.gone
        )
        write_rows(DeletedPartition, deleted, _KEY)


def _figures(observation: ObservedPartitions) -> Mapping[str, object]:
    full = {"full_ms": observation.at_ms, "full_took_ms": observation.took_ms} if observation.full else {}
    return {
        "partitions": sum(observation.verdicts.values()),
        "verdicts": {verdict.value: n for verdict, n in sorted(observation.verdicts.items())},
        "took_ms": observation.took_ms,
        **full,
    }


@retry_write
def save_replicas(
    cluster: str,
    where: TopicPartition,
    answers: Mapping[int, Sequence[ProducerState] | str],
    *,
    leader: int | None,
    ids: Mapping[int, str],
    now_ms: int,
    writers: BatchWriters | None = None,
) -> None:
    """Save the replicas' reports about a partition's producers, by broker, or the reason for no answer.

    `ids` are the known transactional ids by producer id. `writers` are those of the leader's newest records.
    It notifies the partition's page.
    """
    cluster_id = Cluster.objects.get(name=cluster).pk
    # Two concurrent saves wait for each other here.
    with cluster_transaction(cluster, cluster_id) as write:
        looks = ReplicaLook.objects.filter(
            cluster_id=cluster_id, topic=where.topic, partition=where.partition
        )
        looks.exclude(broker__in=answers).delete()
        answered = {look.broker: look for look in looks.filter(error="")}
        for broker, producers in sorted(answers.items()):
            looks.update_or_create(
                cluster_id=cluster_id,
                topic=where.topic,
                partition=where.partition,
                broker=broker,
                defaults={
                    "leads": broker == leader,
                    "seen_ms": now_ms,
                    "writers": fields_of(writers) if writers is not None and broker == leader else None,
                    **_answer(producers, answered.get(broker), ids),
                },
            )
        write.notify_after_commit("partitions")


def replica_brokers(cluster: str, where: TopicPartition) -> tuple[int, ...]:
    """Return the brokers of a partition's replicas, as last read; empty if never read."""
    rows = PartitionRecord.objects.filter(cluster__name=cluster, topic=where.topic, partition=where.partition)
    return tuple(rows.values_list("replicas", flat=True).first() or ())


def _answer(
    answer: Sequence[ProducerState] | str, known: ReplicaLook | None, ids: Mapping[int, str]
) -> Mapping[str, object]:
    if isinstance(answer, str):
        return {"producers": [], "error": answer}
    named = [{**state._asdict(), "transactional_id": ids.get(state.producer_id, "")} for state in answer]
    before = {"producers_before": known.producers, "before_ms": known.seen_ms} if known else {}
    return {"producers": named, "error": "", **before}
