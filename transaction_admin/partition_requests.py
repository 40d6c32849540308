"""kafka-python's requests about the partitions of one leader."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest

from fenceline.facts import TopicPartition
from transaction_admin.leaders import Topics

#: `OffsetSpec.LATEST` and `OffsetSpec.EARLIEST`, and the levels of isolation.
LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1
NONE = -1
#: From version 13 on, topics are named by their ids.
_FETCH_BY_NAME = 12


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
