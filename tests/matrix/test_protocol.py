"""On every version: the requests that it takes, what filters do, and the way out of a hanging transaction."""

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from sandbox.kafka import Broker
from sandbox.scenes import hanging, wire
from sandbox.scenes.scene_context import Stage
from tests.kafka.transactional_ids import initialise_ids
from tests.matrix.kafka_versions import Expected
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

PRODUCE, END, WRITE_MARKERS, LIST = 0, 26, 27, 66
HOUR_MS = 3_600_000


def offered(kafka: Broker) -> Any:
    """Return the broker's ApiVersions."""
    request = ApiVersionsRequest(client_software_name="fenceline-tests", client_software_version="1")
    with wire.Connection(kafka.bootstrap) as broker:
        return broker.send_request(request, ApiVersionsResponse, 3)


def test_it_offers_the_requests_of_its_version(kafka: Broker, expected: Expected) -> None:
    answer = offered(kafka)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges[PRODUCE] == expected.produce
    assert ranges[END] == expected.end_transaction
    assert ranges[WRITE_MARKERS] == expected.write_markers
    assert ranges[LIST] == expected.list_transactions
    features = {each.name: each.max_version_level for each in answer.finalized_features}
    assert features.get("transaction.version", 0) == expected.transaction_version


def listed(kafka: Broker, version: int, **filters: Any) -> set[str]:
    """Return the ids of this test that the broker lists."""
    request = ListTransactionsRequest(
        **{"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
    )
    with wire.Connection(kafka.bootstrap) as broker:
        answer = broker.send_request(request, ListTransactionsResponse, version)
    assert answer.error_code == 0
    found = {each.transactional_id for each in answer.transaction_states}
    return {name for name in found if name.startswith("listed-")}


def test_lists_are_filtered_as_far_as_the_version_can(kafka: Broker, expected: Expected) -> None:
    names = {"listed-a", "listed-b", "listed-b-2"}
    initialise_ids(kafka.bootstrap, names)
    newest = expected.list_transactions[1]
    assert listed(kafka, newest) == names
    assert listed(kafka, newest, state_filters=["Ongoing"]) == set()
    # An id that has nothing open passes every duration: its start is -1 (docs/design/kafka.md §1.2).
    assert listed(kafka, newest, duration_filter=HOUR_MS) == names
    if newest >= 2:
        assert listed(kafka, newest, transactional_id_pattern="listed-b.*") == {"listed-b", "listed-b-2"}


def last_stable_offset(kafka: Broker) -> int:
    """Return the LSO of the scene's partition."""
    where = TopicPartition(hanging.TOPIC, hanging.PARTITION)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = client.list_offsets({where: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(found[where].result(30).offset)


def test_a_hanging_transaction_hangs_until_an_abort_marker_is_written(
    kafka: Broker, expected: Expected
) -> None:
    hanging.play(Stage(kafka.bootstrap, {1: 0}), print)
    assert last_stable_offset(kafka) == 0
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=hanging.TOPIC, partition_indexes=[0])]
    )
    with wire.Connection(kafka.bootstrap) as broker:
        answer = broker.send_request(request, DescribeProducersResponse, 0)
        (found,) = answer.topics[0].partitions[0].active_producers
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (0, -1)
        assert abort(broker, found, expected.write_markers[1]) == 0
    wait_for(lambda: last_stable_offset(kafka) == hanging.RECORDS + 1, "the LSO is beyond the marker")


def abort(broker: wire.Connection, producer: Any, version: int) -> int:
    """Write an abort marker into the scene's partition; return the error code."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=hanging.TOPIC, partition_indexes=[hanging.PARTITION])
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=0,
            )
        ]
    )
    answer = broker.send_request(request, WriteTxnMarkersResponse, version)
    return int(answer.markers[0].topics[0].partitions[0].error_code)
