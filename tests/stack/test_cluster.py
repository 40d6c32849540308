"""Three brokers are one cluster: it outlives any one of them, and its folder gives it again with its data."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from sandbox import topics
from sandbox.cluster import SIZE, KafkaCluster, require_size
from sandbox.errors import SandboxError
from sandbox.kafka import Broker, live_brokers
from tests.brokers import kafka_three
from tests.waiting import wait_for

__all__ = ["kafka_three"]


def write(bootstrap: str, partition: int) -> int:
    """Write a record that all replicas in sync must have; return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce(
        "orders", b"x", partition=partition, on_delivery=lambda _, message: offsets.append(message.offset())
    )
    assert producer.flush(60) == 0
    return offsets[0]


def orders(bootstrap: str) -> dict[int, PartitionMetadata]:
    """Return the partitions of a topic once the broker that answers has it and their leaders."""

    def known_partitions() -> dict[int, PartitionMetadata]:
        found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(
            "orders", timeout=30
        )
        partitions = found.topics["orders"].partitions
        return partitions if all(each.leader > 0 for each in partitions.values()) else {}

    return wait_for(known_partitions, f"{bootstrap} knows the topic")


@pytest.mark.kafka
def test_topics_have_three_replicas_and_any_node_answers(kafka_three: KafkaCluster) -> None:
    topics.ensure_topics(kafka_three.bootstrap)
    for broker in kafka_three.brokers:
        partitions = orders(broker.bootstrap).values()
        assert {len(partition.replicas) for partition in partitions} == {SIZE}
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30)
        assert {broker.node_id for broker in kafka_three.brokers} == set(found.brokers)


@pytest.mark.soak
@pytest.mark.kafka
def test_a_cluster_keeps_records_written_without_a_node_after_all_were_killed(tmp_path: Path) -> None:
    with KafkaCluster(tmp_path) as cluster:
        topics.ensure_topics(cluster.bootstrap)
        number = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).cluster_id
        victim = orders(cluster.bootstrap)[0].leader
        assert write(cluster.bootstrap, 0) == 0
        cluster.node(victim).kill()
        assert write(cluster.bootstrap, 0) == 1
        cluster.start()
        cluster.wait_ready()
        cluster.kill()
        ports = [
            [getattr(broker, name) for broker in cluster.brokers] for name in ("port", "controller_port")
        ]
    with KafkaCluster(tmp_path, ports=ports[0], controller_ports=ports[1]) as again:
        assert (
            AdminClient({"bootstrap.servers": again.bootstrap}).list_topics(timeout=30).cluster_id == number
        )
        assert write(again.bootstrap, 0) == 2
    assert not [broker for broker in again.brokers if broker.process]


@pytest.mark.kafka
def test_a_stopped_node_is_reported_and_comes_back(kafka_three: KafkaCluster) -> None:
    kafka_three.node(2).stop()
    try:
        wait_for(lambda: live_brokers(kafka_three.node(1).bootstrap) == {1, 3}, "node 2 is gone", 60)
    finally:
        kafka_three.start()
        kafka_three.wait_ready()


def test_a_folder_of_another_size_is_refused(tmp_path: Path) -> None:
    require_size(tmp_path / "none", 1)
    require_size(tmp_path / "none", SIZE)
    (tmp_path / "one" / "data").mkdir(parents=True)
    KafkaCluster(tmp_path / "three")
    for name, size in ("one", 1), ("three", SIZE):
        require_size(tmp_path / name, size)
        with pytest.raises(SandboxError, match=f"holds a Kafka of {size} brokers?: say BROKERS={size}, or"):
            require_size(tmp_path / name, 4 - size)


def test_all_nodes_are_formatted_alike(tmp_path: Path) -> None:
    first, again = KafkaCluster(tmp_path), KafkaCluster(tmp_path)
    assert len({broker.cluster_id for cluster in (first, again) for broker in cluster.brokers}) == 1
    assert len({broker.cluster_id for broker in (first.node(1), Broker(tmp_path / "alone"))}) == 2


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SandboxError, match=r"cannot write to .*: free or repair it"):
        KafkaCluster(tmp_path / "file")
