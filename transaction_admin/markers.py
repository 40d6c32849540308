"""WriteTxnMarkers: write the abort marker that a coordinator would write, for transactions without one."""

from __future__ import annotations

from typing import Any

import kafka.errors as errors
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from transaction_admin.api import Ended, Marker
from transaction_admin.connection import AdminConnection, error_name, explain_error

#: As in Kafka's own abort: the leader then takes the transaction's own epoch, and requires no higher one.
_LEGACY = 0


async def write_abort_marker(connection: AdminConnection, marker: Marker, leader: int) -> Ended:
    """Ask one broker, once, to write an abort marker into one partition; return its answer."""
    (answer,) = await connection.send_each([(_request(marker), leader)])
    if isinstance(answer, errors.KafkaError):
        return Ended(None, explain_error(answer))
    code = _code(answer, marker)
    return Ended(code, error_name(errors.for_code(code)) if code else "")


def _request(marker: Marker) -> Any:
    one = WriteTxnMarkersRequest.WritableTxnMarker
    topic = one.WritableTxnMarkerTopic(
        name=marker.partition.topic, partition_indexes=[marker.partition.partition]
    )
    return WriteTxnMarkersRequest(
        markers=[
            one(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=_LEGACY,
            )
        ]
    )


def _code(answer: Any, marker: Marker) -> int:
    """Return the error code of the one partition, which also holds a refusal of the request."""
    return next(
        int(partition.error_code)
        for written in answer.markers
        for topic in written.topics
        for partition in topic.partitions
        if (topic.name, partition.partition_index) == tuple(marker.partition)
    )
