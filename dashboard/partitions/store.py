"""Saves what `collectors.kafka.partitions` saw, and gives it the rows it starts from: the only writer of
those.

As `dashboard.transactions.store` does: the lease by its token, the revision, then changed rows in key order,
in database transactions so short that no other writer waits for long. The doorbell rings after the last one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from django.db import connection
from django.db.models import F

from dashboard.models import (
    IS_OPEN,
    Collector,
    GapRecord,
    PartitionRecord,
    PinRecord,
    ReplicaLook,
    Transaction,
)
from dashboard.partitions.queries import pin_of
from dashboard.runtime import collector_store, notify
from dashboard.runtime.collector_names import PARTITIONS as NAME
from dashboard.runtime.leases import Lease, collector_row
from dashboard.runtime.sql import Row, overwrite_changes, upsert_statement
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.series.store import SeriesSample, extend_span, save_samples
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import (
    KnownPartition,
    PartitionPlace,
    PartitionVerdict,
    Pin,
    PinKey,
)
from fenceline.series.points import PARTITION
from fenceline.visibility import EVERYWHERE

__all__ = [
    "NAME",
    "PartitionObservation",
    "PartitionRows",
    "save_partitions",
]

#: Rows in one save: about 50 ms, also where each of them has a long history of ends.
_SAVE_AT_ONCE = 1_000
#: Parameters of one question: SQLite takes 32,766.
_ASK_AT_ONCE = 5_000
#: How old a tail's data may be, in milliseconds, for its rows to be all the ids there are.
_FRESH_MS = 10_000

_KEY = ("cluster_id", "topic", "partition")
_VALUES = (
    "topic_id", "leader", "leader_epoch", "replicas", "log_start", "lso", "high_watermark", "seen_ms",
    "pinned_ms", "verdict", "error", "rev",
)  # fmt: skip
_ROW = (*_KEY, *_VALUES, "ends")
_TABLE = PartitionRecord._meta.db_table
_UPSERT = upsert_statement(_TABLE, _ROW, _KEY, overwrite_changes(_VALUES))
_UPSERT_WITH_ENDS = upsert_statement(_TABLE, _ROW, _KEY, overwrite_changes((*_VALUES, "ends")))
_IS = " AND ".join(f"{column} = %s" for column in _KEY)
_DELETE = f"DELETE FROM {_TABLE} WHERE {_IS}"  # noqa: S608 - our own constants
_PIN_KEY = (*_KEY, "producer_id", "producer_epoch", "start_offset")
_PIN = (
    *_PIN_KEY, "last_sequence", "last_timestamp_ms", "coordinator_epoch", "first_seen_ms",
    "transactional_id", "verdict", "ground", "prepared_ms", "seen_ms",
)  # fmt: skip
_PINS = PinRecord._meta.db_table
_UPSERT_PIN = upsert_statement(_PINS, _PIN, _PIN_KEY, overwrite_changes(_PIN[6:]))
_DELETE_PIN = f"DELETE FROM {_PINS} WHERE {' AND '.join(f'{column} = %s' for column in _PIN_KEY)}"  # noqa: S608


class PartitionObservation(Protocol):
    """What a poll found: `collectors.kafka.partitions.ObservedPartitions`, which this side may not import."""

    @property
    def at_ms(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def rows(self) -> Mapping[TopicPartition, KnownPartition]: ...
    @property
    def ends(self) -> Mapping[TopicPartition, str]: ...
    @property
    def gone(self) -> Collection[TopicPartition]: ...
    @property
    def pins(self) -> Sequence[Pin]: ...
    @property
    def ended(self) -> Sequence[PinKey]: ...
    @property
    def gaps(self) -> Mapping[str, str] | None: ...
    @property
    def verdicts(self) -> Mapping[PartitionVerdict, int]: ...
    @property
    def took_ms(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def broker_ms(self) -> float: ...


class PartitionRows:
    """The rows of one cluster. `tails` are the names of the collectors that read `__transaction_state`."""

    def __init__(self, lease: Lease, tails: Collection[str], *, vouched: bool) -> None:
        """`vouched`: whether the operator has declared that no transactional id is hidden from us."""
        self._cluster_id = lease.cluster_id
        self._tails, self._vouched = tails, vouched
        #: When the last poll began, for the age of a tail's data.
        self.now_ms = 0

    def known_partitions(self) -> dict[TopicPartition, KnownPartition]:
        """Return every partition's row."""
        rows = PartitionRecord.objects.filter(cluster_id=self._cluster_id).defer("ends")
        return {TopicPartition(row.topic, row.partition): _known(row) for row in rows.iterator()}

    def end_histories(self) -> dict[TopicPartition, str]:
        """Return every partition's packed history of ends."""
        rows = PartitionRecord.objects.filter(cluster_id=self._cluster_id)
        found = rows.values_list("topic", "partition", "ends").iterator()
        return {TopicPartition(topic, number): packed for topic, number, packed in found}

    def open_pins(self) -> list[Pin]:
        """Return the transactions that were open in partitions."""
        return [pin_of(row) for row in PinRecord.objects.filter(cluster_id=self._cluster_id)]

    def named_partitions(self) -> set[TopicPartition]:
        """Return the partitions that open transactions name."""
        rows = Transaction.objects.filter(IS_OPEN, cluster_id=self._cluster_id)
        return {
            TopicPartition(topic, number)
            for packed in rows.values_list("partitions", flat=True).distinct()
            for topic, numbers in json.loads(packed or "[]")
            for number in numbers
        }

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the escaped ids of rows that have these producer ids. Walks through all of them."""
        left = iter(producer_ids)
        found: dict[int, str] = {}
        while some := list(islice(left, _ASK_AT_ONCE)):
            rows = Transaction.objects.filter(cluster_id=self._cluster_id, producer_id__in=some)
            found.update(rows.values_list("producer_id", "transactional_id"))
        return found

    def sees_all(self) -> bool:
        """Whether no transactional id can be hidden from us: by our tails, or by the operator's word."""
        return self._vouched or self._tails_see_all()

    def _tails_see_all(self) -> bool:
        rows = Collector.objects.filter(cluster_id=self._cluster_id, name__in=self._tails)
        gaps = GapRecord.objects.filter(cluster_id=self._cluster_id, source__in=self._tails, until_ms=None)
        found = list(rows.values_list("seen_through_ms", "error", "undecoded"))
        return (
            0 < len(found) == len(self._tails)
            and all(
                seen is not None and self.now_ms - seen <= _FRESH_MS and not error and not undecoded
                for seen, error, undecoded in found
            )
            and not gaps.exists()
        )


def _known(row: PartitionRecord) -> KnownPartition:
    return KnownPartition(
        row.topic,
        row.partition,
        PartitionPlace(row.topic_id, row.leader, row.leader_epoch, tuple(row.replicas)),
        row.log_start,
        row.lso,
        row.high_watermark,
        row.seen_ms,
        row.pinned_ms,
        PartitionVerdict(row.verdict),
        row.error,
    )


def save_partitions(lease: Lease, observation: PartitionObservation, *, now_ms: int) -> None:
    """Save what a poll found and what it cost. Raises `LeaseLost` when the token is outdated."""
    pins = sorted(observation.pins, key=lambda pin: pin.key)
    rows = sorted(observation.rows.items())
    while len(pins) + len(rows) > _SAVE_AT_ONCE:
        some, pins = pins[:_SAVE_AT_ONCE], pins[_SAVE_AT_ONCE:]
        others, rows = rows[: _SAVE_AT_ONCE - len(some)], rows[_SAVE_AT_ONCE - len(some) :]
        _save_some(lease, observation, some, others)
    _save_rest(lease, observation, pins, rows, now_ms)


@retry_write
def _save_some(
    lease: Lease,
    observation: PartitionObservation,
    pins: Sequence[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
) -> None:
    with write_transaction(lease) as write:
        _write(lease.cluster_id, write.next_rev(), observation, pins, rows)


@retry_write
def _save_rest(
    lease: Lease,
    observation: PartitionObservation,
    pins: Sequence[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
    now_ms: int,
) -> None:
    columns = {"seen_through_ms": observation.at_ms, "records": F("records") + len(observation.rows)}
    with write_transaction(lease, columns) as write:
        _write(lease.cluster_id, write.next_rev(), observation, pins, rows)
        _delete(lease.cluster_id, observation)
        collector_store.add_cost(lease, observation.requests, round(observation.broker_ms), now_ms)
        extend_span(lease.cluster_id, NAME, at_ms=observation.at_ms)
        news = collector_row(lease).exclude(error="").exists()
        collector_store.clear_error(lease, now_ms)
        if observation.gaps is not None:
            news = _sync_gaps(lease, observation.gaps, now_ms) or news
        _save_detail(lease, observation)
        for kind in _kinds(observation, news=news):
            write.notify_after_commit(kind)


def _kinds(observation: PartitionObservation, *, news: bool) -> Iterator[notify.Kind]:
    if observation.rows or observation.gone or observation.pins or observation.ended:
        yield "partitions"
    if news:
        yield "collectors"


def _write(
    cluster_id: int,
    rev: int,
    observation: PartitionObservation,
    pins: Iterable[Pin],
    rows: Sequence[tuple[TopicPartition, KnownPartition]],
) -> None:
    pin_rows = [_pin_row(cluster_id, observation.at_ms, pin) for pin in pins]
    changed: dict[bool, list[Row]] = {False: [], True: []}
    for where, known in rows:
        packed = observation.ends.get(where)
        changed[packed is not None].append(_row(cluster_id, rev, observation.at_ms, known, packed or ""))
    with connection.cursor() as cursor:
        for statement, values in (
            (_UPSERT_PIN, pin_rows),
            (_UPSERT, changed[False]),
            (_UPSERT_WITH_ENDS, changed[True]),
        ):
            if values:
                cursor.executemany(statement, values)
    samples = [_sample(where, known, observation.at_ms) for where, known in rows]
    save_samples(cluster_id, PARTITION, samples, at_ms=observation.at_ms)


def _sample(where: TopicPartition, known: KnownPartition, at_ms: int) -> SeriesSample:
    """Return the offsets that this very poll found; none where it could not see them."""
    if known.seen_ms != at_ms or known.lso is None or known.high_watermark is None:
        return SeriesSample(str(where), None)
    return SeriesSample(str(where), (known.lso, max(0, known.high_watermark - known.lso)))


def _row(cluster_id: int, rev: int, at_ms: int, known: KnownPartition, packed: str) -> Row:
    place = known.place
    return (
        cluster_id,
        known.topic,
        known.partition,
        place.topic_id,
        place.leader,
        place.leader_epoch,
        json.dumps(place.replicas),
        known.log_start,
        known.lso,
        known.high_watermark,
        known.seen_ms,
        known.pinned_ms,
        known.verdict.value,
        known.error,
        rev,
        packed,
    )


def _pin_row(cluster_id: int, at_ms: int, pin: Pin) -> Row:
    return (
        cluster_id,
        *pin.key,
        pin.last_sequence,
        pin.last_timestamp_ms,
        pin.coordinator_epoch,
        pin.first_seen_ms,
        pin.transactional_id,
        pin.verdict.value,
        pin.ground.value,
        pin.prepared_ms,
        at_ms,
    )


def _delete(cluster_id: int, observation: PartitionObservation) -> None:
    """Delete what is no more: transactions that ended, and partitions of topics that are gone."""
    with connection.cursor() as cursor:
        if observation.ended:
            cursor.executemany(_DELETE_PIN, sorted((cluster_id, *key) for key in observation.ended))
        if observation.gone:
            cursor.executemany(_DELETE, sorted((cluster_id, *where) for where in observation.gone))
    ended = [SeriesSample(str(where), None, ended=True) for where in observation.gone]
    save_samples(cluster_id, PARTITION, ended, at_ms=observation.at_ms)
    for where in observation.gone:
        ReplicaLook.objects.filter(
            cluster_id=cluster_id, topic=where.topic, partition=where.partition
        ).delete()


def _sync_gaps(lease: Lease, gaps: Mapping[str, str], now_ms: int) -> bool:
    """Open a gap for all that cannot be seen now, close those of the rest; return whether any is new."""
    mine = GapRecord.objects.filter(cluster_id=lease.cluster_id, source=lease.name, until_ms=None)
    opened = dict(mine.exclude(scope=EVERYWHERE).values_list("scope", "reason"))
    closed = opened.keys() - gaps.keys()
    for scope in sorted(closed):
        mine.filter(scope=scope).update(until_ms=now_ms)
    for scope, reason in gaps.items():
        if scope in opened and opened[scope] != reason:
            mine.filter(scope=scope).update(reason=reason)
    GapRecord.objects.bulk_create(
        GapRecord(cluster_id=lease.cluster_id, source=lease.name, scope=scope, since_ms=now_ms, reason=reason)
        for scope, reason in sorted(gaps.items())
        if scope not in opened
    )
    return bool(closed) or opened.keys() != gaps.keys()


def _save_detail(lease: Lease, observation: PartitionObservation) -> None:
    """Save the figures of the poll itself."""
    row = collector_row(lease).get()
    row.detail |= {
        "partitions": sum(observation.verdicts.values()),
        "verdicts": {verdict.value: n for verdict, n in sorted(observation.verdicts.items())},
        "took_ms": observation.took_ms,
    }
    if observation.full:
        row.detail |= {"full_ms": observation.at_ms, "full_took_ms": observation.took_ms}
    row.save(update_fields=["detail"])
