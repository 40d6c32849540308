"""Share groups (KIP-932): the progress in each partition, from the groups' coordinators.

A share group commits no offsets. Its coordinator keeps the offset before which every record is done, and from
Kafka 4.2 on the number of unfinished records (KIP-1226). The messages are Kafka's
DescribeShareGroupOffsetsRequest and -Response, which kafka-python lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import kafka.errors as errors
from kafka.protocol.api_message import ApiMessage

from fenceline.facts import TopicPartition
from fenceline.kafka.groups import ShareProgress
from transaction_admin import schemas
from transaction_admin.api import Unseen
from transaction_admin.connection import error_name


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups; no topics means all of them."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """By partition the start offset, -1 without one, and the lag, -1 if unknown."""


def share_offsets_request(groups: Sequence[str]) -> Any:
    """Return the request for all partitions of some groups."""
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in groups])


def read_progress(topics: Sequence[Any]) -> Iterator[tuple[TopicPartition, ShareProgress | Unseen]]:
    """Yield the progress in each partition that has a start offset."""
    for topic in topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.topic_name, partition.partition_index)
            if partition.error_code:
                word = error_name(errors.for_code(partition.error_code))
                yield where, Unseen(str(where), f"its coordinator answers {word}")
            elif partition.start_offset >= 0:
                lag = None if partition.lag is None or partition.lag < 0 else partition.lag
                yield where, ShareProgress(partition.start_offset, lag)
