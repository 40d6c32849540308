"""kafka-python's requests about the partitions of one leader, and the headers of the batches in its answers.

Headers are parsed from the bytes of a Fetch answer, without decoding or decompressing records: the producer,
first and last offset, and the type of a marker. Layout of message format v2: docs/design/kafka.md §1.3, and
Kafka's `DefaultRecordBatch.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from transaction_admin.leaders import Topics

#: `OffsetSpec.LATEST` and `OffsetSpec.EARLIEST`, and the levels of isolation.
LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1
NONE = -1
#: From version 13 on, topics are named by their ids.
_FETCH_BY_NAME = 12
#: Base offset and length of the rest: every message format begins with these twelve bytes.
_FRAME = Struct(">qi")
#: Attributes, last offset delta, two timestamps, producer id and epoch, base sequence, number of records.
_HEADER = Struct(">hiqqqhii")
_MAGIC, _ATTRIBUTES, _RECORDS = 16, 21, 61
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKERS = {0: "abort", 1: "commit"}
_TYPE = Struct(">hh")


class Epochs(NamedTuple):
    """Epochs of a partition, NONE if unknown: a broker compares them with its own."""

    #: The leader's by the last metadata: a broker that does not lead in it answers an error (KIP-320).
    leader: int = NONE
    #: That of the batch before the offset: a log that has lost its end since reports the divergence
    #: (KIP-595).
    read: int = NONE


_UNKNOWN = Epochs()


def offset_request(topics: Topics, isolation: int, which: int) -> Any:
    """Return the request for the EARLIEST or LATEST offset; with COMMITTED the latter is the LSO."""
    topic_of = ListOffsetsRequest.ListOffsetsTopic
    partition_of = topic_of.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=NONE,
        isolation_level=isolation,
        topics=[
            topic_of(
                name=name,
                partitions=[partition_of(partition_index=number, timestamp=which) for number in numbers],
            )
            for name, numbers in topics.items()
        ],
    )


def fetch_request(
    topics: Topics,
    starts: Mapping[TopicPartition, int],
    most_bytes: int,
    isolation: int,
    wait_ms: int = 0,
    epochs: Mapping[TopicPartition, Epochs] = MappingProxyType({}),
) -> Any:
    """Return the request for raw batches; it waits up to `wait_ms` for a first one."""
    topic_of = FetchRequest.FetchTopic

    def partition_of(where: TopicPartition) -> Any:
        leader, read = epochs.get(where, _UNKNOWN)
        return topic_of.FetchPartition(
            partition=where.partition,
            current_leader_epoch=leader,
            fetch_offset=starts[where],
            last_fetched_epoch=read,
            partition_max_bytes=most_bytes,
        )

    return FetchRequest(
        replica_id=NONE,
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=most_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[
            topic_of(
                topic=name,
                partitions=[partition_of(TopicPartition(name, number)) for number in numbers],
            )
            for name, numbers in topics.items()
        ],
        forgotten_topics_data=[],
        max_version=_FETCH_BY_NAME,
    )


def parse_batches(records: bytes | memoryview) -> Iterator[RecordBatch]:
    """Yield the batches of a Fetch answer, without a truncated last one.

    In formats before v2, which have no producers, an entry counts as one record.
    """
    at, end = 0, len(records)
    while at + _MAGIC < end:
        first, length = _FRAME.unpack_from(records, at)
        following = at + _FRAME.size + length
        if following > end:
            return
        if records[at + _MAGIC] < 2:
            yield RecordBatch(first, first, -1, -1, transactional=False, marker="", records=1)
        else:
            yield _batch(records, at, first)
        at = following


def _batch(records: bytes | memoryview, at: int, first: int) -> RecordBatch:
    attributes, delta, _, newest_ms, producer_id, epoch, sequence, number = _HEADER.unpack_from(
        records, at + _ATTRIBUTES
    )
    return RecordBatch(
        first,
        first + delta,
        producer_id,
        epoch,
        transactional=bool(attributes & _TRANSACTIONAL),
        marker=_marker(records, at + _RECORDS) if attributes & _CONTROL and number else "",
        records=number,
        max_timestamp_ms=newest_ms,
        base_sequence=sequence,
    )


def _marker(records: bytes | memoryview, at: int) -> str:
    """Return the type of the control record at `at`; "" for another type than the end of a transaction."""
    _, at = _varint(records, at)
    at += 1
    for _ in range(3):
        # Timestamp delta, offset delta, length of the key.
        _, at = _varint(records, at)
    _, kind = _TYPE.unpack_from(records, at)
    return _MARKERS.get(kind, "")


def _varint(records: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = records[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
