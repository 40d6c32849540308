"""Three brokers are one cluster: topics have a replica on each, and any of them answers."""

import pytest
from confluent_kafka.admin import AdminClient, PartitionMetadata

from sandbox import clients
from sandbox.cluster import SIZE, KafkaCluster
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]


def partitions_of(bootstrap: str, topic: str) -> dict[int, PartitionMetadata]:
    """Return the partitions of a topic once the broker that answers has it and their leaders."""

    def known_partitions() -> dict[int, PartitionMetadata]:
        found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
        partitions = found.topics[topic].partitions
        return partitions if all(each.leader > 0 for each in partitions.values()) else {}

    return wait_for(known_partitions, f"{bootstrap} knows the topic")


def test_topics_have_three_replicas_and_any_node_answers(kafka_three: KafkaCluster) -> None:
    clients.ensure_topics(kafka_three.bootstrap)
    for broker in kafka_three.brokers:
        partitions = partitions_of(broker.bootstrap, "orders").values()
        assert {len(partition.replicas) for partition in partitions} == {SIZE}
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30)
        assert {broker.node_id for broker in kafka_three.brokers} == set(found.brokers)
