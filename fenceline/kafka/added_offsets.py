"""Offsets that a transaction adds to groups (read, process, write), and how completely they were read. Pure.

The record of a transaction names partitions of `__consumer_offsets` and no group. The records there name
group, partition and offset (`fenceline.decode.consumer_offsets`), the header of their batch the producer.
They are read while the transaction is open, and from then on up to its marker.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import (
    ABORTED_STATES,
    COMMITTED_STATES,
    OPEN_STATES,
    TransactionRecord,
    TransactionState,
)
from fenceline.formatting import count_noun
from fenceline.kafka.commits import TOPIC

#: How many offsets are kept of one transaction in one partition of `__consumer_offsets`.
MOST_OFFSETS = 500
_MARKERS = {**dict.fromkeys(COMMITTED_STATES, "commit"), **dict.fromkeys(ABORTED_STATES, "abort")}


class AddedOffset(NamedTuple):
    """A record of `__consumer_offsets` that a transaction wrote; the group as escaped text."""

    group: str
    topic: str
    partition: int
    offset: int
    #: The commit's instant in the record (`commitTimestamp`), by the clock of the group's coordinator.
    at_ms: int
    #: Where it lies in `__consumer_offsets`.
    log_partition: int
    log_offset: int


class AddedOffsets(NamedTuple):
    """What one partition of `__consumer_offsets` holds of the newest transaction of a producer."""

    producer_id: int
    producer_epoch: int
    log_partition: int
    #: The newest of each group and partition, by name; at most MOST_OFFSETS of the `total`.
    offsets: tuple[AddedOffset, ...]
    total: int
    #: "commit" or "abort" once the transaction's marker was read here, "" before.
    marker: str
    #: How many records were there behind what was read, at `read_ms` by our clock.
    unread: int
    read_ms: int


class Observation(StrEnum):
    """How completely the offsets of a transaction were read."""

    #: Every partition of its record was read: to the log's end, or to a finished transaction's marker.
    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """The offsets a transaction added, as far as they were read, sorted by group and partition."""

    observation: Observation = Observation.COMPLETE
    offsets: tuple[AddedOffset, ...] = ()
    #: Our clock at the oldest of the last reads; None where nothing was read.
    read_ms: int | None = None
    #: One sentence per gap: what is unknown, and why. () where the observation is complete.
    missing: tuple[str, ...] = ()


NOTHING_ADDED = TransactionOffsets()


def newest_offsets(
    written: Iterable[AddedOffset],
    producer: tuple[int, int],
    log_partition: int,
    *,
    marker: str,
    unread: int,
    read_ms: int,
) -> AddedOffsets:
    """Collect what a producer (id and epoch) wrote to one partition; `written` is in log order."""
    newest = {offset[:3]: offset for offset in written}
    kept = tuple(newest[place] for place in sorted(newest)[:MOST_OFFSETS])
    return AddedOffsets(*producer, log_partition, kept, len(newest), marker, unread, read_ms)


def pack_offsets(offsets: Iterable[AddedOffset]) -> str:
    """Return offsets as compact JSON text: [[group, topic, partition, offset, at_ms, …], …]."""
    return json.dumps(list(offsets), separators=(",", ":"))


def unpack_offsets(packed: str) -> tuple[AddedOffset, ...]:
    return tuple(AddedOffset(*row) for row in json.loads(packed))


def offsets_of(
    record: TransactionRecord, read: Iterable[AddedOffsets], unread_because: Callable[[], str]
) -> TransactionOffsets:
    """Return the offsets that a record's transaction added, from everything `read` of its producer.

    `unread_because` returns why nothing was read of a transaction; it is called only if nothing was read.
    `record.partitions` is None where the partitions are unknown, in every state but Empty.
    """
    if record.state is TransactionState.EMPTY:
        return NOTHING_ADDED
    own = {partition.log_partition: partition for partition in read if _is_of(partition, record)}
    missing = (*_missing(record, own, unread_because), *_unread(record, own.values()))
    offsets = tuple(sorted(offset for partition in own.values() for offset in partition.offsets))
    read_ms = min((partition.read_ms for partition in own.values()), default=None)
    observation = Observation.PARTIAL if own else Observation.NONE
    return TransactionOffsets(observation if missing else Observation.COMPLETE, offsets, read_ms, missing)


def _is_of(read: AddedOffsets, record: TransactionRecord) -> bool:
    """Whether the transaction of a record wrote these offsets.

    Decided by epoch and time, because before transaction version 2 (KIP-890) many transactions share one
    epoch. The end of a transaction may raise the epoch: always in version 2, before it only a timeout's
    abort.
    """
    if read.producer_id != record.producer_id or record.started_ms is None:
        return False
    instants = [offset.at_ms for offset in read.offsets]
    if max(instants) < record.started_ms:
        return False
    if record.state is TransactionState.ONGOING:
        return read.producer_epoch == record.producer_epoch and not read.marker
    fits = record.producer_epoch - read.producer_epoch in (0, 1) and min(instants) <= record.updated_ms
    return fits and read.marker in ("", _MARKERS.get(record.state))


def _missing(
    record: TransactionRecord, own: Iterable[int], unread_because: Callable[[], str]
) -> Iterator[str]:
    """Yield the log partitions that were not read."""
    if record.state not in OPEN_STATES:
        if not own:
            yield f"the record of a finished transaction lists no partitions; {unread_because()}"
    elif record.partitions is None:
        yield "its record, which lists its partitions, was not read"
    else:
        named = {number for topic, numbers in record.partitions if topic == TOPIC for number in numbers}
        for number in sorted(named.difference(own)):
            yield f"{TOPIC}-{number}: {unread_because()}"


def _unread(record: TransactionRecord, own: Iterable[AddedOffsets]) -> Iterator[str]:
    """Yield the gaps in partitions that were read."""
    for added in own:
        where = f"{TOPIC}-{added.log_partition}"
        if added.total > len(added.offsets):
            yield f"{where}: {len(added.offsets):,} of {count_noun(added.total, 'offset')} are kept"
        if added.marker:
            continue
        if added.unread:
            yield f"{where}: {count_noun(added.unread, 'record')} before its end are not read yet"
        if record.state is not TransactionState.ONGOING:
            yield f"{where}: last read before the transaction ended, not up to its marker"
